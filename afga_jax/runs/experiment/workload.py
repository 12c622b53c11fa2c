"""From a configuration to data and a task: what is learnt, and from whom."""

import inspect
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from afga_jax import checks, data, models
from afga_jax.data.partition.assignment import Assignment
from afga_jax.runs.config import NATURAL_SCHEMES, Config, fields
from afga_jax.training import memory
from afga_jax.typing import Batch, ClientData, Task

# Bytes for each number of a drawn problem: it is drawn in double precision, moved and
# scaled in copies, and kept in single precision, also as what the model is judged by.
_DRAWN = 6 * 8


class Workload(NamedTuple):
    """What the clients hold and what they minimise.

    Attributes:
      task: The loss that is minimised.
      clients: The clients' data.
      test: What the model is judged by.
      assignment: Who holds which samples; None: a drawn problem.
      labels: The samples' labels; None: a drawn problem.
      facts: More for the record, such as a known minimum.
    """

    task: Task
    clients: ClientData
    test: Batch
    assignment: Assignment | None = None
    labels: np.ndarray | None = None
    facts: Mapping[str, Any] = MappingProxyType({})


def make_workload(config: Config, access: data.Access) -> Workload:
    """The problem of a configuration.

    Raises:
      data.DataError: The data set cannot be had.
    """
    if config.dataset in ("quadratic", "logistic"):
        return _with_known_optimum(config)
    make = {"shakespeare": _text, "gaussians": _gaussians}.get(config.dataset, _images)
    return make(config, access)


def dealt(
    config: Config, access: data.Access
) -> tuple[Assignment, np.ndarray, tuple[str, ...]]:
    """The samples of a configuration alone, without a model.

    Returns:
      Who holds which samples, the samples' labels, and one name per class.
    """
    if config.dataset == "shakespeare":
        text = data.from_roles(data.load_roles(access))
        names = tuple(data.shakespeare.ALPHABET)
        return _deal_text(config, text), text.text[text.window :], names
    if config.partition is None:
        raise ValueError(
            f"dataset = {config.dataset!r}, but its samples are drawn for each client: "
            "name a data set that is dealt to them."
        )
    dataset = _dataset(config, access)
    return _deal(config, dataset), dataset.train_targets, dataset.label_names


def model_of(config: Config, num_classes: int) -> nn.Module:
    """The model of a configuration.

    Args:
      config: Sizes that are None are the model's own.
      num_classes: Number of outputs; for the LSTM the size of the alphabet.
    """
    sizes = _given(config, [f.name for f in fields("model") if f.name != "model"])
    # These models have one such size, others a list.
    name = {"alexnet": "features", "lstm": "hidden"}.get(config.model)
    if name in sizes:
        if len(sizes[name]) != 1:
            raise ValueError(
                f"{name} = {','.join(map(str, sizes[name]))}, but {config.model} has "
                "one: give one number."
            )
        sizes[name] = sizes[name][0]
    return models.create(config.model, num_classes, **sizes)


def _images(config: Config, access: data.Access) -> Workload:
    dataset = _dataset(config, access)
    assignment = _deal(config, dataset)
    clients, test = _samples(config, dataset, assignment)
    shape, classes = dataset.train_inputs.shape[1:], dataset.num_classes
    # Bytes are images, which are normalised; whole numbers of other kinds are words.
    whole = np.issubdtype(test.inputs.dtype, np.integer)
    dtype = "int32" if whole else "float32"
    task = models.classifier(
        model_of(config, classes), shape, jnp.dtype(dtype), dtype=config.dtype
    )
    facts = _inputs(shape, dtype, classes)
    facts["label_names"] = list(dataset.label_names)
    return Workload(task, clients, test, assignment, dataset.train_targets, facts)


def _deal(config: Config, dataset: data.Dataset) -> Assignment:
    """The samples by their labels, or by whose they are."""
    chosen = {"num_clients": config.num_clients, "seed": config.partition_seed}
    if config.partition not in NATURAL_SCHEMES:
        checks.choice("partition", config.partition, data.partition.SCHEMES)
        scheme = data.partition.SCHEMES[config.partition]
        options = _given(config, inspect.signature(scheme).parameters)
        return scheme(dataset.train_targets, **options | chosen)
    if dataset.train_clients is None:
        raise ValueError(
            f"partition = {config.partition!r}, but {config.dataset} does not say "
            f"whose its samples are: choose {', '.join(data.partition.SCHEMES)}."
        )
    natural = config.partition == "natural"
    take = data.partition.drawn if natural else data.partition.grouped
    return take(dataset.train_clients, **chosen)


def _dataset(config: Config, access: data.Access) -> data.Dataset:
    name = config.dataset
    if name not in data.OWN_DATASETS:
        return data.digits() if name == "digits" else data.load(name, access)
    dataset = data.OWN_DATASETS[name].make(config)
    if not isinstance(dataset, data.Dataset):
        raise ValueError(
            f"dataset = {name!r} gives a {type(dataset).__name__}, but its function "
            "must return an afga_jax.data.Dataset."
        )
    return dataset


def _samples(
    config: Config, dataset: data.Dataset, assignment: Assignment
) -> tuple[ClientData, Batch]:
    """The clients' samples and the test's: images normalised, others as they are."""
    inputs, size = dataset.train_inputs, config.batch_size
    if inputs.dtype == np.uint8 and inputs.ndim == 4:
        clients = data.from_dataset(
            dataset, assignment, batch_size=size, augment=bool(config.augment)
        )
        return clients, data.held_out(dataset, config.test_samples)
    if config.augment:
        raise ValueError(
            f"augment = True, but the samples of {config.dataset} are "
            f"{inputs.dtype}{inputs.shape[1:]}, and only images of bytes are cropped "
            "and flipped: leave augment out."
        )
    clients = data.from_arrays(
        inputs, dataset.train_targets, assignment, batch_size=size
    )
    test = Batch(dataset.test_inputs, dataset.test_targets)
    return clients, _evenly(test, config.test_samples or len(test.targets))


def _text(config: Config, access: data.Access) -> Workload:
    text = data.from_roles(data.load_roles(access))
    assignment = _deal_text(config, text)
    clients = data.text_clients(text, assignment, batch_size=config.batch_size)
    classes = len(data.shakespeare.ALPHABET)
    model = model_of(config, classes)
    task = models.next_character(model, text.window, dtype=config.dtype)
    test = data.held_out_text(text, config.test_samples or int(text.test_counts.sum()))
    # A window is named by its start; its label is the character that follows.
    labels = text.text[text.window :]
    facts = _inputs((text.window,), "int32", classes)
    return Workload(task, clients, test, assignment, labels, facts)


def _deal_text(config: Config, text: data.Corpus) -> Assignment:
    known = ("dirichlet", *NATURAL_SCHEMES)
    if config.partition not in known:
        raise ValueError(
            f"partition = {config.partition!r}, but a text can be dealt as "
            f"{', '.join(known)}: choose one of these."
        )
    seed, number = config.partition_seed, config.num_clients
    if config.partition == "dirichlet":
        return data.spread(text, number, alpha=config.alpha, seed=seed)
    if config.partition == "grouped":
        return data.grouped(text, number, seed=seed)
    if number != len(text.users):
        raise ValueError(
            f"num_clients = {number}, but partition = 'natural' makes each of the "
            f"{len(text.users)} roles a client: set num_clients = {len(text.users)}."
        )
    return data.natural(text)


def _gaussians(config: Config, access: data.Access) -> Workload:
    del access
    if config.num_clients != 2:
        raise ValueError(
            f"num_clients = {config.num_clients}, but there are two Gaussians, one "
            "each: set num_clients = 2."
        )
    size, seed = config.batch_size, config.partition_seed
    clients = data.gaussians(
        config.variance, points=config.client_size, batch_size=size, seed=seed
    )
    task = models.classifier(model_of(config, 2), (2,), dtype=config.dtype)
    labels = np.asarray(clients.source.targets)
    test, facts = _everything(clients), _inputs((2,), "float32", 2)
    if config.test_samples is not None:
        test = _evenly(test, config.test_samples)
    return Workload(task, clients, test, clients.assignment, labels, facts)


def _with_known_optimum(config: Config) -> Workload:
    """A drawn problem; its loss on all samples is judged, above f(x*)."""
    _check_room(config)
    make = data.quadratic if config.dataset == "quadratic" else data.logistic
    problem = make(
        config.num_clients,
        config.dimension,
        **_given(config, ("sigma_g", "sigma")),
        client_size=config.client_size,
        batch_size=config.batch_size,
        seed=config.partition_seed,
    )
    facts = {"minimum": problem.minimum, **_inputs(None, None, None)}
    return Workload(problem.task, problem.data, _everything(problem.data), facts=facts)


def _check_room(config: Config) -> None:
    """Refuses a problem that is too large to be drawn, before it is."""
    needed = _DRAWN * config.num_clients * config.client_size * config.dimension
    limit = memory.available()
    if limit is not None and needed > limit:
        raise ValueError(
            f"num_clients = {config.num_clients}, but to draw {config.client_size} "
            f"samples of {config.dimension} numbers for each takes about "
            f"{memory.size(needed)} of memory, and there are {memory.size(limit)}: "
            f"take at most {int(config.num_clients * limit / needed)} clients, or "
            "fewer samples."
        )


def _given(config: Config, names: Iterable[str]) -> dict[str, Any]:
    """The fields of these names that are set."""
    values = {name: getattr(config, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _inputs(shape: Any, dtype: Any, classes: int | None) -> dict[str, Any]:
    """What a model sees and answers; None: there is no model."""
    shape = None if shape is None else list(shape)
    return {"input_shape": shape, "input_dtype": dtype, "classes": classes}


def _everything(clients: ClientData) -> Batch:
    """All samples of all clients; every client has as many."""
    every = jax.vmap(clients.full)(jnp.arange(clients.num_clients))
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), every)
    return flat._replace(mask=None)


def _evenly(batch: Batch, number: int) -> Batch:
    total = len(batch.targets)
    rows = np.arange(min(number, total)) * total // min(number, total)
    return jax.tree.map(lambda x: x[rows], batch)
