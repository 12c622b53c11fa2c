"""What a GPU or TPU would run: rounds compiled for devices that are not there.

    python -m benchmarks.accelerators --target=a6000            # or h100, tpu-v5e
    python -m benchmarks.accelerators --target=a6000 --list     # the cases
    python -m benchmarks.accelerators --target=a6000 --only afga-convmixer-dense
    python -m benchmarks.accelerators --report                  # write the page again

XLA's own compilers for CUDA and TPU run on any machine. Their program of a round is
read and counted: kernels that a local step starts, copies, library calls, bytes that it
moves, and memory. From that and the device's data sheet follows an estimate of the
seconds of a round. Nothing here is measured on a device.

The compilers live in an environment of their own, made on first use (about 6 GB). A
compilation takes half a minute to several minutes; each is kept under
`benchmarks/.compiled` by the program that was compiled, so that a run that was broken
off goes on. Results are in `results/accelerators.md` and `.json`.
"""

import argparse
import json
import pathlib
import subprocess
from typing import Any

from benchmarks import environments, targets
from benchmarks.accelerators_report import page

HERE = pathlib.Path(__file__).parent
KEPT = HERE / ".compiled"
RESULTS = HERE / "results"

ONE = {"num_clients": 100, "active": 5}  # AFGA's Setting 1
TWO = {"num_clients": 50}  # its Setting 2, in which as many compute
HAFED = {"num_clients": 32, "active": 8, "num_clusters": 4, "local_steps": 48}
ENGINES = ("dense", "span")


def _case(algorithm: str, model: str, engine: str, **options: Any) -> dict[str, Any]:
    return {"algorithm": algorithm, "model": model, "engine": engine, **options}


def _afga(model: str, engine: str, **options: Any) -> dict[str, Any]:
    return _case("afga", model, engine, **{**ONE, **options})


_FIRST = {f"afga-convmixer-{engine}": _afga("convmixer", engine) for engine in ENGINES}
_MODELS = {
    f"afga-{model}-{engine}": _afga(model, engine, **options)
    for model, options in (
        ("mlp", {}),
        ("lstm", {"local_steps": 100}),
        ("resnet18", {}),
    )
    for engine in ENGINES
}
_ALGORITHMS = {
    "cafga-convmixer-dense": _case("cafga", "convmixer", "dense", **ONE),
    "cafga-convmixer-span": _case("cafga", "convmixer", "span", **ONE),
    "hafed-convmixer-dense": _case("hafed", "convmixer", "dense", **HAFED),
    "fedamsgrad-convmixer-dense": _case("fedamsgrad", "convmixer", "dense", **ONE),
    "fedamsgrad-convmixer-span": _case("fedamsgrad", "convmixer", "span", **ONE),
    "scaffold-convmixer-dense": _case("scaffold", "convmixer", "dense", **ONE),
    "scaffold-convmixer-span": _case("scaffold", "convmixer", "span", **ONE),
}
# What fits into the papers' card: their settings, for one seed and for three at once.
_ROOM = {
    "afga-convmixer-bfloat16": _afga("convmixer", "dense", dtype="bfloat16"),
    "afga-convmixer-3-seeds": _afga("convmixer", "dense", seeds=3),
    "afga-convmixer-setting-2": _afga("convmixer", "dense", **TWO),
    "afga-convmixer-setting-2-3-seeds": _afga("convmixer", "dense", seeds=3, **TWO),
    "afga-convmixer-10000-clients": _afga("convmixer", "dense", num_clients=10_000),
}
_SHARED = {"afga-convmixer-clients:4": _afga("convmixer", "dense", mesh=4)}
#: Cases of each target, the most important first.
CASES = {
    "a6000": {**_FIRST, **_MODELS, **_ALGORITHMS, **_ROOM},
    "h100": _FIRST,
    "tpu-v5e": {**_FIRST, **_SHARED},
}


def main() -> None:
    arguments = _parse()
    if arguments.report:
        write(_figures())
        return
    cases = CASES[arguments.target]
    if arguments.list:
        print("\n".join(cases))
        return
    names = arguments.only or list(cases)
    if unknown := [name for name in names if name not in cases]:
        raise SystemExit(
            f"no case {', '.join(unknown)} for {arguments.target}; --list names them"
        )
    python, reason = environments.interpreter("accelerators")
    if python is None:
        raise SystemExit(f"the compilers cannot be installed: {reason}")
    failed = False
    for name in names:
        print(f"{arguments.target} {name}", flush=True)
        found = compiled(python, arguments.target, cases[name])
        # Another run may have added to them.
        figures = _figures()
        figures.setdefault(arguments.target, {})[name] = found
        failed |= "failed" in found
        write(figures)
        print(f"  {found.get('failed') or found['memory']}", flush=True)
    raise SystemExit(int(failed))


def compiled(python: pathlib.Path, target: str, case: dict[str, Any]) -> dict[str, Any]:
    """The figures of a case, or `failed` with the reason."""
    done = subprocess.run(
        [
            str(python),
            *("-m", "benchmarks.compile_round", target),
            *(json.dumps(case), str(KEPT)),
        ],
        cwd=HERE.parent,
        env=targets.environment(targets.TARGETS[target]),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return {"failed": environments.reason_of(done.stderr)}
    return json.loads(done.stdout)


def write(figures: dict[str, Any]) -> None:
    """Writes the figures and the page that is made from them."""
    RESULTS.mkdir(exist_ok=True)
    for name, text in {
        "accelerators.json": json.dumps(figures, indent=1) + "\n",
        "accelerators.md": page(figures, CASES),
    }.items():
        part = RESULTS / f"{name}.part"
        part.write_text(text)
        part.rename(RESULTS / name)


def _figures() -> dict[str, Any]:
    path = RESULTS / "accelerators.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", choices=list(targets.TARGETS), default="a6000")
    parser.add_argument("--only", type=lambda text: text.split(","), metavar="A,B")
    parser.add_argument("--list", action="store_true", help="say which cases there are")
    parser.add_argument("--report", action="store_true", help="only write the page")
    return parser.parse_args()


if __name__ == "__main__":
    main()
