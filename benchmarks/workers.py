"""Processes that are compared: each does its work when asked, and they take turns.

A worker reads one JSON object per line and answers with another. Between two questions
it waits, so that contestants share a machine without disturbing each other, and a busy
moment of the machine hurts them alike.
"""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
# What is kept of the message of a worker that ended.
_TAIL = 400


class WorkerError(RuntimeError):
    """A worker ended, or answered with an error."""


class Worker:
    """A process that answers one line of JSON with another.

    Args:
      command: Its parts are turned into text.
      environment: Beside that of this process.
    """

    def __init__(self, command, environment=None):
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def ask(self, **request) -> dict:
        """The answer to a request; lines that are no JSON are the peer's own talk."""
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._message()) from None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise WorkerError(self._message())

    def _message(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        text = self._errors.read().strip()
        last = text.splitlines()[-1] if text else "no message"
        return f"ended with {self._process.returncode}: {last[:_TAIL]}"


class Contest:
    """Workers by name, of which some may fail and then drop out with the reason.

    Use as a context; all workers end with it.
    """

    def __init__(self):
        self._stack = contextlib.ExitStack()
        self.workers: dict[str, Worker] = {}
        self.missing: dict[str, str] = {}
        self.loads = [os.getloadavg()[0]]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.loads.append(os.getloadavg()[0])
        return self._stack.__exit__(*error)

    def enter(self, name, command, environment=None, reason=None) -> None:
        """Starts a worker, or notes why there is none."""
        if reason:
            self.missing[name] = reason
            return
        worker = Worker(command, environment)
        self.workers[name] = self._stack.enter_context(worker)

    def ask(self, name, **request) -> dict | None:
        """A worker's answer; None: it dropped out."""
        if name not in self.workers:
            return None
        try:
            return self.workers[name].ask(**request)
        except WorkerError as error:
            del self.workers[name]
            self.missing[name] = str(error)
            print(f"  {name} {error}", flush=True)
            return None

    def ask_all(self, **request) -> dict[str, dict]:
        """Everybody's answers, one after another."""
        answers = {name: self.ask(name, **request) for name in list(self.workers)}
        return {name: answer for name, answer in answers.items() if answer is not None}

    def laps(
        self, repeats: int, rounds: int, *, per_gradient: bool = False
    ) -> dict[str, list[float]]:
        """Seconds per round or gradient, by contestant; repeats are interleaved.

        Args:
          repeats: Laps of each.
          rounds: Of one lap.
          per_gradient: Divide a lap by the gradients that it computed; who computed
            none drops out.
        """
        laps = {name: [] for name in self.workers}
        for _ in range(repeats):
            for name, answer in self.ask_all(rounds=rounds).items():
                count = answer["gradients"] if per_gradient else rounds
                if count:
                    laps[name].append(answer["seconds"] / count)
        for name in [n for n in self.workers if len(laps[n]) < repeats]:
            del self.workers[name]
            self.missing[name] = "a lap had no gradient that reaches an upload"
        return {name: laps[name] for name in self.workers}


def summary(laps: list[float]) -> dict[str, float]:
    """Median and spread of some laps."""
    return {
        "median": statistics.median(laps),
        "least": min(laps),
        "most": max(laps),
        "laps": [round(lap, 6) for lap in laps],
    }


def ratio(laps: list[float], base: list[float]) -> dict[str, float]:
    """How many times as long as `base`: lap by lap, since those share a moment."""
    return summary([a / b for a, b in zip(laps, base, strict=True)])
