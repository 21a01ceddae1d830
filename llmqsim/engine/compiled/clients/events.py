"""What clients will do, as a heap of (time, number, client): each event gets the next number when it is thought of.

A closed loop's clients that are ready in one instant share an event and go by number. Requests on their way are no events,
as they are always delivered in the order of sending.
"""

from __future__ import annotations

from llmqsim.engine.compiled.columns import CLIENT, THINK
from llmqsim.engine.compiled.world.clients import IS_FREE, IS_TURN, event_at
from llmqsim.jit import kernel


@kernel
def comes_before(run, arena, one, other):
    """Is the event at the first place of the heap earlier than the other?"""
    event, later = event_at(arena, run.events, one), event_at(arena, run.events, other)
    if event.time_ns != later.time_ns:
        return event.time_ns < later.time_ns
    if event.number != later.number:
        return event.number < later.number
    return event.client < later.client


@kernel
def swap_events(run, arena, one, other):
    """Exchange two places."""
    first, second = event_at(arena, run.events, one), event_at(arena, run.events, other)
    first.time_ns, second.time_ns = second.time_ns, first.time_ns
    first.number, second.number = second.number, first.number
    first.client, second.client = second.client, first.client
    first.kind, second.kind = second.kind, first.kind


@kernel
def next_number(run):
    """One more event is thought of."""
    run.number += 1
    return run.number


@kernel
def push_event(run, arena, time, number, client, kind):
    """Something will happen."""
    place = run.events_size
    run.events_size += 1
    event = event_at(arena, run.events, place)
    event.time_ns = time
    event.number = number
    event.client = client
    event.kind = kind
    while place > 0 and comes_before(run, arena, place, (place - 1) // 2):
        swap_events(run, arena, place, (place - 1) // 2)
        place = (place - 1) // 2


@kernel
def pop_event(run, arena):
    """Take the first event off; returns (its kind, its client)."""
    size = run.events_size - 1
    run.events_size = size
    swap_events(run, arena, 0, size)
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and comes_before(run, arena, child + 1, child):
            child += 1
        if not comes_before(run, arena, child, place):
            break
        swap_events(run, arena, child, place)
        place = child
    return event_at(arena, run.events, size).kind, event_at(arena, run.events, size).client


@kernel
def answered(table, run, arena, row, seen_ns):
    """A client is done with its request: a loop's comes back, another's place under the cap is free."""
    loop = arena[run.loop_of + row]
    if loop >= 0:
        ready_at(run, arena, loop, seen_ns + run.turnaround_ns + table[THINK, row], table[CLIENT, row])
    elif run.cap > 0:
        push_event(run, arena, seen_ns + run.turnaround_ns, next_number(run), 0, IS_FREE)


@kernel
def ready_at(run, arena, loop, time, client):
    """This client wants its next request then, together with those of its loop that want theirs at the same time."""
    for place in range(run.events_size):
        event = event_at(arena, run.events, place)
        if event.time_ns == time and event.kind == IS_TURN + loop:
            push_event(run, arena, time, event.number, client, IS_TURN + loop)
            return
    push_event(run, arena, time, next_number(run), client, IS_TURN + loop)
