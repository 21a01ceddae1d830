"""Keys that are fixed: nothing has to be looked at again."""

from __future__ import annotations

from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import Fixed, FixedRanked, Kernels, made_of
from llmqsim.engine.compiled.orders.kernels import (
    does_not_note_joins,
    does_not_note_leaves,
    does_not_note_steps,
    does_not_note_strides,
    only_welcomes,
    strides_alone,
    strides_always,
    take_back_in,
)
from llmqsim.engine.compiled.queue.kernels import entry_at
from llmqsim.jit import kernel
from llmqsim.requests import INDEX

ARRIVAL = INDEX["arrival_ns"]


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


made_of(
    FixedRanked,
    Kernels(
        key_of,
        late_key_of,
        does_not_note_joins,
        does_not_note_leaves,
        only_welcomes,
        take_back_in,
        does_not_note_steps,
        strides_alone,
        does_not_note_strides,
    ),
)
made_of(
    Fixed,
    Kernels(
        key_of,
        late_key_of,
        does_not_note_joins,
        does_not_note_leaves,
        is_sorted,
        is_sorted,
        does_not_note_steps,
        strides_always,
        does_not_note_strides,
    ),
)
