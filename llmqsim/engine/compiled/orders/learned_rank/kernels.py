"""Learned ranks with a guard against starving: LearnedRank of policies/ordering/service.py in arrays.

Who waits has a timer (orders/kernels.py), so that a look sees those that may have starved. R_MEMORY : nobody inside can
starve before this step.
"""

from __future__ import annotations

from llmqsim.engine.compiled.blocks.kernels import slot_of
from llmqsim.engine.compiled.columns import ARRIVAL, PREDICTED
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import LearnedRank, stand
from llmqsim.engine.compiled.orders.kernels import (
    call_late,
    inside,
    mark_at,
    next_timer,
    page,
    set_timer,
    slot_inside,
    welcome,
)
from llmqsim.engine.compiled.queue.kernels import entry_at, take_out, waits_by_key
from llmqsim.jit import kernel

BEHIND = 1 << 40
"""level of who is not promoted, beside its prediction"""
M_SEEN, M_LAST_RAN, M_PROMOTED = range(3)
"""of a row: has it joined? step in which it last ran, or joined; steps that it may still run ahead of all"""


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
    set_timer(arena, base, row, arena[at + M_LAST_RAN])


@kernel
def starves(order, arena, base, row):
    """Promote a request if it has starved; has it?"""
    at = mark_at(arena, row)
    if arena[at + M_PROMOTED] > 0 or formed(arena, base) - arena[at + M_LAST_RAN] < order.starvation:
        return False
    arena[at + M_PROMOTED] = order.period
    return True


@kernel
def left(order, table, arena, base, row, entered):
    """It is among those inside now."""
    may_starve_inside(order, arena, base, row)


@kernel
def may_starve_inside(order, arena, base, row):
    """Look no later than when this one may have starved."""
    at = mark_at(arena, row)
    if arena[at + M_PROMOTED] == 0:
        arena[base + R_MEMORY] = min(arena[base + R_MEMORY], arena[at + M_LAST_RAN] + order.starvation)


@kernel
def look_again(order, table, arena, base, now):
    """Promote who has starved, of those inside and of those who wait."""
    welcome(order, table, arena, base)
    starved = False
    if formed(arena, base) >= arena[base + R_MEMORY]:
        arena[base + R_MEMORY] = formed(arena, base) + order.starvation
        for place in range(inside(arena, base)):
            row = arena[slot_of(arena, base, slot_inside(arena, base, place)) + S_ROW]
            starved = starves(order, arena, base, row) or starved
            may_starve_inside(order, arena, base, row)
    until = formed(arena, base) - order.starvation
    row = next_timer(arena, base, until)
    while row >= 0:
        if waits_by_key(arena, row) and arena[mark_at(arena, row) + M_PROMOTED] == 0:
            if starves(order, arena, base, row):
                take_out(arena, base + R_TOP, row)
                stand(order, table, arena, base, row, arena[entry_at(arena, row) + Q_SLOT], now)
                starved = True
            else:
                set_timer(arena, base, row, arena[mark_at(arena, row) + M_LAST_RAN])
        row = next_timer(arena, base, until)
    if starved:
        call_late(order, table, arena, base, False, now)


@kernel
def ran(order, table, arena, base, step, now):
    """Note the step; a promoted one has used up one of its runs."""
    for place in range(arena[G_DRAFT], arena[G_DRAFT] + arena[step + T_ROWS] * DRAFT, DRAFT):
        if arena[place + D_SLOT] != GONE:
            at = mark_at(arena, arena[slot_of(arena, base, arena[place + D_SLOT]) + S_ROW])
            arena[at + M_LAST_RAN] = formed(arena, base)
            arena[at + M_PROMOTED] = max(0, arena[at + M_PROMOTED] - 1)


page(LearnedRank, key_of, late_key_of, joined=joined, left=left, look_again=look_again, ran=ran)
