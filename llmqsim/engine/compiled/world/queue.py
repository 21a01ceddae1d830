"""A row of the request table in a queue that is sorted by keys (compiled/queue.py)."""

# Part of machine code: kernels read and write these fields.
from __future__ import annotations

from llmqsim.engine.compiled.world.record import Record, listed


class Heap(Record):
    """A pairing heap of rows, linked by their entries."""

    __slots__ = ()
    first: int  # NOBODY_IN_LINE: it is empty


class Entry(Record):
    """A row's place in the queue of its replica."""

    __slots__ = ()
    next_row: int  # that was sent to the same replica, -1: none yet
    level: int  # of its key
    base: int  # of its key, when that is fixed
    slot: int  # -1: new; NOT_DELIVERED
    rank: int  # NOT_IN_LINE, ...
    value: int  # of its key
    child: int  # row below it in the heap
    sibling: int  # row beside it
    before: int  # row that leads here, as its child or sibling; REJOINS: it was preempted and is not in the queue yet
    later: int  # row that was sent to the back before it; NOT_LATE: this one stands where its key puts it


NOT_IN_LINE, FRONT, IN_ORDER = range(3)
"""Entry.rank"""
NOBODY_IN_LINE = -1
NOT_DELIVERED = -2
"""Entry.slot: on its way to the replica, or not sent"""
REJOINS = -2
NOT_LATE = -2
MARKS = 4
"""words that an ordering may keep for each row"""

entry_at = listed(Entry)
heap_at = listed(Heap)
