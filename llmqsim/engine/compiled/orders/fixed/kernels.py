"""Keys that are fixed: nothing has to be looked at again."""

from __future__ import annotations

from llmqsim.engine.compiled.columns import ARRIVAL
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import Fixed, FixedRanked
from llmqsim.engine.compiled.orders.kernels import page, strides_always
from llmqsim.engine.compiled.queue.kernels import entry_at
from llmqsim.jit import kernel


@kernel
def key_of(order, table, arena, base, row, slot, now):
    """As it joined."""
    at = entry_at(arena, row)
    return arena[at + Q_LEVEL], arena[at + Q_BASE] + arena[G_SLOPE] * table[ARRIVAL, row]


@kernel
def late_key_of(order, table, arena, base, row, slot, now):
    """Behind all of its level."""
    at = entry_at(arena, row)
    return arena[at + Q_LEVEL], arena[at + Q_BASE] + now


@kernel
def is_sorted(order, table, arena, base, now):
    """Everybody stands where he belongs."""


page(FixedRanked, key_of, late_key_of)
page(Fixed, key_of, late_key_of, look_again=is_sorted, catch_up=is_sorted, may_stride=strides_always)
