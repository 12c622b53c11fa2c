"""All benchmarks in one command: a table against every peer, and the targets.

    python -m benchmarks.all                 # everything, about an hour and a half
    python -m benchmarks.all --only fedavg,mlp-100
    python -m benchmarks.all --missing       # what was not measured yet
    python -m benchmarks.all --list          # the sections and how long they take
    python -m benchmarks.all --quick         # does everything work?

Needs Fashion-MNIST and CIFAR-10 (`TFDS_DATA_DIR`), and a machine that does nothing
else. Peers' environments are made on first use (`python -m benchmarks.environments`); a
peer that cannot be had is reported with the reason. Sections are written to
`results/all.json` and `all.md` as they end, so that a run can be continued.
"""

import argparse
import json
import pathlib
import tempfile
import traceback

from benchmarks import measure, models, step
from benchmarks.report import report, section, targets
from benchmarks.sections import SECTIONS

HERE = pathlib.Path(__file__).parent
STEP = "step"
NAMES = (*SECTIONS, STEP)
MINUTES = {name: one.minutes for name, one in SECTIONS.items()} | {STEP: 3}


def main() -> None:
    arguments = parse()
    if arguments.list:
        for name in NAMES:
            title = SECTIONS[name].title if name in SECTIONS else "Client step"
            print(f"{name:<16}{MINUTES[name]:>4.0f} min  {title}")
        return
    folder = arguments.results
    if folder is None:
        quick = pathlib.Path(tempfile.gettempdir()) / "afga_jax-benchmarks"
        folder = quick if arguments.quick else HERE / "results"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "all.json"
    figures = json.loads(path.read_text()) if path.exists() else {"sections": {}}
    figures["machine"] = models.machine()
    names = arguments.only
    if arguments.missing:
        names = [name for name in names if name not in figures["sections"]]
    if not arguments.quick:
        print(f"about {sum(MINUTES[name] for name in names):.0f} minutes on idle cores")
    for name in names:
        print(f"{name}: about {MINUTES[name]:g} minutes", flush=True)
        found = run(name, arguments)
        if found is not None:
            figures["sections"][name] = found
            keep(figures, folder)
    print(f"written to {folder}/all.md")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=_names, default=list(NAMES), metavar="A,B")
    parser.add_argument("--missing", action="store_true", help="skip what is measured")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--quick", action="store_true", help="few steps, two laps")
    parser.add_argument("--repeats", type=int, help="laps, in place of the section's")
    parser.add_argument(
        "--passive",
        action="store_true",
        help="PyTorch's threads sleep while they wait; for busy machines",
    )
    parser.add_argument("--results", type=pathlib.Path, help="a folder")
    return parser.parse_args()


def run(name: str, arguments: argparse.Namespace) -> dict | None:
    """A section's figures, printed; None: it failed, which is printed too."""
    try:
        found = _run(name, arguments)
    except Exception:
        # One section's trouble is not the others'.
        traceback.print_exc()
        return None
    found["quick"] = arguments.quick
    print("\n".join(["", *section(name, found), ""]))
    print("\n".join(targets(name, found)), flush=True)
    return found


def keep(figures: dict, folder: pathlib.Path) -> None:
    """Writes what there is so far; sections in their own order."""
    measured = figures["sections"]
    ordered = {name: measured[name] for name in NAMES if name in measured}
    figures["sections"] = ordered
    (folder / "all.json").write_text(json.dumps(figures, indent=1) + "\n")
    (folder / "all.md").write_text(report(figures))


def _run(name: str, arguments: argparse.Namespace) -> dict:
    if name == STEP:
        return step.measure(arguments.repeats or (1 if arguments.quick else 5))
    chosen = SECTIONS[name]
    if arguments.quick:
        chosen = measure.quick(chosen)
    if arguments.repeats:
        chosen = measure.replaced(chosen, arguments.repeats)
    return measure.measure(chosen, passive=arguments.passive)


def _names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in NAMES:
            raise argparse.ArgumentTypeError(
                f"no section {name!r}; there are {', '.join(NAMES)}"
            )
    return names


if __name__ == "__main__":
    main()
