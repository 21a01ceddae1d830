"""Requests leave clients of all kinds: when they are due, under a cap, or at a loop's turn. batcher : compiled/batchers;
router : compiled/routers; other arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine.compiled.clients.events import answered, next_number, pop_event, push_event, ready_at
from llmqsim.engine.compiled.columns import ARRIVAL, CLIENT, INTENDED, OUTCOME, REJECTED, REPLICA_OF
from llmqsim.engine.compiled.queue import chain
from llmqsim.engine.compiled.replica import take_in
from llmqsim.engine.compiled.routers import admit, choose, look
from llmqsim.engine.compiled.world.clients import IDLE, IS_DUE, IS_TURN, IS_WATCHED, NO_HOLD, WOKEN, event_at, loop_at
from llmqsim.engine.compiled.world.limits import NEVER
from llmqsim.engine.compiled.world.queue import NOBODY_IN_LINE, entry_at
from llmqsim.engine.compiled.world.replica import replica_at
from llmqsim.jit import kernel

# Sending, and what comes back.


@kernel
def send_now(router, table, run, arena, costs, row, now):
    """A request leaves its client: it may not enter, which takes no time, or the router chooses a replica."""
    run.last_client_ns = max(run.last_client_ns, now)
    table[ARRIVAL, row] = now
    if run.timeout_ns != NEVER and run.watch == IDLE:
        run.watch = WOKEN
        push_event(run, arena, now, next_number(run), 0, IS_WATCHED)
    look(router, table, run, arena, now)
    if not admit(router, table, run, arena, costs, row, now):
        answered(table, run, arena, row, now)
        return
    table[REPLICA_OF, row] = choose(router, table, run, arena, costs, row)
    arena[run.sent_rows + run.sent] = row
    if run.before_ns == 0:
        reach(table, run, arena, row, now)
    else:
        arena[run.sent_order + run.sent] = next_number(run)
    run.sent += 1


@kernel
def reach(table, run, arena, row, now):
    """A request reaches its replica."""
    index = table[REPLICA_OF, row]
    replica, next_ns = replica_at(arena, run.first_replica + index * run.stride), run.next_ns + index
    entry_at(arena, run.queue, row).slot = NOBODY_IN_LINE
    chain(run, arena, replica, row)
    take_in(table, run, arena, replica, row, now)
    arena[next_ns] = min(arena[next_ns], replica.form_ns)


# What can happen.


@kernel
def send_due(router, table, run, arena, costs, now):
    """Rows of no loop that are due go, or wait under the cap."""
    while run.open_due < run.open_size:
        row = arena[run.open + run.open_due]
        if table[INTENDED, row] > now:
            push_event(run, arena, table[INTENDED, row], next_number(run), 0, IS_DUE)
            return
        run.open_due += 1
        if run.cap == 0 or run.in_use < run.cap:
            send_next(router, table, run, arena, costs, now)


@kernel
def send_next(router, table, run, arena, costs, now):
    """The first of those that are due goes."""
    row = arena[run.open + run.open_sent]
    run.open_sent += 1
    run.in_use += 1
    send_now(router, table, run, arena, costs, row, now)


@kernel
def set_free(router, table, run, arena, costs, now):
    """A place under the cap is free."""
    run.in_use -= 1
    if run.open_sent < run.open_due:
        send_next(router, table, run, arena, costs, now)


@kernel
def take_turns(router, table, run, arena, costs, now, first, kind):
    """Clients of a loop that are ready in this event, by number; `first` is off the heap already."""
    number, due = event_at(arena, run.events, run.events_size).number, 1
    arena[run.due] = first
    while run.events_size > 0 and event_at(arena, run.events, 0).number == number:
        _, client = pop_event(run, arena)
        arena[run.due + due] = client
        due += 1
    loop = loop_at(arena, run.loops, kind - IS_TURN)
    for place in range(due):
        if loop.left == 0 or now >= loop.stop_ns:
            return
        client = arena[run.due + place]
        if loop.left == loop.hold:
            hold_back(run, arena, loop, kind - IS_TURN, client, now)
        else:
            take_row(router, table, run, arena, costs, loop, client, now)


@kernel
def hold_back(run, arena, loop, index, client, now):
    """Warm-up is over for this client; when it is for all of them, all go on."""
    arena[loop.held_clients + loop.held] = client
    loop.held += 1
    if loop.held == loop.clients:
        loop.hold = NO_HOLD
        for place in range(loop.held):
            ready_at(run, arena, index, now, arena[loop.held_clients + place])


@kernel
def take_row(router, table, run, arena, costs, loop, client, now):
    """A client sends the next row of its loop. What the servers refuse is answered at once."""
    row = arena[loop.rows]
    loop.rows += 1
    loop.left -= 1
    table[CLIENT, row] = client
    table[INTENDED, row] = now
    if table[OUTCOME, row] == REJECTED:
        table[ARRIVAL, row] = now
        answered(table, run, arena, row, now)
    else:
        send_now(router, table, run, arena, costs, row, now)
