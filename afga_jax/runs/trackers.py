"""Who else is told how a run goes: TensorBoard, Weights & Biases, MLflow, your own.

A tracker copies what a run's folder holds, and nothing depends on it: one that fails is
said once and then left alone (`Record`). As TensorBoard shows every seed as a run of
its own, so do the others. Where their runs are called what is noted in `trackers.json`
in the run's folder, so that who goes on goes on there.
"""

import importlib.util
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from afga_jax import checks
from afga_jax.runs import record
from afga_jax.runs.record import Row

# Where the runs of all folders are found together, unless the environment says.
_PROJECT = "afga-jax"
# Seconds that a run waits for Weights & Biases at its start, and at its end.
_PATIENCE = 30.0
# One request may take 20 s; by default it is tried for minutes.
_MLFLOW = {
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
}
# Settings in one request: MLflow takes no more.
_AT_ONCE = 100


class Tracker(Protocol):
    """What a tracker of one's own has to have; what its methods raise stops no run.

    >>> class Printed:
    ...     def begin(self, settings, rows):
    ...         print("algorithm:", settings["algo"])
    ...     def write(self, rows):
    ...         print([row["test_accuracy"] for row in rows])
    ...     def attach(self, paths): ...
    ...     def close(self, finished): ...
    >>> tracker: Tracker = Printed()
    >>> tracker.begin({"algo": "afga"}, [])
    algorithm: afga
    """

    def begin(self, settings: Mapping[str, Any], rows: Sequence[Row]) -> None:
        """A run starts, or goes on.

        Args:
          settings: All settings of the run by their names, as in `config.json`.
          rows: What was measured before, in a run that goes on.
        """

    def write(self, rows: Sequence[Row]) -> None:
        """A round was evaluated.

        Args:
          rows: A line of `metrics.jsonl` for each seed: `seed`, `round`, and numbers;
            None where one is not finite.
        """

    def attach(self, paths: Sequence[Path]) -> None:
        """A run has come to its end: its `curves.png`, every client's `clients.npz`."""

    def close(self, finished: bool) -> None:
        """The run ends, or stops to be resumed."""


class TensorBoard:
    """Event files in a run's folder, written again from the metrics by who goes on."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._writers: dict[int, Any] = {}

    def begin(self, settings: Mapping[str, Any], rows: Sequence[Row]) -> None:
        shutil.rmtree(self.folder / record.EVENTS, ignore_errors=True)
        self.write(rows)

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._write(row)
        for writer in self._writers.values():
            writer.flush()

    def attach(self, paths: Sequence[Path]) -> None:
        """They are in the same folder."""

    def close(self, finished: bool) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def _write(self, row: Row) -> None:
        # Only who writes events waits for these.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        # Without the thread of tensorboardX's own writer: where the disk is full, it
        # dies, and whoever writes waits for it for ever.
        values = [Summary.Value(tag=k, simple_value=v) for k, v in numbers(row).items()]
        event = Event(
            step=row["round"], wall_time=time.time(), summary=Summary(value=values)
        )
        if row["seed"] not in self._writers:
            folder = self.folder / record.EVENTS / f"seed_{row['seed']}"
            folder.mkdir(parents=True, exist_ok=True)
            self._writers[row["seed"]] = EventsWriter(str(folder / "events"))
        self._writers[row["seed"]].write_event(event)


class WandB:
    """Weights & Biases: a run for each seed, all of them in one group."""

    package = "wandb"

    def __init__(self, folder: Path):
        self._folder = folder.absolute()
        self._runs: dict[int, Any] = {}

    def begin(self, settings: Mapping[str, Any], rows: Sequence[Row]) -> None:
        import wandb

        ids = _Ids(self._folder, self.package)
        own = {"console": "off", "quiet": True}
        own |= {"init_timeout": _PATIENCE, "finish_timeout": _PATIENCE}
        unset = {k: v for k, v in own.items() if f"WANDB_{k.upper()}" not in os.environ}
        for seed in _seeds(settings):
            known = ids.get(seed)
            run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", _PROJECT),
                group=self._folder.name,
                name=_name(self._folder, settings, seed),
                id=known or ids.put(seed, secrets.token_hex(4)),
                resume="allow" if known else None,
                # Several seeds, or cells of a sweep, are open at once.
                reinit="create_new",
                settings=wandb.Settings(**unset),
            )
            run.config.update(_known(settings), allow_val_change=True)
            self._runs[seed] = run
        self.write(rows)

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            run = self._runs[row["seed"]]
            # What it was sent before it was stopped, it has.
            if row["round"] >= run.starting_step:
                run.log(numbers(row), step=row["round"])

    def attach(self, paths: Sequence[Path]) -> None:
        import wandb

        run = next(iter(self._runs.values()))
        for path in paths:
            if path.suffix == ".png":
                run.log({path.stem: wandb.Image(str(path))})
            else:
                run.log_artifact(str(path))

    def close(self, finished: bool) -> None:
        while self._runs:
            _, run = self._runs.popitem()
            run.finish(exit_code=0 if finished else 1)


class MLflow:
    """MLflow: a run for each seed, on the server or in the folder that is set up."""

    package = "mlflow"

    def __init__(self, folder: Path):
        self._folder = folder.absolute()
        self._client: Any = None
        self._runs: dict[int, str] = {}
        self._last: dict[int, int] = {}

    def begin(self, settings: Mapping[str, Any], rows: Sequence[Row]) -> None:
        for name, value in _MLFLOW.items():  # it takes these from there only
            os.environ.setdefault(name, value)
        import mlflow

        # Its small package cannot write the data base that is its default.
        small = importlib.util.find_spec("sqlalchemy") is None
        unset = small and not mlflow.is_tracking_uri_set()
        self._client = mlflow.MlflowClient("mlruns" if unset else None)
        ids = _Ids(self._folder, self.package)
        for seed in _seeds(settings):
            name = _name(self._folder, settings, seed)
            known = ids.get(seed) or ids.put(seed, self._create(name))
            self._settle(seed, known, _known(settings))
        self.write(rows)

    def write(self, rows: Sequence[Row]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        for row in rows:
            if row["round"] > self._last[row["seed"]]:
                values = {**numbers(row), "round": row["round"]}
                metrics = [Metric(k, v, now, row["round"]) for k, v in values.items()]
                self._client.log_batch(self._runs[row["seed"]], metrics=metrics)

    def attach(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._client.log_artifact(next(iter(self._runs.values())), str(path))

    def close(self, finished: bool) -> None:
        while self._runs:
            _, run = self._runs.popitem()
            self._client.set_terminated(run, "FINISHED" if finished else "KILLED")

    def _create(self, name: str) -> str:
        project = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        client = self._client
        there = client.get_experiment_by_name(project)
        place = there.experiment_id if there else client.create_experiment(project)
        return client.create_run(place, run_name=name).info.run_id

    def _settle(self, seed: int, run: str, settings: Mapping[str, Any]) -> None:
        """Sends the settings, and asks how far the run had come."""
        from mlflow.entities import Param

        self._client.update_run(run, status="RUNNING")
        data = self._client.get_run(run).data
        texts = {name: str(value) for name, value in settings.items()}
        new = [Param(k, v) for k, v in texts.items() if k not in data.params]
        for start in range(0, len(new), _AT_ONCE):
            self._client.log_batch(run, params=new[start : start + _AT_ONCE])
        for name in data.params:
            # A parameter cannot change there, as the rounds of a run that has more do.
            if texts.get(name, data.params[name]) != data.params[name]:
                self._client.set_tag(run, name, texts[name])
        self._runs[seed] = run
        self._last[seed] = int(data.metrics.get("round", -1))


#: By the names that a run is given.
TRACKERS: dict[str, Callable[[Path], Tracker] | None] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
    "none": None,
}


def named(name: str, folder: Path) -> Tracker | None:
    """A tracker by its name; `none` is None.

    Args:
      name: One of `TRACKERS`.
      folder: The run's folder.

    Raises:
      ValueError: There is no such tracker, or its package is not installed.
    """
    checks.choice("tracker", name, TRACKERS)
    make = TRACKERS[name]
    package = getattr(make, "package", None)
    if package is not None and importlib.util.find_spec(package) is None:
        raise ValueError(
            f"tracker = {name!r}, but its package is not installed: pip install "
            f"{package}, or choose another of {', '.join(TRACKERS)}."
        )
    return make and make(folder)


def numbers(row: Row) -> dict[str, float]:
    """What was measured, but for what is not finite.

    >>> numbers({"seed": 0, "round": 5, "test_loss": 0.5, "consensus": None})
    {'test_loss': 0.5}
    """
    own = ("seed", "round")
    return {k: v for k, v in row.items() if k not in own and v is not None}


class _Ids:
    """How the runs of the seeds are called elsewhere, in a file of the folder."""

    def __init__(self, folder: Path, package: str):
        self._path, self._package = folder / record.TRACKERS, package
        text = self._path.read_text() if self._path.exists() else "{}"
        self._all: dict[str, dict[str, str]] = json.loads(text)
        self._own = self._all.setdefault(package, {})

    def get(self, seed: int) -> str | None:
        return self._own.get(str(seed))

    def put(self, seed: int, name: str) -> str:
        self._own[str(seed)] = name
        record.write_json(self._path, self._all)
        return name


def _seeds(settings: Mapping[str, Any]) -> range:
    return range(settings["seed"], settings["seed"] + settings["num_seeds"])


def _name(folder: Path, settings: Mapping[str, Any], seed: int) -> str:
    return f"{folder.name} seed {seed}" if settings["num_seeds"] > 1 else folder.name


def _known(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that have a value."""
    return {name: value for name, value in settings.items() if value is not None}
