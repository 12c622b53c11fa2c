"""The lowered round and the results of every algorithm, kept to compare with later.

    python tests/programs.py store FOLDER     # before a change
    python tests/programs.py compare FOLDER   # after it

For each case and each engine that can run it: the lowered round as text, without what
names change (locations, names of results and of inner functions), and the state and
diagnostics after two rounds in float64. `compare` exits with 1 where a program changed
and its results differ by more than 1e-12, relative to the largest number of an array.
"""

import os
import re
import sys
import warnings
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

import jax  # noqa: E402
import numpy as np  # noqa: E402

import afga_jax  # noqa: E402
import conftest  # noqa: E402, F401  # before JAX: quick compilation
import toy  # noqa: E402
from afga_jax.rounds import span  # noqa: E402
from afga_jax.rounds.client_step import is_stateful  # noqa: E402
from afga_jax.training.planner import Planner  # noqa: E402

CLIENTS, KEY, ROUNDS, TOLERANCE = 12, 3, 2, 1e-12
SOME = {"active": 4, "local_steps": 4, "local_lr": 0.3, "num_clusters": 1}
UNEQUAL = {
    "active": None,
    "participation": 0.3,
    "clustering": [0] * 3 + [1] * 5 + [2] * 4,
}

#: Every algorithm with one or two clusters, and choices that change the program.
CASES = {
    **{name: (name, {}) for name in afga_jax.ALGORITHMS},
    **{
        f"{name} in clusters": (name, {"num_clusters": 2})
        for name in ("cafga", "cafga_adapted", "hafed", "hafed_partial", "fedcluster")
    },
    "torus": ("afga", {"topology": "torus"}),
    "exponential": ("afga", {"topology": "exponential"}),
    "star": ("afga", {"topology": "star", "mixing_order": "before"}),
    "complete": ("afga", {"topology": "complete"}),
    "random": ("afga", {"topology": "random"}),
    "unequal": ("cafga", UNEQUAL),
    "unequal fedcluster": ("fedcluster", UNEQUAL),
    "every second": ("afga", {"mix_every": 2}),
    "adam": ("afga", {"local_optimizer": "adam"}),
    "full batch": ("afga", {"full_batch": True}),
    "client steps": ("fedavg", {"client_steps": [1, 2, 3, 4] * 3}),
    "pga in clusters": ("pga", {"num_clusters": 2, "pga_period": 3}),
    "hafed_active, every second": (
        "hafed_active",
        {"num_clusters": 2, "mix_every": 2},
    ),
    "by size": ("fedavg", {"weighting": "size"}),
}


def main(command: str, folder: Path) -> int:
    """Stores all cases, or says how they differ from stored ones."""
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")  # of selected clients that have nobody to mix with
    identical, equal, other = [], {}, {}
    for name, (text, arrays) in all_cases():
        place = folder / re.sub(r"[^a-z_]+", "-", name)
        if command == "store":
            folder.mkdir(parents=True, exist_ok=True)
            place.with_suffix(".mlir").write_text(text)
            np.savez(place.with_suffix(".npz"), *arrays)
            continue
        if not place.with_suffix(".mlir").exists():
            other[name] = np.inf
            continue
        stored = np.load(place.with_suffix(".npz"))
        apart = difference(arrays, [stored[f"arr_{n}"] for n in range(len(stored))])
        if place.with_suffix(".mlir").read_text() == text:
            identical.append(name)
        else:
            (equal if apart <= TOLERANCE else other)[name] = apart
    if command == "store":
        return 0
    print(f"{len(identical)} identical, {len(equal)} equal, {len(other)} different")
    for name, apart in {**equal, **other}.items():
        print(f"  {'equal' if name in equal else 'DIFFERENT'}  {name}: {apart:.1e}")
    return int(bool(other))


def all_cases():
    """Names of cases with their engine, and what `store` keeps of each."""
    for name, (algorithm, options) in CASES.items():
        task = toy.logistic(norm=not options.get("full_batch"))
        built = afga_jax.build(
            algorithm, task, num_clients=CLIENTS, **{**SOME, **options}
        )
        params, _ = jax.eval_shape(task.init, jax.random.key(0))
        for engine in ("dense", "span"):
            if engine == "dense" or span.reason_against(built.recipe, params) is None:
                yield f"{name}, {engine}", program(built, engine)


def program(algorithm, engine: str) -> tuple[str, list[np.ndarray]]:
    """The lowered round, and all arrays after two rounds."""
    key, clients = jax.random.key(KEY), data_of(algorithm)
    state = jax.jit(algorithm.init)(key)
    stateful = is_stateful(algorithm.recipe, state.params)
    width = 2 if engine == "span" else None
    planner = Planner(algorithm, width, stateful=stateful)
    plans = planner(key, range(ROUNDS))
    run, text, infos = jax.jit(algorithm.round), "", []
    for number in range(ROUNDS):
        plan, schedule = jax.tree.map(lambda x: x[number], plans)  # noqa: B023
        if not number:
            text = canonical(run.lower(key, state, clients, plan, schedule).as_text())
        state, info = run(key, state, clients, plan, schedule)
        infos.append(info)
    # Numbers such as learning rates are what it was given.
    kept = jax.tree.leaves(jax.device_get((state.replace(numbers={}), infos)))
    return text, [np.asarray(x, np.float64) for x in kept]


def data_of(algorithm):
    clients = toy.clients(CLIENTS, sizes=np.arange(CLIENTS) % 4 + 3)
    return clients.pooled() if algorithm.recipe.pooled else clients


def canonical(text: str) -> str:
    """A program's text without the names that people gave."""
    text = re.sub(r' *\{?jax\.result_info = "[^"]*"\}?', "", text)
    text = re.sub(r"loc\([^)]*\)", "", text)
    names: dict[str, str] = {}

    def renamed(found: re.Match) -> str:
        return names.setdefault(found[0], f"@f{len(names)}")

    return re.sub(r"@[\w.$-]+", renamed, text)


def difference(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest, relative to the largest number of the same array.

    What is zero but for rounding, such as the spread of equal models, counts as zero.
    """
    if [x.shape for x in found] != [x.shape for x in expected]:
        return np.inf
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        scale = max(np.abs(b).max(initial=0), 1e-15)
        worst = max(worst, float(np.abs(a - b).max(initial=0) / scale))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
