"""What a compiled round does at each local step, read from its optimised HLO text.

Every instruction that is not a parameter, a tuple or another view of memory is one
kernel that is started, or one call of a library. Loops count as often as they are known
to run; others, and the larger branch of a condition, once.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

_VIEWS = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")
_CONTROL = ("while", "conditional", "call", "after-all", "opt-barrier", "domain")
_PLACES = ("partition-id", "replica-id", "add-dependency")
_FREE = frozenset(_VIEWS + _CONTROL + _PLACES)
_SLICES = frozenset(("dynamic-slice", "slice", "gather"))
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}
_BITS = {"pred": 8, "bf16": 16, "f8e4m3fn": 8, "f8e5m2": 8, "token": 0}


class Instruction(NamedTuple):
    """One line of a computation.

    Attributes:
      name: Its name in the computation.
      shapes: Types and shapes of its results, as text.
      opcode: What it does.
      operands: Names of what it reads; of a constant, its value.
      rest: What else is said of it.
    """

    name: str
    shapes: str
    opcode: str
    operands: tuple[str, ...]
    rest: str

    @property
    def bytes(self) -> int:
        return _bytes(self.shapes)

    @property
    def in_gradient(self) -> bool:
        """Whether it was traced by `jax.grad`, by its name."""
        return "jvp(" in self.rest.partition("metadata=")[2]

    def called(self, role: str) -> list[str]:
        """Names of the computations that it calls as `role`."""
        return re.findall(rf"\b{role}=%?([\w.\-]+)", self.rest)

    @property
    def branches(self) -> list[str]:
        listed = re.search(r"branch_computations=\{([^}]*)\}", self.rest)
        if listed is None:
            return self.called("true_computation") + self.called("false_computation")
        return [name.strip(" %") for name in listed[1].split(",")]

    @property
    def trips(self) -> int | None:
        """How often a loop runs; None: that is not known."""
        known = re.search(r'known_trip_count":\{"n":"(\d+)"', self.rest)
        return int(known[1]) if known else None


class Part(NamedTuple):
    """What some instructions amount to.

    Attributes:
      kernels: Number of kernels and library calls.
      copies: Those of them that copy an array as it is.
      client_copies: Copies of arrays with one row for each client.
      library: Library calls by name.
      bytes: Bytes that they read and write.
    """

    kernels: int = 0
    copies: int = 0
    client_copies: int = 0
    library: dict[str, int] = {}  # noqa: RUF012
    bytes: int = 0

    def plus(self, other: "Part", times: int = 1) -> "Part":
        library = Counter(self.library)
        for name, count in other.library.items():
            library[name] += times * count
        numbers = (
            mine + times * more
            for mine, more in zip(
                (self.kernels, self.copies, self.client_copies, self.bytes),
                (other.kernels, other.copies, other.client_copies, other.bytes),
                strict=True,
            )
        )
        kernels, copies, client_copies, bytes_ = numbers
        return Part(kernels, copies, client_copies, dict(library), bytes_)


class Counts(NamedTuple):
    """A round's program.

    Attributes:
      outside: What a turn of the loop over local steps does outside of the gradient.
      gradient: What it does for gradients, with all in a loop or condition with any.
      round: What happens once in a round, before and after that loop.
      trips: How often the loop over local steps runs; None: the schedule says.
      loops: Number of loops in the program.
      instructions: Number of instructions in the program, inside kernels, too.
    """

    outside: Part
    gradient: Part
    round: Part
    trips: int | None
    loops: int
    instructions: int


class Program:
    """A compiled program.

    Args:
      text: Its optimised HLO, as `compiled.as_text()` has it.
      rows: Number of client rows; arrays that begin with it are the clients'.
    """

    def __init__(self, text: str, rows: int):
        self.computations = dict(_computations(text))
        self.entry = next(
            name
            for name in re.findall(r"^ENTRY %?([\w.\-]+)", text, re.MULTILINE)
            if name in self.computations
        )
        self.rows = rows

    def counts(self) -> Counts:
        """What its local steps and the rest of its round do."""
        steps = [
            loop
            for loop in self._loops(self.entry)
            if self._has_gradient(loop.called("body")[0])
        ]
        if len(steps) != 1:
            raise ValueError(
                f"{len(steps)} loops of the program have gradients, but the local "
                "steps of a round must be one loop: compile a single round."
            )
        body = steps[0].called("body")[0]
        outside, gradient = self._split(body)
        every = [line for lines in self.computations.values() for line in lines]
        return Counts(
            outside,
            gradient,
            self._whole(self.entry, but=steps[0].name),
            steps[0].trips or self._bound(steps[0]),
            sum(line.opcode == "while" for line in every),
            len(every),
        )

    def _bound(self, loop: Instruction) -> int | None:
        """Where a loop that counts from zero stops, which not all compilers say."""
        condition = self.computations[loop.called("condition")[0]]
        named = {line.name: line for line in condition}
        for line in condition:
            if line.opcode == "compare" and "direction=LT" in line.rest:
                bound = named[line.operands[1]]
                return int(bound.operands[0]) if bound.opcode == "constant" else None
        return None

    def _split(self, body: str) -> tuple[Part, Part]:
        outside, gradient = Part(), Part()
        for line in self.computations[body]:
            part = self._of(body, line)
            inside = line.in_gradient or any(
                self._has_gradient(name) for name in _inner(line)
            )
            if inside:
                gradient = gradient.plus(part)
            else:
                outside = outside.plus(part)
        return outside, gradient

    def _whole(self, name: str, but: str | None = None) -> Part:
        total = Part()
        for line in self.computations[name]:
            if line.name != but:
                total = total.plus(self._of(name, line))
        return total

    def _of(self, computation: str, line: Instruction) -> Part:
        """One instruction, with what it calls."""
        if line.opcode == "while":
            return Part().plus(self._whole(line.called("body")[0]), line.trips or 1)
        if line.opcode == "conditional":
            branches = [self._whole(name) for name in line.branches]
            return max(branches, key=lambda part: part.kernels)
        if line.opcode == "call":
            return self._whole(line.called("to_apply")[0])
        if line.opcode in _FREE or line.opcode.endswith(("-done", "-update")):
            return Part()
        library = {}
        if line.opcode == "custom-call":
            target = re.search(r'custom_call_target="([^"]*)"', line.rest)
            library = {target[1] if target else "?": 1}
        copies = self._copies(line)
        first = re.match(r"\(?\w+\[(\d+)[,\]]", line.shapes)
        of_clients = copies and first is not None and int(first[1]) == self.rows
        moved = self._moved(computation, line)
        return Part(1, int(copies), int(of_clients), library, moved)

    def _copies(self, line: Instruction) -> bool:
        if line.opcode in ("copy", "copy-start"):
            return True
        if line.opcode != "fusion":
            return False
        inside = {each.opcode for each in self.computations[line.called("calls")[0]]}
        return "copy" in inside and inside <= {"parameter", "copy", "bitcast", "tuple"}

    def _moved(self, computation: str, line: Instruction) -> int:
        """Bytes that a kernel reads and writes; of what it slices, the slices."""
        shapes = {each.name: each for each in self.computations[computation]}
        sizes = [shapes[name].bytes for name in line.operands if name in shapes]
        if line.opcode in _SLICES:
            return 2 * line.bytes
        if line.opcode in _UPDATES:
            return 2 * sizes[_UPDATES[line.opcode]]
        if line.opcode != "fusion":
            return sum(sizes) + line.bytes
        inside = self.computations[line.called("calls")[0]]
        named = {each.name: each for each in inside}
        users: dict[str, list[Instruction]] = {}
        for each in inside:
            for name in each.operands:
                users.setdefault(name, []).append(each)
        read = sum(
            _read(each, users.get(each.name, []))
            for each in inside
            if each.opcode == "parameter"
        )
        return read + _written(inside[-1], named)

    def _loops(self, name: str) -> Iterator[Instruction]:
        """The loops of a computation that are in no other loop."""
        for line in self.computations[name]:
            if line.opcode == "while":
                yield line
            else:
                for inner in _inner(line):
                    yield from self._loops(inner)

    def _has_gradient(self, name: str) -> bool:
        return any(
            line.in_gradient or any(map(self._has_gradient, _inner(line)))
            for line in self.computations.get(name, ())
        )


def _read(parameter: Instruction, users: list[Instruction]) -> int:
    """Bytes of a parameter that a fusion reads."""
    total = 0
    for user in users:
        if user.opcode in _SLICES and user.operands[0] == parameter.name:
            total += user.bytes
        elif user.opcode in _UPDATES and user.operands[0] == parameter.name:
            continue  # written to in place
        else:
            return parameter.bytes
    return min(total, parameter.bytes)


def _written(root: Instruction, named: dict[str, Instruction]) -> int:
    """Bytes that a fusion writes."""
    if root.opcode == "bitcast" and root.operands[0] in named:
        return _written(named[root.operands[0]], named)
    if root.opcode == "tuple":
        return sum(_written(named[name], named) for name in root.operands)
    if root.opcode in _UPDATES:
        update = named.get(root.operands[_UPDATES[root.opcode]])
        return update.bytes if update else root.bytes
    return root.bytes


def _inner(line: Instruction) -> list[str]:
    """The computations whose kernels an instruction starts."""
    if line.opcode == "while":
        return line.called("body")
    if line.opcode == "conditional":
        return line.branches
    return line.called("to_apply") if line.opcode == "call" else []


def _computations(text: str) -> Iterator[tuple[str, list[Instruction]]]:
    name, lines = None, []
    for row in text.splitlines():
        start = re.match(r"(?:ENTRY )?%?([\w.\-]+) .*\{$", row)
        if start and not row.startswith(" "):
            name, lines = start[1], []
        elif row.startswith("}") and name is not None:
            yield name, lines
            name = None
        elif name is not None and (found := _instruction(row)):
            lines.append(found)


def _instruction(row: str) -> Instruction | None:
    found = re.match(r"\s+(?:ROOT )?%?([\w.\-]+) = ", row)
    if found is None:
        return None
    rest = row[found.end() :]
    end = _closing(rest) if rest.startswith("(") else rest.index(" ")
    shapes, rest = rest[:end], rest[end:].lstrip()
    opcode, _, after = rest.partition("(")
    end = _closing("(" + after)
    inside, rest = after[: end - 2], after[end - 1 :]
    operands = tuple(re.findall(r"%([\w.\-]+)", inside))
    if opcode == "constant":
        operands = (inside,)
    return Instruction(found[1], shapes, opcode, operands, rest)


def _closing(text: str) -> int:
    """Where the first bracket of a text is closed, and one further."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return at + 1
    return len(text)


def _bytes(shapes: str) -> int:
    total = 0
    for kind, dimensions in re.findall(r"\b([a-z]\w*)\[([\d,]*)\]", shapes):
        bits = _BITS.get(kind) if kind in _BITS else int(re.sub(r"\D", "", kind) or 0)
        count = math.prod(int(size) for size in filter(None, dimensions.split(",")))
        total += count * (bits or 0) // 8
    return total
