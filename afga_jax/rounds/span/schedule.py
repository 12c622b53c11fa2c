"""When each needed gradient of a round runs, and in which row its increment is kept.

A round is a `Graph` of gradients, known from its plan. A *schedule* puts them into
slots: each slot runs up to `width` gradients side by side, whatever local step they
belong to, as soon as all that they read exists. Among those that could run, the one
furthest back along the sweep through the clients goes first, so that a neighbourhood is
finished before the next is begun and few increments are alive at a time. A row is used
again after its last reader.

NumPy on the host; `pad` makes arrays of fixed sizes for the compiled engine.
"""

import heapq
from typing import NamedTuple

import numpy as np
from flax import struct

from afga_jax.rounds.span.dependencies import Graph


class Sizes(NamedTuple):
    """How large a schedule is, or, as a capacity, may be.

    Attributes:
      slots: Number of slots, which run one after another.
      rows: Largest number of increments that are alive at a time.
      reads: Number of reads of all tasks and uploads.
      memories: Number of clients that keep an optimizer state or a control.
    """

    slots: int
    rows: int
    reads: int
    memories: int


@struct.dataclass
class Schedule:
    """What the span engine runs in one cycle, padded to a capacity.

    Attributes:
      slots: Number of slots that are no padding.
      client: Client id of each lane, `[slots, width]`; padding is the number of
        clients.
      step: Local step of each lane's gradient, `[slots, width]`.
      row: Row of the table that takes each lane's increment, `[slots, width]`; padding
        is past the last row.
      memory: Row of each lane's client among the memories, `[slots, width]`.
      first: Number of the first read of each lane, `[slots, width]`.
      count: Number of reads of each lane, `[slots, width]`.
      read_row: Row of the table that each read reads, `[reads]`.
      read_weight: Weight of each read, `[reads]`.
      finished: Number of uploads that are complete before each slot, `[slots + 1]`.
      upload: Numbers of the uploads in the order of their completion, `[uploads]`.
      upload_first: Number of the first read of each upload, in that order, `[uploads]`.
      upload_count: Number of reads of each upload, in that order, `[uploads]`.
      upload_memory: Row of each upload's client among the memories, in the plan's
        order, `[uploads]`.
      memory_client: Client id of each memory, `[memories]`.
      planned: Number of gradients that a deployment would compute.
      rows: Number of rows of the table of increments; static.
    """

    slots: np.ndarray
    client: np.ndarray
    step: np.ndarray
    row: np.ndarray
    memory: np.ndarray
    first: np.ndarray
    count: np.ndarray
    read_row: np.ndarray
    read_weight: np.ndarray
    finished: np.ndarray
    upload: np.ndarray
    upload_first: np.ndarray
    upload_count: np.ndarray
    upload_memory: np.ndarray
    memory_client: np.ndarray
    planned: np.ndarray
    rows: int = struct.field(pytree_node=False)


class Timetable(NamedTuple):
    """A graph's tasks in slots, before it is padded.

    Attributes:
      slot: Slot of each task, `[tasks]`.
      lane: Lane of each task in its slot, `[tasks]`.
      row: Row of the table that keeps each task's increment, `[tasks]`.
      done: Slot after which each upload is complete, `[uploads]`; −1: it reads nothing.
      sizes: Numbers of slots, rows, reads and memories that this takes.
    """

    slot: np.ndarray
    lane: np.ndarray
    row: np.ndarray
    done: np.ndarray
    sizes: Sizes


def timetable(graph: Graph, width: int) -> Timetable:
    """Puts the tasks into slots of `width`, and their increments into rows."""
    tasks = len(graph.step)
    slot, lane = _slots(graph, width)
    reader = np.repeat(np.arange(len(graph.first) - 1), np.diff(graph.first))
    done = np.full(len(graph.uploads), -1)
    by_upload = reader >= tasks
    np.maximum.at(done, reader[by_upload] - tasks, slot[graph.task[by_upload]])
    # A slot reads before it writes; uploads read after it.
    last = slot + 1
    between = ~by_upload
    np.maximum.at(last, graph.task[between], slot[reader[between]])
    read_by = reader[by_upload] - tasks
    np.maximum.at(last, graph.task[by_upload], done[read_by] + 1)
    row, rows = _rows(slot, last)
    clients = np.union1d(graph.client, graph.uploads)
    slots = int(slot.max(initial=-1)) + 1
    sizes = Sizes(slots, rows, len(graph.task), len(clients))
    return Timetable(slot, lane, row, done, sizes)


def pad(
    graph: Graph, table: Timetable, width: int, capacity: Sizes, num_clients: int
) -> Schedule:
    """The schedule as arrays of the capacity's sizes."""
    whole = np.int32

    def lanes(values, fill):
        filled = np.full((capacity.slots, width), fill, whole)
        filled[table.slot, table.lane] = values
        return filled

    count = np.diff(graph.first)
    tasks = len(graph.step)
    clients = np.union1d(graph.client, graph.uploads)
    order = np.argsort(table.done, kind="stable")
    order = order[table.done[order] >= 0]
    complete = np.bincount(table.done[order], minlength=capacity.slots)
    uploads = len(graph.uploads)
    return Schedule(
        slots=np.asarray(table.sizes.slots, whole),
        client=lanes(graph.client, num_clients),
        step=lanes(graph.step, 0),
        row=lanes(table.row, capacity.rows),
        memory=lanes(np.searchsorted(clients, graph.client), capacity.memories),
        first=lanes(graph.first[:tasks], 0),
        count=lanes(count[:tasks], 0),
        read_row=_padded(table.row[graph.task], capacity.reads, 0, whole),
        read_weight=_padded(graph.weight, capacity.reads, 0, float),
        finished=np.append(0, np.cumsum(complete)).astype(whole),
        upload=_padded(order, uploads, uploads, whole),
        upload_first=_padded(graph.first[tasks:-1][order], uploads, 0, whole),
        upload_count=_padded(count[tasks:][order], uploads, 0, whole),
        upload_memory=np.searchsorted(clients, graph.uploads).astype(whole),
        memory_client=_padded(clients, capacity.memories, num_clients, whole),
        planned=np.asarray(graph.planned, whole),
        rows=capacity.rows,
    )


def bucket(sizes: list[Sizes]) -> Sizes:
    """A capacity for all of these: powers of two, so that few programs are compiled."""
    largest = [max(*values, 1) for values in zip(*sizes, strict=True)]
    return Sizes(*(1 << int(n - 1).bit_length() for n in largest))


def _slots(graph: Graph, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The first slot with room after all that a task reads, in order of the sweep."""
    tasks = len(graph.step)
    reads = graph.task[: graph.first[tasks]]
    reader = np.repeat(np.arange(tasks), np.diff(graph.first[: tasks + 1]))
    order = np.argsort(reads, kind="stable")
    readers = reader[order].tolist()
    begin = np.searchsorted(reads[order], np.arange(tasks + 1)).tolist()
    waits = np.diff(graph.first[: tasks + 1]).tolist()
    # Along the sweep a task reads only what lies behind it: position + step grows.
    ranks = np.empty(tasks, np.int64)
    ranks[np.lexsort((graph.step, graph.position + graph.step))] = np.arange(tasks)
    rank = ranks.tolist()
    ready = [(rank[task], task) for task in range(tasks) if not waits[task]]
    heapq.heapify(ready)
    slot, lane, now = [0] * tasks, [0] * tasks, 0
    while ready:
        batch = [heapq.heappop(ready)[1] for _ in range(min(width, len(ready)))]
        for number, task in enumerate(batch):
            slot[task], lane[task] = now, number
            for other in readers[begin[task] : begin[task + 1]]:
                waits[other] -= 1
                if not waits[other]:
                    heapq.heappush(ready, (rank[other], other))
        now += 1
    return np.array(slot, np.int64), np.array(lane, np.int64)


def _rows(slot: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, int]:
    """A row for each task from its slot until before the slot `last`, used again."""
    row, used = np.zeros(len(slot), np.int64), 0
    free: list[int] = []
    ends: list[tuple[int, int]] = []
    for task in np.argsort(slot, kind="stable").tolist():
        now = int(slot[task])
        while ends and ends[0][0] <= now:
            heapq.heappush(free, heapq.heappop(ends)[1])
        if not free:
            free.append(used)
            used += 1
        row[task] = heapq.heappop(free)
        heapq.heappush(ends, (int(last[task]), int(row[task])))
    return row, used


def _padded(values: np.ndarray, size: int, fill: int, dtype) -> np.ndarray:
    return np.pad(values, (0, size - len(values)), constant_values=fill).astype(dtype)
