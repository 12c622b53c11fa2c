"""What is measured: sections of contestants that take turns, and what they should show.

Data only; `benchmarks.measure` runs a section and `benchmarks.report` prints it.
"""

import dataclasses
from typing import Any, NamedTuple

ONE, PER_CORE = 1, None
# One process with all cores, or one per core with one thread each.
TORCHRUN = "torchrun"


class Ours(NamedTuple):
    """This package.

    Attributes:
      options: Beside the section's work, for `benchmarks.problem.problem`.
      devices: `ONE` that owns all cores, or `PER_CORE`.
      reach: False computes also what no upload sees.
    """

    options: dict[str, Any]
    devices: int | None = PER_CORE
    reach: bool = True


class Peer(NamedTuple):
    """Somebody else's code, in an environment of its own.

    Attributes:
      environment: A name of `benchmarks.environments.PACKAGES`.
      module: In `benchmarks.peers`.
      launcher: None, or `TORCHRUN` for one process per core.
    """

    environment: str
    module: str
    launcher: str | None = None


class Ratio(NamedTuple):
    """A target: how many times as long `slow` takes as `fast`, lap by lap.

    Attributes:
      slow: A contestant.
      fast: Another.
      at_least: The target; None: there is no such bound.
      at_most: Likewise.
    """

    slow: str
    fast: str
    at_least: float | None = None
    at_most: float | None = None


class Bound(NamedTuple):
    """A target: a figure of one contestant is below a bound."""

    name: str
    figure: str
    below: float


@dataclasses.dataclass(frozen=True)
class Section:
    """One table.

    Attributes:
      title: What is compared.
      work: Common to all contestants, for `benchmarks.problem.problem`.
      contestants: By name.
      minutes: About how long it takes on two idle cores, environments made.
      repeats: Laps of each.
      rounds: Of one lap.
      per_gradient: Times are per computed gradient, not per round.
      targets: What it should show.
      note: What a reader must know.
    """

    title: str
    work: dict[str, Any]
    contestants: dict[str, Ours | Peer]
    minutes: float
    repeats: int = 5
    rounds: int = 4
    per_gradient: bool = False
    targets: tuple[Ratio | Bound, ...] = ()
    note: str = ""


HERE, HERE_ONE = "afga_jax, device per core", "afga_jax, one device"
PFL_ONE, PFL_TWO = "pfl-research, all threads", "pfl-research, process per core"
PLAIN, FLOWER, FEDJAX = "PyTorch loop", "Flower", "fedjax"
TORCH, KERNELS, REACH = "PyTorch, [N, d] tensor", "kernels", "kernels + reach"
SPAN, WAVE = "kernels + reach + span", "kernels + reach + span + device per core"
AMSGRAD = "FedAMSGrad (afga_jax)"

_AFGA = {"algorithm": "afga", "num_clients": 100, "active": 5}
_MLP = {**_AFGA, "model": "mlp-100", "partition": "overlap"}


def _fedavg() -> Section:
    others = (PLAIN, PFL_ONE, FLOWER, FEDJAX)
    return Section(
        "FedAvg: 29k CNN, Fashion-MNIST, N=100, 10 clients, 24 steps, batch 50",
        {"algorithm": "fedavg", "model": "cnn", "num_clients": 100, "active": 10},
        {
            HERE: Ours({}),
            HERE_ONE: Ours({}, ONE),
            PFL_TWO: Peer("pfl", "pfl_fedavg", TORCHRUN),
            PFL_ONE: Peer("pfl", "pfl_fedavg"),
            PLAIN: Peer("torch", "torch_fedavg"),
            FLOWER: Peer("flower", "flower_fedavg"),
            FEDJAX: Peer("fedjax", "fedjax_fedavg"),
        },
        minutes=6,
        rounds=2,
        targets=(
            Ratio(PFL_TWO, HERE, at_least=1.1),
            *(Ratio(peer, HERE, at_least=1.3) for peer in others),
        ),
        note="All draw the same batches, so all should end in the same model.",
    )


def _convmixer(model: str, minutes: float, aim: float, **options) -> Section:
    return Section(
        f"AFGA: {model}, CIFAR-10, N=100, M=5, ring, 24 steps, batch 50",
        {**_AFGA, "model": model},
        {
            WAVE: Ours({"engine": "span"}),
            SPAN: Ours({"engine": "span"}, ONE),
            REACH: Ours({"engine": "dense"}, ONE),
            KERNELS: Ours({"engine": "dense"}, ONE, reach=False),
            AMSGRAD: Ours({"algorithm": "fedamsgrad"}),
            TORCH: Peer("torch", "torch_afga"),
        },
        minutes=minutes,
        targets=(Ratio(TORCH, WAVE, at_least=aim), Ratio(WAVE, AMSGRAD, at_most=1.0)),
        note="PyTorch computes all 120 gradients of a round, as `kernels` does; "
        "`reach` leaves out those that no upload sees; `span` keeps increments in "
        "place of models; with a device per core its slots run side by side.",
        **options,
    )


def _mlp(num_clients: int, minutes: float, aim: float, **options) -> Section:
    contestants = {
        HERE: Ours({}),
        SPAN: Ours({"engine": "span"}, ONE),
        TORCH: Peer("torch", "torch_afga"),
    }
    contestants[KERNELS] = Ours({"engine": "dense"}, ONE, reach=False)
    # Each holds everybody's model twice: 6.4 GB at N=10,000.
    if num_clients <= 1000:
        contestants[REACH] = Ours({"engine": "dense"}, ONE)
    return Section(
        f"AFGA: MLP 784-100-10, Fashion-MNIST, N={num_clients:,}, M=5, ring",
        {**_MLP, "num_clients": num_clients},
        contestants,
        minutes=minutes,
        targets=(Ratio(TORCH, HERE, at_least=aim),),
        note="The first line leaves the choice of the engine to `auto`. PyTorch and "
        "`kernels` compute all 120 gradients of a round, the others only those that "
        "reach an upload, which at large N are few (see the column of gradients). Only "
        "`kernels` against PyTorch is the same work done faster or slower.",
        **options,
    )


def _sweep(title: str, option: str, values, **options) -> Section:
    named = {f"{option}={value}": Ours({option: value}) for value in values}
    return Section(title, _MLP, named, minutes=3, **options)


SECTIONS = {
    "fedavg": _fedavg(),
    "convmixer-64-4": _convmixer("convmixer-64-4", 7, 2.0, rounds=2),
    "convmixer-256-8": _convmixer("convmixer-256-8", 35, 1.7, rounds=1, repeats=3),
    "mlp-100": _mlp(100, 2, 2.0, rounds=16),
    "mlp-1000": _mlp(1000, 3, 10.0, rounds=8),
    "mlp-10000": _mlp(10_000, 7, 80.0, rounds=2),
    "clients": Section(
        "Cost against N at M=5: AFGA, ring, MLP 784-100-10",
        _MLP,
        {
            f"N={count:,}": Ours({"num_clients": count})
            for count in (100, 1000, 10_000, 100_000, 1_000_000)
        },
        minutes=4,
        rounds=16,
        targets=(Ratio("N=100,000", "N=100", at_most=2.0),),
        note="**The rounds do not compute the same number of gradients.** With M "
        "fixed, ever fewer of them reach an upload as N grows, and those that do not "
        "are left out: see the column of gradients. This is the cost of a round as it "
        "is run; the section `participation` has the cost of a gradient.",
    ),
    "participation": Section(
        "Cost against N at 1 % participation: AFGA, ring, MLP 784-100-10",
        _MLP,
        {
            f"N={count:,}, M={count // 100:,}": Ours(
                {"num_clients": count, "active": count // 100}
            )
            for count in (1000, 10_000, 100_000)
        },
        minutes=8,
        repeats=3,
        # A round of few clients computes few gradients, at times none.
        rounds=8,
        per_gradient=True,
        targets=(Ratio("N=100,000, M=1,000", "N=1,000, M=10", at_most=1.5),),
    ),
    "million": Section(
        "A million clients: AFGA, ring, MLP 784-100-10, N=1,000,000, M=1,000",
        _MLP,
        {
            HERE: Ours({"num_clients": 1_000_000, "active": 1000}),
            HERE_ONE: Ours({"num_clients": 1_000_000, "active": 1000}, ONE),
        },
        minutes=6,
        repeats=2,
        rounds=1,
        targets=(
            Bound(HERE, "memory beyond data", 2.0),
            Bound(HERE_ONE, "memory beyond data", 2.0),
        ),
        note="Every device holds the data and the uploads, so two take more memory.",
    ),
    "local_steps": _sweep(
        "Cost against the local steps: AFGA, ring, MLP 784-100-10, N=100, M=5",
        "local_steps",
        (6, 12, 24, 48),
        rounds=16,
    ),
    "active": _sweep(
        "Cost against M: AFGA, ring, MLP 784-100-10, N=100",
        "active",
        (1, 2, 5, 10, 20),
        rounds=16,
    ),
    "model_size": _sweep(
        "Cost against the model's size: AFGA, ring, MLP 784-h-10, N=100, M=5",
        "model",
        ("mlp-25", "mlp-100", "mlp-400", "mlp-1600"),
        rounds=8,
    ),
}
