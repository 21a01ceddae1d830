"""Skip-join multi-level feedback queue: Mlfq of policies/ordering/service.py in arrays.

Who waits has a timer (common.py), so that a look sees those that may have starved. `memory` : nobody inside can starve
before this time. `tail`, `first` : the last and the first place that was given.
"""

from __future__ import annotations

from llmqsim.engine.compiled.columns import PROMPT_TOKENS
from llmqsim.engine.compiled.orders import Mlfq, stand
from llmqsim.engine.compiled.orders.common import call_late, inside, next_timer, page, set_timer, slot_inside, welcome
from llmqsim.engine.compiled.queue import first_of, pop_from, put_into, take_out, waits_by_key
from llmqsim.engine.compiled.world.limits import GONE
from llmqsim.engine.compiled.world.queue import IN_ORDER, entry_at
from llmqsim.engine.compiled.world.record import Record, listed
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.engine.compiled.world.step import drafted_at
from llmqsim.jit import kernel
from llmqsim.policies import rules


class Mark(Record):
    """What is remembered of a row."""

    __slots__ = ()
    level: int  # and 1; 0: it has not joined
    attained_ns: int  # that it was in steps since it came to its level
    place: int  # in its level
    stepped_ns: int  # when it was last in a step, or joined


mark_at = listed(Mark)


@kernel
def key_of(order, table, run, arena, replica, row, slot, now):
    """(level, place in it)."""
    mark = mark_at(arena, run.marks, row)
    return mark.level - 1, mark.place


@kernel
def late_key_of(order, table, run, arena, replica, row, slot, now):
    """Behind all levels."""
    return order.levels, now


@kernel
def to_tail(replica, mark):
    """To the end of its level."""
    replica.tail += 1
    mark.place = replica.tail


@kernel
def joined(order, table, run, arena, replica, row, slot, now):
    """Skip the levels that its prefill would run through at once."""
    mark = mark_at(arena, run.marks, row)
    if mark.level == 0:
        prefill_ns = arena[run.prefill_ns + table[PROMPT_TOKENS, row]]
        mark.level = 1 + rules.first_level(prefill_ns, order.quantum_ns, order.levels)
        mark.attained_ns = 0
        mark.stepped_ns = now
        to_tail(replica, mark)
    set_timer(run, arena, replica, row, mark.stepped_ns)


@kernel
def rescue(order, run, arena, replica, row, now):
    """To the front of level 0, if a request has starved; has it?"""
    mark = mark_at(arena, run.marks, row)
    if now - mark.stepped_ns < order.starvation_ns:
        return False
    replica.first -= 1
    mark.level, mark.attained_ns, mark.place = 1, 0, replica.first
    mark.stepped_ns = now
    return True


@kernel
def left(order, table, run, arena, replica, row, entered):
    """It is among those inside now."""
    may_starve_inside(order, run, arena, replica, row)


@kernel
def may_starve_inside(order, run, arena, replica, row):
    """Look no later than when this one may have starved."""
    since = mark_at(arena, run.marks, row).stepped_ns
    replica.memory = min(replica.memory, since + order.starvation_ns)


@kernel
def look_again(order, table, run, arena, replica, now):
    """Rescue who has starved, those inside first, then those who wait in their order."""
    welcome(order, table, run, arena, replica)
    starved = False
    if now >= replica.memory:
        replica.memory = now + order.starvation_ns
        for place in range(inside(replica)):
            row = request_at(arena, replica.slots, slot_inside(arena, replica, place)).row
            starved = rescue(order, run, arena, replica, row, now) or starved
            may_starve_inside(order, run, arena, replica, row)
    bring_out_starved(order, run, arena, replica, now - order.starvation_ns)
    while first_of(run, arena, replica.starved) >= 0:
        row = pop_from(run, arena, replica.starved)
        starved = rescue(order, run, arena, replica, row, now) or starved
        stand(order, table, run, arena, replica, row, entry_at(arena, run.queue, row).slot, now)
        set_timer(run, arena, replica, row, now)
    if starved:
        call_late(order, table, run, arena, replica, False, now)


@kernel
def bring_out_starved(order, run, arena, replica, until):
    """Those who wait and were in no step since `until` leave the queue for a heap of their own, replica.starved."""
    row = next_timer(run, arena, replica, until)
    while row >= 0:
        if waits_by_key(run, arena, row):
            since = mark_at(arena, run.marks, row).stepped_ns
            if since <= until:
                take_out(run, arena, replica.top, row)
                entry_at(arena, run.queue, row).rank = IN_ORDER
                put_into(run, arena, replica.starved, row)
            else:
                set_timer(run, arena, replica, row, since)
        row = next_timer(run, arena, replica, until)


@kernel
def ran(order, table, run, arena, replica, step, now):
    """Count the step; whoever has used up its quantum goes down."""
    for number in range(step.rows):
        drafted = drafted_at(arena, run.draft, number)
        if drafted.slot != GONE:
            mark = mark_at(arena, run.marks, request_at(arena, replica.slots, drafted.slot).row)
            level = mark.level - 1
            mark.stepped_ns = now
            mark.attained_ns += step.duration_ns
            if level < order.levels - 1 and mark.attained_ns > rules.quantum_ns(order.quantum_ns, level):
                mark.level += 1
                mark.attained_ns = 0
                to_tail(replica, mark)


page(Mlfq, key_of, late_key_of, joined=joined, left=left, look_again=look_again, ran=ran)
