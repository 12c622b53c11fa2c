"""Our own contestant: rounds of an algorithm, timed on request.

Run by the benchmarks. Reads requests, one JSON object per line, and answers each with
one line: `{"prepare": ..., "capacity": n, "reach": bool}`, `{"rounds": n}`, and
`{"result": true}` for the model's norm, test loss and peak memory.
"""

import json
import pathlib
import sys
import time

import jax
import numpy as np
import optax

import afga_jax
from afga_jax import data
from afga_jax.rounds import needed
from afga_jax.training.evaluate import evaluate
from benchmarks.problem import problem


class Contestant:
    """An algorithm at work.

    Args:
      prepare: Arguments of `problem`.
      capacity: The largest number of rounds that is asked for at once.
      reach: False computes also the gradients that no upload sees.
    """

    def __init__(self, prepare, capacity=1, reach=True):
        if not reach:
            _compute_all()
        self.problem = problem(**prepare)
        self._key = jax.random.key(0)
        self._before = memory(reset=True)
        self._trainer = afga_jax.Trainer(
            self.problem.algorithm,
            self.problem.execution,
            capacity=capacity,
            donate=True,
        )
        self._state = self._trainer.init(self._key)
        self._gradients = self._planned = self._rounds = 0
        self.engine = str(self._trainer.choose(self._key, self.problem.clients))

    def run(self, rounds: int) -> dict:
        """Seconds of some rounds, and the gradients that were computed."""
        start = time.perf_counter()
        self._state, info = self._trainer.run(
            self._key, self._state, self.problem.clients, rounds
        )
        jax.block_until_ready((self._state, info))
        seconds = time.perf_counter() - start
        gradients = int(info.needed.sum())
        self._gradients += gradients
        self._planned += int(info.gradients.sum())
        self._rounds += rounds
        return {"seconds": seconds, "gradients": gradients}

    def result(self) -> dict:
        """What became of the model, what was computed, and the peak memory in GB."""
        peak = memory()
        params = self._state.params
        batch = data.held_out(self.problem.dataset)
        return {
            "norm": float(optax.tree.norm(params)),
            "loss": float(evaluate(self.problem.task, self._state, batch)["loss"]),
            "parameters": int(sum(np.size(x) for x in jax.tree.leaves(params))),
            "gradients per round": self._gradients / max(self._rounds, 1),
            "planned per round": self._planned / max(self._rounds, 1),
            "engine": self.engine,
            "devices": jax.device_count(),
            "memory": peak,
            "memory beyond data": peak - self._before,
        }


def memory(*, reset: bool = False) -> float:
    """The process's peak memory in GB; with `reset`, its present one, and starts anew.

    Args:
      reset: Forget what was reached so far.
    """
    if reset:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    status = pathlib.Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1e6


def _compute_all() -> None:
    """Turns reach off, for the figure of the kernels alone; no user needs that."""
    needed.mask = lambda *_, **__: None


def serve(requests, answers) -> None:
    """Answers requests until there are no more."""
    contestant = None
    for line in requests:
        request = json.loads(line)
        if "prepare" in request:
            contestant = Contestant(**request)
            answer = {"engine": contestant.engine}
        elif "rounds" in request:
            answer = contestant.run(request["rounds"])
        else:
            answer = contestant.result()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
