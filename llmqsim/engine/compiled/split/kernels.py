"""Prefill and decode replicas from instant to instant: arrivals, hand-offs, links. What cluster/ does, in arrays.

Events of an instant in their order (llmqsim/clock.py): steps end, the one that was awaited for longest first; requests and
KV are delivered; what replicas and routers asked for is done, by row; steps are formed, by replica. Clients of a closed
loop that are ready in one instant go by number.
"""

from __future__ import annotations

from llmqsim.engine.compiled.columns import CLIENT, INTENDED, OUTCOME, REJECTED, THINK
from llmqsim.engine.compiled.split.commit.kernels import commit
from llmqsim.engine.compiled.split.events.kernels import earliest, first_time, note, pop, push, take_first
from llmqsim.engine.compiled.split.layout import *
from llmqsim.engine.compiled.split.queue.kernels import look, settle_wait, tally
from llmqsim.engine.compiled.split.replica.kernels import form_ahead
from llmqsim.engine.compiled.split.step.kernels import step_at
from llmqsim.engine.compiled.split.trips.kernels import (
    ARRIVAL,
    IS_FETCHED,
    KINDS,
    PREFILLED,
    do_asked,
    ended_early,
    expire,
    fetched,
    join_decode,
    join_prefill,
    prefilled,
    replica_at,
    set_out,
)
from llmqsim.jit import kernel
from llmqsim.requests import HANDOFF_INDEX

RESUMED = HANDOFF_INDEX["resumed_ns"]


# Clients.


@kernel
def send_due(table, marks, arena, state, now):
    """Rows that are due leave their clients, in order, as the cap allows; what the servers could never serve does not."""
    while earliest(arena, G_TURNS) == now:
        pop(arena, G_TURNS)
        arena[G_IN_USE] -= 1
    while arena[G_NEXT_ROW] < arena[G_ROWS]:
        row = arena[G_NEXT_ROW]
        if table[OUTCOME, row] != REJECTED and table[INTENDED, row] > now:
            break
        arena[G_NEXT_ROW] += 1
    while arena[G_NEXT_SENT] < arena[G_NEXT_ROW] and arena[G_IN_USE] < arena[G_CAP]:
        row = arena[G_NEXT_SENT]
        arena[G_NEXT_SENT] += 1
        if table[OUTCOME, row] != REJECTED:
            arena[G_IN_USE] += 1
            set_out(table, marks, arena, state, row, now)


@kernel
def take_turns(table, marks, arena, state, now):
    """Clients of the closed loop whose turn is now, by number; those who come back at once take theirs after them."""
    while earliest(arena, G_TURNS) == now:
        due = 0
        while earliest(arena, G_TURNS) == now:
            arena[arena[G_DUE] + due] = pop(arena, G_TURNS)
            due += 1
        for place in range(due):
            row = arena[G_NEXT_ROW]
            if row == arena[G_ROWS] or now >= arena[G_STOP_NS]:
                break
            arena[G_NEXT_ROW] += 1
            table[CLIENT, row] = arena[arena[G_DUE] + place]
            table[INTENDED, row] = now
            if table[OUTCOME, row] == REJECTED:
                table[ARRIVAL, row] = now
                answered(table, arena, row, now)
            else:
                set_out(table, marks, arena, state, row, now)


@kernel
def answered(table, arena, row, seen):
    """A client has its answer: in a closed loop it turns around, thinks and comes back; else its place under the cap is
    free when it has turned around.
    """
    arena[G_LAST_CLIENT_NS] = max(arena[G_LAST_CLIENT_NS], seen)
    if arena[G_CLOSED] != 0:
        push(arena, G_TURNS, seen + arena[G_TURNAROUND_NS] + table[THINK, row], table[CLIENT, row])
    elif arena[G_CAP] < NEVER:
        push(arena, G_TURNS, seen + arena[G_TURNAROUND_NS], 0)


# An instant.


@kernel
def ends_next(arena, now):
    """The replica whose step ends now, -1 without one: of several, who has waited longest for it."""
    best, since = -1, NEVER
    for index in range(arena[G_REPLICAS]):
        at = replica_at(arena, index)
        ends = arena[at + R_STEPS] > 0 and arena[step_at(arena, at, 0) + T_END_NS] == now
        if ends and arena[at + R_AWAITED_SINCE] < since:
            best, since = index, arena[at + R_AWAITED_SINCE]
    return best


@kernel
def end_step(table, marks, arena, state, gaps, log, params_p, params_d, index, now):
    """A step ends."""
    at, pool = replica_at(arena, index), 1 if index >= arena[G_PREFILLS] else 0
    step = commit(arena, state, gaps, log, params_d if pool == 1 else params_p, at)
    for place in range(arena[step + T_SAMPLED] if arena[step + T_LEFT] > 0 else 0):
        row = arena[step + STEP + place]
        if state[row, S_FINISH_NS] == now:
            if pool == 0:
                ended_early(table, marks, arena, state, row, now)
            answered(table, arena, row, now + arena[G_AFTER_NS + pool])
        elif pool == 0 and state[row, S_STAGE] == LENT and marks[PREFILLED, row] < 0:
            prefilled(marks, arena, row, now)
    ends = step + arena[at + R_ENDS_AT]
    for place in range(arena[step + T_ENDS]):
        row = arena[ends + 2 * place]
        if state[row, S_STAGE] == RUNNING or state[row, S_STAGE] == LENT:
            state[row, S_CHUNK_TOKENS], state[row, S_CHUNK_NS] = arena[ends + 2 * place + 1], arena[step + T_START_NS]
            note(arena, G_CHUNKS, row)


@kernel
def deliver(table, marks, arena, state, now):
    """Everything that arrives somewhere now, and what was asked for."""
    if arena[G_CLOSED] != 0:
        take_turns(table, marks, arena, state, now)
    else:
        send_due(table, marks, arena, state, now)
    while first_time(arena, G_SENT) == now:
        join_prefill(marks, arena, state, take_first(arena, G_SENT), now)
    while first_time(arena, G_ANSWERED) == now:
        note(arena, G_GO_ON, take_first(arena, G_ANSWERED))
    while first_time(arena, G_ONWARD) == now:
        join_decode(table, marks, arena, state, take_first(arena, G_ONWARD), now)
    while earliest(arena, G_LATER) == now:
        what = pop(arena, G_LATER)
        if what % KINDS == IS_FETCHED:
            fetched(table, marks, arena, state, what // KINDS, now)
        else:
            join_prefill(marks, arena, state, what // KINDS, now)
    do_asked(table, marks, arena, state, now)
    while first_time(arena, G_LEASES) == now:
        expire(marks, arena, state, take_first(arena, G_LEASES), now)


@kernel
def next_time(table, arena):
    """When the next thing happens."""
    now = min(first_time(arena, G_SENT), first_time(arena, G_ANSWERED), first_time(arena, G_ONWARD))
    now = min(now, first_time(arena, G_LEASES), earliest(arena, G_LATER), earliest(arena, G_TURNS))
    if arena[G_CLOSED] == 0:
        row = arena[G_NEXT_ROW]
        while row < arena[G_ROWS] and table[OUTCOME, row] == REJECTED:
            row += 1
        arena[G_NEXT_ROW] = row
        if row < arena[G_ROWS]:
            now = min(now, table[INTENDED, row])
    for index in range(arena[G_REPLICAS]):
        at = replica_at(arena, index)
        now = min(now, arena[at + R_FORM_NS])
        if arena[at + R_STEPS] > 0:
            now = min(now, arena[step_at(arena, at, 0) + T_END_NS])
    return now


@kernel
def run(table, marks, arena, state, gaps, log, costs_p, params_p, costs_d, params_d, until_ns):
    """Everything before `until_ns`, instant by instant; say why it stopped."""
    while True:
        if arena[G_LOG_ROWS] > 0 and arena[G_LOGGED] + arena[G_REPLICAS] > arena[G_LOG_ROWS]:
            return LOG_IS_FULL
        now = next_time(table, arena)
        if now >= until_ns:
            return DONE
        if arena[G_LONGEST_NS] > LONGEST_STEP or now > LAST_TIME:
            return TOO_LONG
        arena[G_NOW] = now
        index = ends_next(arena, now)
        while index >= 0:
            end_step(table, marks, arena, state, gaps, log, params_p, params_d, index, now)
            index = ends_next(arena, now)
        deliver(table, marks, arena, state, now)
        index = 0
        while index < arena[G_REPLICAS]:
            at = replica_at(arena, index)
            if arena[at + R_FORM_NS] != now:
                index += 1
                continue
            if index < arena[G_PREFILLS]:
                formed = form_ahead(arena, state, marks, RESUMED, costs_p, params_p, at, now)
            else:
                formed = form_ahead(arena, state, marks, RESUMED, costs_d, params_d, at, now)
            if not formed:
                return STUCK
            if arena[G_ASKED_SIZE] > 0:
                do_asked(table, marks, arena, state, now)
                index = 0  # a prompt that may start may have woken a replica whose turn is before others'


@kernel
def close(arena, state, now):
    """The clock stops: settle what is still here."""
    for index in range(arena[G_REPLICAS]):
        at = replica_at(arena, index)
        tally(arena, at, now)
        if arena[at + R_STEPS] > 0:
            arena[at + U_CUT] = now - arena[step_at(arena, at, 0) + T_START_NS]
        look(arena, state, at, now)
        for place in range(arena[at + R_PREEMPTED]):
            row = arena[arena[at + R_STACK] + place]
            state[row, S_WAIT_PREEMPTED_NS] += now - state[row, S_PREEMPTED_NS]
        for place in range(arena[at + R_QUEUED]):
            settle_wait(arena, state, at, arena[arena[at + R_HEAP] + place])
