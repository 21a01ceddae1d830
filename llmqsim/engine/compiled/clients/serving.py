"""Clients of all kinds before compiled replicas: cluster/clients.py in arrays. The simplest kinds have loops of their own
(compiled/sending.py, compiled/loop.py), which know less and are faster.

All goes from one instant to the next together, in the order of clock.py: steps end, then what clients do and what reaches
a replica happens, then steps are formed. Within an instant, clients' events go in the order in which they were thought of,
as SimPy's do (events.py). batcher : compiled/batchers; router : compiled/routers; other arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine.compiled.clients.events import answered, next_number, pop_event, push_event, ready_at
from llmqsim.engine.compiled.clients.sending import reach, send_due, set_free, take_turns
from llmqsim.engine.compiled.clients.timeouts import watch
from llmqsim.engine.compiled.closing import close_all
from llmqsim.engine.compiled.columns import ARRIVAL, FINISH, INTENDED, OUTCOME, TIMED_OUT
from llmqsim.engine.compiled.entries import SEND
from llmqsim.engine.compiled.replica import advance
from llmqsim.engine.compiled.routers import ended, hear_reports, next_report
from llmqsim.engine.compiled.step.rows import step_in_flight
from llmqsim.engine.compiled.world.clients import IS_DUE, IS_FREE, IS_WATCHED, event_at
from llmqsim.engine.compiled.world.limits import DONE, NEVER
from llmqsim.engine.compiled.world.replica import replica_at
from llmqsim.engine.compiled.world.run import run_at
from llmqsim.jit import kernel


@kernel
def hear(router, table, run, arena):
    """Requests have just ended: their clients will see it, unless they give up before."""
    for place in range(run.answered):
        row = arena[run.answers + place]
        ended(router, table, run, arena, row)
        seen_ns = table[FINISH, row]
        if seen_ns <= table[ARRIVAL, row] + run.timeout_ns:
            run.last_client_ns = max(run.last_client_ns, seen_ns)
            answered(table, run, arena, row, seen_ns)
    run.answered = 0


# The run.


@kernel
def next_delivery(table, run, arena):
    """When the next request reaches its replica."""
    if run.before_ns == 0 or run.on_the_way == run.sent:
        return NEVER
    return table[ARRIVAL, arena[run.sent_rows + run.on_the_way]] + run.before_ns


@kernel
def next_instant(router, table, run, arena):
    """When the next thing happens."""
    now = next_delivery(table, run, arena)
    if run.events_size > 0:
        now = min(now, event_at(arena, run.events, 0).time_ns)
    now = min(now, next_report(router, run, arena))
    for index in range(run.replicas):
        now = min(now, arena[run.next_ns + index])
    return now


@kernel
def ends_next(run, arena, now):
    """The replica whose step ends next at this instant, -1 without one: of several, who has waited longest for it."""
    best, since = -1, NEVER
    for index in range(run.replicas):
        replica = replica_at(arena, run.first_replica + index * run.stride)
        if arena[run.next_ns + index] == now and replica.steps > 0:
            step = step_in_flight(run, arena, replica, 0)
            if step.end_ns == now and replica.awaited_since_ns < since:
                best, since = index, replica.awaited_since_ns
    return best


@kernel
def happen(batcher, router, table, run, arena, costs, now):
    """All that clients do at this instant, and all that reaches a replica."""
    while True:
        has_event = run.events_size > 0 and event_at(arena, run.events, 0).time_ns == now
        if next_delivery(table, run, arena) == now:
            place = run.on_the_way
            if not has_event or arena[run.sent_order + place] < event_at(arena, run.events, 0).number:
                run.on_the_way += 1
                row = arena[run.sent_rows + place]
                if table[OUTCOME, row] != TIMED_OUT:
                    reach(table, run, arena, row, now)
                continue
        if not has_event:
            return
        run.last_turn_ns = now
        kind, client = pop_event(run, arena)
        if kind == IS_DUE:
            send_due(router, table, run, arena, costs, now)
        elif kind == IS_FREE:
            set_free(router, table, run, arena, costs, now)
        elif kind == IS_WATCHED:
            watch(batcher, router, table, run, arena, now)
        else:
            take_turns(router, table, run, arena, costs, now, client, kind)


@kernel
def serve_all(batcher, router, table, run, arena, costs, params, until_ns):
    """Run clients and replicas up to all that is before `until_ns`, instant by instant; say why it stopped."""
    while True:
        now = next_instant(router, table, run, arena)
        if now >= until_ns:
            return DONE
        index = ends_next(run, arena, now)
        while index >= 0:
            replica = replica_at(arena, run.first_replica + index * run.stride)
            code = advance(batcher, table, run, arena, costs, params, replica, now, now)
            if code != DONE:
                return code
            hear(router, table, run, arena)
            index = ends_next(run, arena, now)
        if next_report(router, run, arena) == now:
            hear_reports(router, table, run, arena, now)
        happen(batcher, router, table, run, arena, costs, now)
        for index in range(run.replicas):
            if arena[run.next_ns + index] == now:
                replica = replica_at(arena, run.first_replica + index * run.stride)
                code = advance(batcher, table, run, arena, costs, params, replica, now - 1, now + 1)
                if code != DONE:
                    return code


@kernel
def begin(table, run, arena):
    """Clients of loops start, in turn over the ramp-up; then the first of the other rows is looked at."""
    if run.open_size > 0:
        push_event(run, arena, table[INTENDED, arena[run.open]], next_number(run), 0, IS_DUE)


@kernel
def entry(batcher, router, table, arena, costs, params, what, first, last):
    """Clients of all kinds."""
    run = run_at(arena, 0)
    if what == SEND:
        return serve_all(batcher, router, table, run, arena, costs, params, first)
    return close_all(batcher, table, run, arena, first)


@kernel
def start(table, arena, starts_ns):
    """Clients of loops start, starts_ns int64[clients, 3] : (loop, when, its number); then the first other row is looked at."""
    run = run_at(arena, 0)
    for place in range(len(starts_ns)):
        ready_at(run, arena, starts_ns[place, 0], starts_ns[place, 1], starts_ns[place, 2])
    begin(table, run, arena)
