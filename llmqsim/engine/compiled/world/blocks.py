"""Blocks of which it is known what is cached in them (compiled/blocks.py)."""

# Part of machine code: kernels read and write these fields.
from __future__ import annotations

from llmqsim.engine.compiled.world.record import Record, listed


class Node(Record):
    """A block that others may look for, or a run of free ones. Two are the ends of a list each: ENDS, HOST_ENDS."""

    __slots__ = ()
    key: int  # of what it holds; of runs: UNHASHED, ...
    count: int  # requests that hold it; of runs: blocks
    next: int
    previous: int
    later: int  # copy of the same key, NO_NODE: nobody will find it
    earlier: int
    repeats: int  # holders that read it with another
    since: int  # admissions when it was last taken


ENDS, HOST_ENDS = 0, 1
NO_NODE = 0
UNHASHED, HASHED, OWNED = -1, -2, -3
"""Node.key of runs: blocks that hold nothing, or something that nobody will look for; OWNED - slot: a request's own"""

node_at = listed(Node)
