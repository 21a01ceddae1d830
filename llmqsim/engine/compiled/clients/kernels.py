"""Clients of all kinds before compiled replicas: cluster/clients.py in arrays. The simplest kinds have loops of their own
(`route` in compiled/kernels.py, loop/kernels.py), which know less and are faster.

All goes from one instant to the next together, in the order of clock.py: steps end, then what clients do and what reaches
a replica happens, then steps are formed. Within an instant, clients' events go in the order in which they were thought of,
as SimPy's do: each gets the next number (G_ORDER) when it is. Events are a heap of (time, number, client); requests on
their way are none of them, as they are always delivered in the order of sending. A closed loop's clients that are ready
in one instant share an event and go by number.

batcher : compiled/batchers; router : compiled/routers; other arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine.compiled.columns import (
    ARRIVAL,
    CLIENT,
    FINISH,
    FIRST_TOKEN,
    GAVE_UP,
    INTENDED,
    OUTCOME,
    REJECTED,
    REPLICA_OF,
    THINK,
    TIMED_OUT,
)
from llmqsim.engine.compiled.kernels import advance, take_in
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.queue.kernels import chain, entry_at
from llmqsim.engine.compiled.routers import admit, choose, ended, hear_reports, look, next_report
from llmqsim.engine.compiled.step.ending.kernels import abort
from llmqsim.engine.compiled.step.rows.kernels import step_at
from llmqsim.jit import kernel
from llmqsim.requests import UNSET


# Events.


@kernel
def event_at(arena, place):
    """Where an event lies."""
    return arena[G_EVENTS] + place * EVENT


@kernel
def comes_before(arena, one, other):
    """Is the event at the first place of the heap earlier than the other?"""
    at, later = event_at(arena, one), event_at(arena, other)
    for word in range(E_KIND):
        if arena[at + word] != arena[later + word]:
            return arena[at + word] < arena[later + word]
    return False


@kernel
def swap_events(arena, one, other):
    """Exchange two places."""
    for word in range(EVENT):
        first, second = event_at(arena, one) + word, event_at(arena, other) + word
        arena[first], arena[second] = arena[second], arena[first]


@kernel
def next_number(arena):
    """One more event is thought of."""
    arena[G_ORDER] += 1
    return arena[G_ORDER]


@kernel
def push_event(arena, time, number, client, kind):
    """Something will happen."""
    place = arena[G_EVENTS_SIZE]
    arena[G_EVENTS_SIZE] += 1
    at = event_at(arena, place)
    arena[at + E_TIME_NS] = time
    arena[at + E_ORDER] = number
    arena[at + E_CLIENT] = client
    arena[at + E_KIND] = kind
    while place > 0 and comes_before(arena, place, (place - 1) // 2):
        swap_events(arena, place, (place - 1) // 2)
        place = (place - 1) // 2


@kernel
def pop_event(arena):
    """Take the first event off; returns (its kind, its client)."""
    size = arena[G_EVENTS_SIZE] - 1
    arena[G_EVENTS_SIZE] = size
    swap_events(arena, 0, size)
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and comes_before(arena, child + 1, child):
            child += 1
        if not comes_before(arena, child, place):
            break
        swap_events(arena, child, place)
        place = child
    return arena[event_at(arena, size) + E_KIND], arena[event_at(arena, size) + E_CLIENT]


# Sending, and what comes back.


@kernel
def send_now(router, table, arena, costs, row, now):
    """A request leaves its client: it may not enter, which takes no time, or the router chooses a replica."""
    arena[G_LAST_CLIENT_NS] = max(arena[G_LAST_CLIENT_NS], now)
    table[ARRIVAL, row] = now
    if arena[G_TIMEOUT_NS] != NEVER and arena[G_WATCH] == IDLE:
        arena[G_WATCH] = WOKEN
        push_event(arena, now, next_number(arena), 0, IS_WATCHED)
    look(router, table, arena, now)
    if not admit(router, table, arena, costs, row, now):
        answered(table, arena, row, now)
        return
    table[REPLICA_OF, row] = choose(router, table, arena, costs, row)
    arena[arena[G_SENT_ROWS] + arena[G_SENT]] = row
    if arena[G_BEFORE_NS] == 0:
        reach(table, arena, row, now)
    else:
        arena[arena[G_SENT_ORDER] + arena[G_SENT]] = next_number(arena)
    arena[G_SENT] += 1


@kernel
def reach(table, arena, row, now):
    """A request reaches its replica."""
    index = table[REPLICA_OF, row]
    base, next_ns = arena[G_FIRST_REPLICA] + index * arena[G_STRIDE], arena[G_NEXT_NS] + index
    arena[entry_at(arena, row) + Q_SLOT] = NOBODY_IN_LINE
    chain(arena, base, row)
    take_in(table, arena, base, row, now)
    arena[next_ns] = min(arena[next_ns], arena[base + R_FORM_NS])


@kernel
def answered(table, arena, row, seen_ns):
    """A client is done with its request: a loop's comes back, another's place under the cap is free."""
    loop = arena[arena[G_LOOP_OF] + row]
    if loop >= 0:
        ready_at(arena, loop, seen_ns + arena[G_TURNAROUND_NS] + table[THINK, row], table[CLIENT, row])
    elif arena[G_CAP] > 0:
        push_event(arena, seen_ns + arena[G_TURNAROUND_NS], next_number(arena), 0, IS_FREE)


@kernel
def ready_at(arena, loop, time, client):
    """This client wants its next request then, together with those of its loop that want theirs at the same time."""
    for at in range(arena[G_EVENTS], event_at(arena, arena[G_EVENTS_SIZE]), EVENT):
        if arena[at + E_TIME_NS] == time and arena[at + E_KIND] == IS_TURN + loop:
            push_event(arena, time, arena[at + E_ORDER], client, IS_TURN + loop)
            return
    push_event(arena, time, next_number(arena), client, IS_TURN + loop)


@kernel
def hear(router, table, arena):
    """Requests have just ended: their clients will see it, unless they give up before."""
    for place in range(arena[G_ANSWERED]):
        row = arena[arena[G_ANSWERS] + place]
        ended(router, table, arena, row)
        seen_ns = table[FINISH, row]
        if seen_ns <= table[ARRIVAL, row] + arena[G_TIMEOUT_NS]:
            arena[G_LAST_CLIENT_NS] = max(arena[G_LAST_CLIENT_NS], seen_ns)
            answered(table, arena, row, seen_ns)
    arena[G_ANSWERED] = 0


# What can happen.


@kernel
def send_due(router, table, arena, costs, now):
    """Rows of no loop that are due go, or wait under the cap."""
    while arena[G_OPEN_DUE] < arena[G_OPEN_SIZE]:
        row = arena[arena[G_OPEN] + arena[G_OPEN_DUE]]
        if table[INTENDED, row] > now:
            push_event(arena, table[INTENDED, row], next_number(arena), 0, IS_DUE)
            return
        arena[G_OPEN_DUE] += 1
        if arena[G_CAP] == 0 or arena[G_IN_USE] < arena[G_CAP]:
            send_next(router, table, arena, costs, now)


@kernel
def send_next(router, table, arena, costs, now):
    """The first of those that are due goes."""
    row = arena[arena[G_OPEN] + arena[G_OPEN_SENT]]
    arena[G_OPEN_SENT] += 1
    arena[G_IN_USE] += 1
    send_now(router, table, arena, costs, row, now)


@kernel
def set_free(router, table, arena, costs, now):
    """A place under the cap is free."""
    arena[G_IN_USE] -= 1
    if arena[G_OPEN_SENT] < arena[G_OPEN_DUE]:
        send_next(router, table, arena, costs, now)


@kernel
def take_turns(router, table, arena, costs, now, first, kind):
    """Clients of a loop that are ready in this event, by number; `first` is off the heap already."""
    number, due = arena[event_at(arena, arena[G_EVENTS_SIZE]) + E_ORDER], 1
    arena[arena[G_DUE]] = first
    while arena[G_EVENTS_SIZE] > 0 and arena[event_at(arena, 0) + E_ORDER] == number:
        _, client = pop_event(arena)
        arena[arena[G_DUE] + due] = client
        due += 1
    loop = arena[G_LOOPS] + (kind - IS_TURN) * LOOP
    for place in range(due):
        if arena[loop + L_LEFT] == 0 or now >= arena[loop + L_STOP_NS]:
            return
        client = arena[arena[G_DUE] + place]
        if arena[loop + L_LEFT] == arena[loop + L_HOLD]:
            hold_back(arena, loop, kind - IS_TURN, client, now)
        else:
            take_row(router, table, arena, costs, loop, client, now)


@kernel
def hold_back(arena, loop, index, client, now):
    """Warm-up is over for this client; when it is for all of them, all go on."""
    arena[arena[loop + L_HELD_CLIENTS] + arena[loop + L_HELD]] = client
    arena[loop + L_HELD] += 1
    if arena[loop + L_HELD] == arena[loop + L_CLIENTS]:
        arena[loop + L_HOLD] = NO_HOLD
        for place in range(arena[loop + L_HELD]):
            ready_at(arena, index, now, arena[arena[loop + L_HELD_CLIENTS] + place])


@kernel
def take_row(router, table, arena, costs, loop, client, now):
    """A client sends the next row of its loop. What the servers refuse is answered at once."""
    row = arena[arena[loop + L_ROWS]]
    arena[loop + L_ROWS] += 1
    arena[loop + L_LEFT] -= 1
    table[CLIENT, row] = client
    table[INTENDED, row] = now
    if table[OUTCOME, row] == REJECTED:
        table[ARRIVAL, row] = now
        answered(table, arena, row, now)
    else:
        send_now(router, table, arena, costs, row, now)


@kernel
def watch(batcher, router, table, arena, now):
    """Look at the request whose time is up, and note when the next one's is; the order of sending is that of deadlines."""
    if arena[G_WATCH] == WATCHING:
        row = arena[arena[G_SENT_ROWS] + arena[G_WATCHED]]
        if not is_answered(table, arena, row):
            give_up(batcher, router, table, arena, row, now)
        arena[G_WATCHED] += 1
    while arena[G_WATCHED] < arena[G_SENT]:
        row = arena[arena[G_SENT_ROWS] + arena[G_WATCHED]]
        if not is_answered(table, arena, row):
            arena[G_WATCH] = WATCHING
            push_event(arena, table[ARRIVAL, row] + arena[G_TIMEOUT_NS], next_number(arena), 0, IS_WATCHED)
            return
        arena[G_WATCHED] += 1
    arena[G_WATCH] = IDLE


@kernel
def is_answered(table, arena, row):
    """Is it known that the answer is complete in time?"""
    return UNSET < table[FINISH, row] <= table[ARRIVAL, row] + arena[G_TIMEOUT_NS]


@kernel
def give_up(batcher, router, table, arena, row, now):
    """The client hangs up. The last token may be on its way to it; if not, the servers are told to stop."""
    index = table[REPLICA_OF, row]
    if table[FINISH, row] == UNSET:
        if arena[entry_at(arena, row) + Q_SLOT] != NOT_DELIVERED:
            abort(batcher, table, arena, arena[G_FIRST_REPLICA] + index * arena[G_STRIDE], row, now)
        arena[arena[G_OUTSTANDING] + index] -= 1
        ended(router, table, arena, row)
    table[OUTCOME, row] = TIMED_OUT
    table[FINISH, row] = UNSET
    if table[FIRST_TOKEN, row] > now:
        table[FIRST_TOKEN, row] = UNSET
    table[GAVE_UP, row] = now
    arena[G_LAST_CLIENT_NS] = max(arena[G_LAST_CLIENT_NS], now)
    answered(table, arena, row, now)


# The run.


@kernel
def next_delivery(table, arena):
    """When the next request reaches its replica."""
    if arena[G_BEFORE_NS] == 0 or arena[G_ON_THE_WAY] == arena[G_SENT]:
        return NEVER
    return table[ARRIVAL, arena[arena[G_SENT_ROWS] + arena[G_ON_THE_WAY]]] + arena[G_BEFORE_NS]


@kernel
def next_instant(router, table, arena):
    """When the next thing happens."""
    now = next_delivery(table, arena)
    if arena[G_EVENTS_SIZE] > 0:
        now = min(now, arena[event_at(arena, 0) + E_TIME_NS])
    now = min(now, next_report(router, arena))
    for index in range(arena[G_REPLICAS]):
        now = min(now, arena[arena[G_NEXT_NS] + index])
    return now


@kernel
def ends_next(arena, now):
    """The replica whose step ends next at this instant, -1 without one: of several, who has waited longest for it."""
    best, since = -1, NEVER
    for index in range(arena[G_REPLICAS]):
        base = arena[G_FIRST_REPLICA] + index * arena[G_STRIDE]
        if arena[arena[G_NEXT_NS] + index] == now and arena[base + R_STEPS] > 0:
            step = step_at(arena, base, 0)
            if arena[step + T_END_NS] == now and arena[base + R_AWAITED_SINCE_NS] < since:
                best, since = index, arena[base + R_AWAITED_SINCE_NS]
    return best


@kernel
def happen(batcher, router, table, arena, costs, now):
    """All that clients do at this instant, and all that reaches a replica."""
    while True:
        has_event = arena[G_EVENTS_SIZE] > 0 and arena[event_at(arena, 0) + E_TIME_NS] == now
        if next_delivery(table, arena) == now:
            place = arena[G_ON_THE_WAY]
            if not has_event or arena[arena[G_SENT_ORDER] + place] < arena[event_at(arena, 0) + E_ORDER]:
                arena[G_ON_THE_WAY] += 1
                row = arena[arena[G_SENT_ROWS] + place]
                if table[OUTCOME, row] != TIMED_OUT:
                    reach(table, arena, row, now)
                continue
        if not has_event:
            return
        arena[G_LAST_TURN_NS] = now
        kind, client = pop_event(arena)
        if kind == IS_DUE:
            send_due(router, table, arena, costs, now)
        elif kind == IS_FREE:
            set_free(router, table, arena, costs, now)
        elif kind == IS_WATCHED:
            watch(batcher, router, table, arena, now)
        else:
            take_turns(router, table, arena, costs, now, client, kind)


@kernel
def serve_all(batcher, router, table, arena, costs, params, until_ns):
    """Run clients and replicas up to all that is before `until_ns`, instant by instant; say why it stopped."""
    while True:
        now = next_instant(router, table, arena)
        if now >= until_ns:
            return DONE
        index = ends_next(arena, now)
        while index >= 0:
            base = arena[G_FIRST_REPLICA] + index * arena[G_STRIDE]
            code = advance(batcher, table, arena, costs, params, base, now, now)
            if code != DONE:
                return code
            hear(router, table, arena)
            index = ends_next(arena, now)
        if next_report(router, arena) == now:
            hear_reports(router, table, arena, now)
        happen(batcher, router, table, arena, costs, now)
        for index in range(arena[G_REPLICAS]):
            if arena[arena[G_NEXT_NS] + index] == now:
                base = arena[G_FIRST_REPLICA] + index * arena[G_STRIDE]
                code = advance(batcher, table, arena, costs, params, base, now - 1, now + 1)
                if code != DONE:
                    return code


@kernel
def begin(table, arena):
    """Clients of loops start, in turn over the ramp-up; then the first of the other rows is looked at."""
    if arena[G_OPEN_SIZE] > 0:
        push_event(arena, table[INTENDED, arena[arena[G_OPEN]]], next_number(arena), 0, IS_DUE)
