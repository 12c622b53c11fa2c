"""What devices send each other, read from a compiled program."""

import functools
import re
from typing import NamedTuple

import jax

from afga_jax.mesh import CLIENTS, make_mesh
from afga_jax.rounds.client_blocks import can_be_split, split
from afga_jax.rounds.execution import Execution
from afga_jax.training.placement import placement

_NAMES = ("all-gather", "all-reduce", "all-to-all", "collective-permute")
_NAMES += ("reduce-scatter",)
_BYTES = {"f64": 8, "f32": 4, "s64": 8, "s32": 4, "u32": 4, "pred": 1}


class Collective(NamedTuple):
    """One collective operation; `looped`: inside a loop of the program."""

    name: str
    bytes: int
    looped: bool


def one_round(algorithm, data, key, devices):
    """A round of the dense engine, compiled for a mesh of so many devices."""
    mesh = make_mesh({CLIENTS: devices})
    where = placement(mesh, key, blocks=True)
    if devices > 1 and can_be_split(data, algorithm.recipe):
        data = split(data, algorithm.recipe, devices)

    def placed(name, tree):
        """Shapes of an argument, as they lie on the mesh."""
        shape = lambda x, one: jax.ShapeDtypeStruct(  # noqa: E731
            x.shape, x.dtype, sharding=one
        )
        return jax.tree.map(
            lambda one, part: jax.tree.map(lambda x: shape(x, one), part),
            where.shardings(name, data),
            tree,
        )

    state = jax.eval_shape(algorithm.init, key)
    plan = jax.eval_shape(algorithm.plan, key, 0)
    program = jax.jit(
        functools.partial(algorithm.round, execution=Execution(mesh=mesh)),
        donate_argnums=1,
        out_shardings=(where.shardings("state"), where.shardings("key")),
    )
    arguments = [("key", key), ("state", state), ("data", data), ("key", plan)]
    return program.lower(*(placed(*one) for one in arguments)).compile()


def found(text):
    """All collectives of a compiled program's HLO text."""
    bodies = _computations(text)
    looped = set()
    for lines in bodies.values():
        for line in lines:
            looped |= _reached(bodies, re.findall(r"body=%?([\w.\-]+)", line))
    every = []
    for name, lines in bodies.items():
        for line in lines:
            # One in two halves says in its second what has arrived.
            kind = re.search(rf" ({'|'.join(_NAMES)})(-done)?\(", line)
            if kind:
                shapes = line[: kind.start()].partition(" = ")[2]
                every.append(Collective(kind[1], _bytes(shapes), name in looped))
    return every


def _computations(text):
    bodies, current = {}, []
    for line in text.splitlines():
        start = re.match(r"(?:ENTRY )?%?([\w.\-]+) .*\{$", line)
        if start and not line.startswith(" "):
            bodies[start[1]] = current = []
        else:
            current.append(line)
    return bodies


def _reached(bodies, names):
    """These computations and all that they call."""
    seen, waiting = set(), list(names)
    while waiting:
        name = waiting.pop()
        if name in seen or name not in bodies:
            continue
        seen.add(name)
        for line in bodies[name]:
            called = re.findall(
                r"(?:body|condition|calls|to_apply|\w+_computation)=%?([\w.\-]+)", line
            )
            for several in re.findall(r"branch_computations=\{([^}]*)\}", line):
                called += [one.strip(" %") for one in several.split(",")]
            waiting += called
    return seen


def _bytes(shapes):
    total = 0
    for kind, dimensions in re.findall(r"(\w+)\[([\d,]*)\]", shapes):
        count = 1
        for size in filter(None, dimensions.split(",")):
            count *= int(size)
        total += count * _BYTES[kind]
    return total
