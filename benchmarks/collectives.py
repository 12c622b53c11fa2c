"""What devices send each other, read from a compiled program."""

import functools
import re
from typing import NamedTuple

import jax

from afga_jax.dealing import can_be_dealt, deal
from afga_jax.placement import make_mesh, placement

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
    where = placement(make_mesh({"clients": devices}), key, blocks=True)
    if devices > 1 and can_be_dealt(data, algorithm.recipe):
        data = deal(data, algorithm.recipe, devices, where.axis)
    specs = where.specs(data)
    program = jax.shard_map(
        functools.partial(algorithm.round, axis=where.axis),
        mesh=where.mesh,
        in_specs=(specs["key"], specs["state"], specs["data"], specs["key"]),
        out_specs=(specs["state"], specs["key"]),
        check_vma=False,
    )
    state = jax.eval_shape(algorithm.init, key)
    plan = jax.eval_shape(algorithm.plan, key, 0)
    put = lambda name, tree: jax.tree.map(  # noqa: E731
        lambda one, part: jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=one), part
        ),
        where.shardings(name, data),
        tree,
    )
    placed = (put("key", key), put("state", state), put("data", data), put("key", plan))
    return jax.jit(program, donate_argnums=1).lower(*placed).compile()


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
            kind = re.search(rf" ({'|'.join(_NAMES)})(-start)?\(", line)
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
