"""Learned ranks with a guard against starving: LearnedRank of policies/ordering/service.py in arrays.

Who waits has a timer (common.py), so that a look sees those that may have starved. `memory` : nobody inside can starve
before this step.
"""

from __future__ import annotations

from llmqsim.engine.compiled.columns import ARRIVAL, PREDICTED
from llmqsim.engine.compiled.orders import LearnedRank, stand
from llmqsim.engine.compiled.orders.common import call_late, inside, next_timer, page, set_timer, slot_inside, welcome
from llmqsim.engine.compiled.queue import take_out, waits_by_key
from llmqsim.engine.compiled.world.limits import GONE
from llmqsim.engine.compiled.world.queue import entry_at
from llmqsim.engine.compiled.world.record import Record, listed
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.engine.compiled.world.step import drafted_at
from llmqsim.jit import kernel


class Mark(Record):
    """What is remembered of a row."""

    __slots__ = ()
    seen: int  # 1: it has joined
    last_ran: int  # step in which it last ran, or joined
    promoted: int  # steps that it may still run ahead of all
    spare: int


mark_at = listed(Mark)


BEHIND = 1 << 40


"""level of who is not promoted, beside its prediction"""


@kernel
def key_of(order, table, run, arena, replica, row, slot, now):
    """(promoted or not, rank; arrival)."""
    level = table[PREDICTED, row] + (BEHIND if mark_at(arena, run.marks, row).promoted == 0 else 0)
    return level, table[ARRIVAL, row]


@kernel
def late_key_of(order, table, run, arena, replica, row, slot, now):
    """Behind all of its rank."""
    return table[PREDICTED, row] + BEHIND, now


@kernel
def formed(replica):
    """Steps that were formed."""
    return replica.usage.steps + replica.steps


@kernel
def joined(order, table, run, arena, replica, row, slot, now):
    """It has not run since now; a preempted one since it last did."""
    mark = mark_at(arena, run.marks, row)
    if mark.seen == 0:
        mark.seen = 1
        mark.last_ran = formed(replica)
    set_timer(run, arena, replica, row, mark.last_ran)


@kernel
def starves(order, run, arena, replica, row):
    """Promote a request if it has starved; has it?"""
    mark = mark_at(arena, run.marks, row)
    if mark.promoted > 0 or formed(replica) - mark.last_ran < order.starvation:
        return False
    mark.promoted = order.period
    return True


@kernel
def left(order, table, run, arena, replica, row, entered):
    """It is among those inside now."""
    may_starve_inside(order, run, arena, replica, row)


@kernel
def may_starve_inside(order, run, arena, replica, row):
    """Look no later than when this one may have starved."""
    mark = mark_at(arena, run.marks, row)
    if mark.promoted == 0:
        replica.memory = min(replica.memory, mark.last_ran + order.starvation)


@kernel
def look_again(order, table, run, arena, replica, now):
    """Promote who has starved, of those inside and of those who wait."""
    welcome(order, table, run, arena, replica)
    starved = False
    if formed(replica) >= replica.memory:
        replica.memory = formed(replica) + order.starvation
        for place in range(inside(replica)):
            row = request_at(arena, replica.slots, slot_inside(arena, replica, place)).row
            starved = starves(order, run, arena, replica, row) or starved
            may_starve_inside(order, run, arena, replica, row)
    until = formed(replica) - order.starvation
    row = next_timer(run, arena, replica, until)
    while row >= 0:
        if waits_by_key(run, arena, row) and mark_at(arena, run.marks, row).promoted == 0:
            if starves(order, run, arena, replica, row):
                take_out(run, arena, replica.top, row)
                stand(order, table, run, arena, replica, row, entry_at(arena, run.queue, row).slot, now)
                starved = True
            else:
                set_timer(run, arena, replica, row, mark_at(arena, run.marks, row).last_ran)
        row = next_timer(run, arena, replica, until)
    if starved:
        call_late(order, table, run, arena, replica, False, now)


@kernel
def ran(order, table, run, arena, replica, step, now):
    """Note the step; a promoted one has used up one of its runs."""
    for number in range(step.rows):
        drafted = drafted_at(arena, run.draft, number)
        if drafted.slot != GONE:
            mark = mark_at(arena, run.marks, request_at(arena, replica.slots, drafted.slot).row)
            mark.last_ran = formed(replica)
            mark.promoted = max(0, mark.promoted - 1)


page(LearnedRank, key_of, late_key_of, joined=joined, left=left, look_again=look_again, ran=ran)
