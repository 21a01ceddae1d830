"""Skip-join multi-level feedback queue: Mlfq of policies/ordering/service.py in arrays.

Who waits has a timer (orders/kernels.py), so that a look sees those that may have starved. R_MEMORY : nobody inside can
starve before this time. R_TAIL, R_FIRST : the last and the first place that was given.
"""

from __future__ import annotations

from llmqsim.engine.compiled.blocks.kernels import slot_of
from llmqsim.engine.compiled.columns import PROMPT_TOKENS
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import Mlfq, stand
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
from llmqsim.engine.compiled.queue.kernels import entry_at, first_of, pop_from, put_into, take_out, waits_by_key
from llmqsim.jit import kernel
from llmqsim.policies import rules

M_LEVEL, M_ATTAINED_NS, M_PLACE, M_STEPPED_NS = range(4)
"""of a row: its level and 1 (0: it has not joined); time that it was in steps since it came there; its place in it; when
it was last in a step, or joined"""


@kernel
def key_of(order, table, arena, base, row, slot, now):
    """(level, place in it)."""
    at = mark_at(arena, row)
    return arena[at + M_LEVEL] - 1, arena[at + M_PLACE]


@kernel
def late_key_of(order, table, arena, base, row, slot, now):
    """Behind all levels."""
    return order.levels, now


@kernel
def to_tail(arena, base, at):
    """To the end of its level."""
    arena[base + R_TAIL] += 1
    arena[at + M_PLACE] = arena[base + R_TAIL]


@kernel
def joined(order, table, arena, base, row, slot, now):
    """Skip the levels that its prefill would run through at once."""
    at = mark_at(arena, row)
    if arena[at + M_LEVEL] == 0:
        prefill_ns = arena[arena[G_PREFILL_NS] + table[PROMPT_TOKENS, row]]
        arena[at + M_LEVEL] = 1 + rules.first_level(prefill_ns, order.quantum_ns, order.levels)
        arena[at + M_ATTAINED_NS] = 0
        arena[at + M_STEPPED_NS] = now
        to_tail(arena, base, at)
    set_timer(arena, base, row, arena[at + M_STEPPED_NS])


@kernel
def rescue(order, arena, base, row, now):
    """To the front of level 0, if a request has starved; has it?"""
    at = mark_at(arena, row)
    if now - arena[at + M_STEPPED_NS] < order.starvation_ns:
        return False
    arena[base + R_FIRST] -= 1
    arena[at + M_LEVEL], arena[at + M_ATTAINED_NS], arena[at + M_PLACE] = 1, 0, arena[base + R_FIRST]
    arena[at + M_STEPPED_NS] = now
    return True


@kernel
def left(order, table, arena, base, row, entered):
    """It is among those inside now."""
    may_starve_inside(order, arena, base, row)


@kernel
def may_starve_inside(order, arena, base, row):
    """Look no later than when this one may have starved."""
    since = arena[mark_at(arena, row) + M_STEPPED_NS]
    arena[base + R_MEMORY] = min(arena[base + R_MEMORY], since + order.starvation_ns)


@kernel
def look_again(order, table, arena, base, now):
    """Rescue who has starved, those inside first, then those who wait in their order."""
    welcome(order, table, arena, base)
    starved = False
    if now >= arena[base + R_MEMORY]:
        arena[base + R_MEMORY] = now + order.starvation_ns
        for place in range(inside(arena, base)):
            row = arena[slot_of(arena, base, slot_inside(arena, base, place)) + S_ROW]
            starved = rescue(order, arena, base, row, now) or starved
            may_starve_inside(order, arena, base, row)
    bring_out_starved(order, arena, base, now - order.starvation_ns)
    while first_of(arena, base + R_STARVED) >= 0:
        row = pop_from(arena, base + R_STARVED)
        starved = rescue(order, arena, base, row, now) or starved
        stand(order, table, arena, base, row, arena[entry_at(arena, row) + Q_SLOT], now)
        set_timer(arena, base, row, now)
    if starved:
        call_late(order, table, arena, base, False, now)


@kernel
def bring_out_starved(order, arena, base, until):
    """Those who wait and were in no step since `until` leave the queue for a heap of their own, R_STARVED."""
    row = next_timer(arena, base, until)
    while row >= 0:
        if waits_by_key(arena, row):
            since = arena[mark_at(arena, row) + M_STEPPED_NS]
            if since <= until:
                take_out(arena, base + R_TOP, row)
                arena[entry_at(arena, row) + Q_RANK] = IN_ORDER
                put_into(arena, base + R_STARVED, row)
            else:
                set_timer(arena, base, row, since)
        row = next_timer(arena, base, until)


@kernel
def ran(order, table, arena, base, step, now):
    """Count the step; whoever has used up its quantum goes down."""
    for place in range(arena[G_DRAFT], arena[G_DRAFT] + arena[step + T_ROWS] * DRAFT, DRAFT):
        if arena[place + D_SLOT] != GONE:
            at = mark_at(arena, arena[slot_of(arena, base, arena[place + D_SLOT]) + S_ROW])
            level = arena[at + M_LEVEL] - 1
            arena[at + M_STEPPED_NS] = now
            arena[at + M_ATTAINED_NS] += arena[step + T_DURATION_NS]
            if level < order.levels - 1 and arena[at + M_ATTAINED_NS] > rules.quantum_ns(order.quantum_ns, level):
                arena[at + M_LEVEL] += 1
                arena[at + M_ATTAINED_NS] = 0
                to_tail(arena, base, at)


page(Mlfq, key_of, late_key_of, joined=joined, left=left, look_again=look_again, ran=ran)
