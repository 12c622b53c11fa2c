"""What is trained: the papers' models by name, and a model with its loss as a task."""

import dataclasses

import flax.linen as nn

from afga_jax import checks
from afga_jax.models.convmixer import ConvMixer
from afga_jax.models.recurrent import LSTM
from afga_jax.models.resnet import ResNet18
from afga_jax.models.small import CNN, MLP, AlexNet
from afga_jax.models.tasks import classifier, next_character, task

MODELS: dict[str, type[nn.Module]] = {
    "alexnet": AlexNet,
    "cnn": CNN,
    "convmixer": ConvMixer,
    "lstm": LSTM,
    "mlp": MLP,
    "resnet18": ResNet18,
}

__all__ = [
    "CNN",
    "LSTM",
    "MLP",
    "MODELS",
    "AlexNet",
    "ConvMixer",
    "ResNet18",
    "classifier",
    "create",
    "next_character",
    "task",
]


def create(
    name: str, num_classes: int, norm: str | None = None, **options
) -> nn.Module:
    """The model of that name.

    Args:
      name: Name of the model, a key of `MODELS`.
      num_classes: Number of outputs; for the LSTM the size of the alphabet.
      norm: Kind of normalisation, "batch" or "group"; None: the model's default.
      **options: Attributes of the model, such as `width`, `depth`, `hidden`.

    Returns:
      A flax module, called as `model(inputs, train)`.

    >>> create("convmixer", num_classes=10, width=64, depth=4, patch=4).width
    64
    """
    checks.choice("model", name, MODELS)
    model = MODELS[name]
    fields = {field.name for field in dataclasses.fields(model) if field.init}
    known = sorted(fields - {"parent", "name", "num_classes"})
    if norm is not None:
        options["norm"] = norm
    for option in options:
        if option not in known:
            raise ValueError(
                f"model {name!r} has no option {option!r}; it has {', '.join(known)}"
            )
    return model(num_classes=num_classes, **options)
