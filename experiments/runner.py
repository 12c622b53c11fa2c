"""Trains one algorithm on one data set and prints how it goes; the mains are thin."""

import functools
import logging as standard_logging
import sys
import time
from collections.abc import Sequence

import jax
from absl import app, flags, logging

import afga_jax
from afga_jax import data, models

_OPTIONS = (
    "num_clusters",
    "participation",
    "local_steps",
    "local_lr",
    "server_lr",
    "eps",
    "topology",
)


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags; None leaves the algorithm its own default."""
    text, whole, number = flags.DEFINE_string, flags.DEFINE_integer, flags.DEFINE_float
    text("algo", "afga", f"Algorithm: {', '.join(afga_jax.ALGORITHMS)}.", values)
    text("dataset", None, "Data set; left alone, digits stand in if need be.", values)
    text("data_dir", None, "Folder of TFDS's sets; or TFDS_DATA_DIR.", values)
    text("cache_dir", None, "Folder of decoded sets; or AFGA_CACHE_DIR.", values)
    flags.DEFINE_bool("offline", None, "Leave the network alone.", values)
    text("partition", "dirichlet", "How samples are dealt to clients.", values)
    number("alpha", 0.6, "Dirichlet's concentration.", flag_values=values)
    whole("num_clients", 50, "N.", flag_values=values)
    whole("batch_size", 50, "Samples per local step.", flag_values=values)
    whole("rounds", 100, "R.", flag_values=values)
    whole("eval_every", 10, "Rounds between evaluations.", flag_values=values)
    whole("seed", 0, "Of everything but the partition.", flag_values=values)
    whole("partition_seed", 0, "Of the partition.", flag_values=values)
    whole("width", 64, "Of the ConvMixer.", flag_values=values)
    whole("depth", 4, "Of the ConvMixer.", flag_values=values)
    whole("num_clusters", None, "K.", flag_values=values)
    number("participation", None, "M/N.", flag_values=values)
    whole("local_steps", None, "Local steps per round.", flag_values=values)
    number("local_lr", None, "Local learning rate.", flag_values=values)
    number("server_lr", None, "Server learning rate.", flag_values=values)
    number("eps", None, "Of the adaptive server.", flag_values=values)
    text("topology", None, "Who mixes with whom.", values)


def train(values: flags.FlagValues, default_dataset: str) -> None:
    """Runs what the flags say and prints a line per evaluation."""
    access = data.Access(
        data_dir=values.data_dir, cache_dir=values.cache_dir, offline=values.offline
    )
    dataset, note = data.load_or_digits(values.dataset, default_dataset, access)
    if note:
        print(f"note: {note}", file=sys.stderr)
    deal = {"alpha": values.alpha} if "dirichlet" in values.partition else {}
    held = data.partition.build(
        values.partition,
        dataset.train_targets,
        values.num_clients,
        seed=values.partition_seed,
        **deal,
    )
    clients = data.from_dataset(
        dataset,
        held,
        batch_size=values.batch_size,
        augment=dataset.name.startswith("cifar"),
    )
    shape = dataset.train_inputs.shape[1:]
    model = models.create(
        "convmixer",
        dataset.num_classes,
        width=values.width,
        depth=values.depth,
        patch=4 if shape[0] >= 28 else 2,
    )
    task = models.classifier(model, shape)
    given = {name: values[name].value for name in _OPTIONS}
    algorithm = afga_jax.build(
        values.algo,
        task,
        num_clients=values.num_clients,
        **{name: value for name, value in given.items() if value is not None},
    )
    print(
        f"{values.algo} on {dataset.name}, {values.num_clients} clients, "
        f"{values.rounds} rounds, ConvMixer of width {values.width} and depth "
        f"{values.depth}, {jax.default_backend()}"
    )
    _report(algorithm, task, clients, data.held_out(dataset), values)


def run(default_dataset: str) -> None:
    """Entry point of a main: flags, then training; a user's mistake is one line."""
    define_flags(flags.FLAGS)
    logging.set_verbosity(logging.WARNING)
    plain = standard_logging.Formatter("note: %(message)s")
    logging.get_absl_handler().setFormatter(plain)

    def main(arguments: Sequence[str]) -> int:
        if len(arguments) > 1:
            print(f"error: {arguments[1]!r} is not a flag.", file=sys.stderr)
            return 2
        try:
            train(flags.FLAGS, default_dataset)
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nstopped.", file=sys.stderr)
            return 130
        return 0

    app.run(main)


def _report(algorithm, task, clients, test, values) -> None:
    key = jax.random.key(values.seed)
    trainer = afga_jax.Trainer(algorithm, capacity=values.eval_every)
    evaluate = jax.jit(functools.partial(afga_jax.evaluate, task))
    state, done, started = trainer.init(key), 0, time.perf_counter()
    while done < values.rounds:
        now = min(values.eval_every, values.rounds - done)
        state, info = trainer.run(key, state, clients, now)
        done += now
        result = evaluate(state.params, state.stats, test)
        spent = time.perf_counter() - started
        print(
            f"round {done:4}  train loss {info.loss.mean():.4f}  test loss "
            f"{result['loss']:.4f}  accuracy {100 * result['accuracy']:.2f} %  "
            f"{spent:.0f} s",
            flush=True,
        )
