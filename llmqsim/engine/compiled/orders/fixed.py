"""Keys that are fixed: nothing has to be looked at again."""

from __future__ import annotations

from llmqsim.engine.compiled.columns import ARRIVAL
from llmqsim.engine.compiled.orders import Fixed, FixedRanked
from llmqsim.engine.compiled.orders.common import page, strides_always
from llmqsim.engine.compiled.world.queue import entry_at
from llmqsim.jit import kernel


@kernel
def key_of(order, table, run, arena, replica, row, slot, now):
    """As it joined."""
    entry = entry_at(arena, run.queue, row)
    return entry.level, entry.base + run.slope * table[ARRIVAL, row]


@kernel
def late_key_of(order, table, run, arena, replica, row, slot, now):
    """Behind all of its level."""
    entry = entry_at(arena, run.queue, row)
    return entry.level, entry.base + now


@kernel
def is_sorted(order, table, run, arena, replica, now):
    """Everybody stands where he belongs."""


page(FixedRanked, key_of, late_key_of)


page(Fixed, key_of, late_key_of, look_again=is_sorted, catch_up=is_sorted, may_stride=strides_always)
