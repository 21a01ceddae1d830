"""Learned ranks with a guard against starving: LearnedRank of policies/ordering/service.py in arrays.

R_MEMORY : nobody can starve before this step.
"""

from __future__ import annotations

from llmqsim.engine.compiled.blocks.kernels import slot_of
from llmqsim.engine.compiled.columns import ARRIVAL, PREDICTED
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import LearnedRank
from llmqsim.engine.compiled.orders.kernels import inside, mark_at, page, put_in_line, slot_inside, welcome
from llmqsim.engine.compiled.queue.kernels import empty, entry_at
from llmqsim.jit import kernel

BEHIND = 1 << 40
"""level of who is not promoted, beside its prediction"""
M_SEEN, M_LAST_RAN, M_PROMOTED = range(3)
"""of a row: has it joined? step in which it last ran, or joined; steps that it may still run ahead of all"""
PROMOTED = -1


@kernel
def key_of(order, table, arena, base, row, slot, now):
    """(promoted or not, rank; arrival)."""
    level = table[PREDICTED, row] + (BEHIND if arena[mark_at(arena, row) + M_PROMOTED] == 0 else 0)
    return level, table[ARRIVAL, row]


@kernel
def late_key_of(order, table, arena, base, row, slot, now):
    """Behind all of its rank."""
    return table[PREDICTED, row] + BEHIND, now


@kernel
def formed(arena, base):
    """Steps that were formed."""
    return arena[base + U_STEPS] + arena[base + R_STEPS]


@kernel
def joined(order, table, arena, base, row, slot, now):
    """It has not run since now; a preempted one since it last did."""
    at = mark_at(arena, row)
    if arena[at + M_SEEN] == 0:
        arena[at + M_SEEN] = 1
        arena[at + M_LAST_RAN] = formed(arena, base)


@kernel
def look_at(order, arena, base, row):
    """Promote a request that has starved: PROMOTED (or if it was already), else when it last ran."""
    at = mark_at(arena, row)
    if arena[at + M_PROMOTED] > 0:
        return PROMOTED, False
    if formed(arena, base) - arena[at + M_LAST_RAN] >= order.starvation:
        arena[at + M_PROMOTED] = order.period
        return PROMOTED, True
    return arena[at + M_LAST_RAN], False


@kernel
def look_again(order, table, arena, base, now):
    """Promote who has starved, and find out before which step nobody else can."""
    welcome(order, table, arena, base)
    if formed(arena, base) < arena[base + R_MEMORY]:
        return
    starved, oldest = False, NEVER
    for place in range(inside(arena, base)):
        at = slot_of(arena, base, slot_inside(arena, base, place))
        since, has = look_at(order, arena, base, arena[at + S_ROW])
        starved = starved or has
        oldest = min(oldest, since) if since != PROMOTED else oldest
    first = row = empty(arena, base)
    while row >= 0:
        since, has = look_at(order, arena, base, row)
        starved = starved or has
        oldest = min(oldest, since) if since != PROMOTED else oldest
        row = arena[entry_at(arena, row) + Q_SIBLING]
    arena[base + R_MEMORY] = (oldest if oldest < NEVER else formed(arena, base)) + order.starvation
    put_in_line(order, table, arena, base, first, starved, now)


@kernel
def ran(order, table, arena, base, step, now):
    """Note the step; a promoted one has used up one of its runs."""
    for place in range(arena[G_DRAFT], arena[G_DRAFT] + arena[step + T_ROWS] * DRAFT, DRAFT):
        if arena[place + D_SLOT] != GONE:
            at = mark_at(arena, arena[slot_of(arena, base, arena[place + D_SLOT]) + S_ROW])
            arena[at + M_LAST_RAN] = formed(arena, base)
            arena[at + M_PROMOTED] = max(0, arena[at + M_PROMOTED] - 1)


page(LearnedRank, key_of, late_key_of, joined=joined, look_again=look_again, ran=ran)
