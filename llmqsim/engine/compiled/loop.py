"""A closed loop over compiled replicas: clients that send, wait for the answer, pause, and send again.

Nobody may run ahead of an instant at which another's answer could lead to a request, so all replicas and clients go from
one instant to the next together. Arguments as in step/; the turns to come are a heap of (time, client).
"""

from __future__ import annotations

from llmqsim.engine.compiled.closing import close_all
from llmqsim.engine.compiled.columns import ARRIVAL, CLIENT, FINISH, INTENDED, OUTCOME, REJECTED, THINK
from llmqsim.engine.compiled.entries import SEND
from llmqsim.engine.compiled.replica import advance
from llmqsim.engine.compiled.routers import ended
from llmqsim.engine.compiled.sending import send
from llmqsim.engine.compiled.world.clients import turn_at
from llmqsim.engine.compiled.world.limits import DONE, NEVER
from llmqsim.engine.compiled.world.replica import replica_at
from llmqsim.engine.compiled.world.run import run_at
from llmqsim.jit import kernel


@kernel
def before(run, arena, one, other):
    """Is the turn at place `one` of the heap earlier than the one at `other`? At the same time, lower clients first."""
    turn, later = turn_at(arena, run.turns, one), turn_at(arena, run.turns, other)
    if turn.time_ns != later.time_ns:
        return turn.time_ns < later.time_ns
    return turn.client < later.client


@kernel
def swap(run, arena, one, other):
    """Exchange two places of the heap."""
    first, second = turn_at(arena, run.turns, one), turn_at(arena, run.turns, other)
    first.time_ns, second.time_ns = second.time_ns, first.time_ns
    first.client, second.client = second.client, first.client


@kernel
def push_turn(run, arena, time, client):
    """This client wants its next request then."""
    place = run.turns_size
    run.turns_size += 1
    turn = turn_at(arena, run.turns, place)
    turn.time_ns, turn.client = time, client
    while place > 0 and before(run, arena, place, (place - 1) // 2):
        swap(run, arena, place, (place - 1) // 2)
        place = (place - 1) // 2


@kernel
def pop_turn(run, arena):
    """Take the earliest turn off the heap: (time, client)."""
    turn, size = turn_at(arena, run.turns, 0), run.turns_size - 1
    time, client = turn.time_ns, turn.client
    run.turns_size = size
    swap(run, arena, 0, size)
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and before(run, arena, child + 1, child):
            child += 1
        if not before(run, arena, child, place):
            break
        swap(run, arena, child, place)
        place = child
    return time, client


@kernel
def answer(router, table, run, arena):
    """The clients whose requests have just ended will see the last token, turn around, think, and come back."""
    for place in range(run.answered):
        row = arena[run.answers + place]
        ended(router, table, run, arena, row)
        push_turn(run, arena, table[FINISH, row] + run.turnaround_ns + table[THINK, row], table[CLIENT, row])
    run.answered = 0


@kernel
def take_turns(router, table, run, arena, costs, now):
    """All clients whose turn is now, by number. Those who come back at once take their turn after them."""
    due = 0
    while run.turns_size > 0 and turn_at(arena, run.turns, 0).time_ns == now:
        _, client = pop_turn(run, arena)
        arena[run.due + due] = client
        due += 1
    for place in range(due):
        take_turn(router, table, run, arena, costs, now, arena[run.due + place])


@kernel
def take_turn(router, table, run, arena, costs, now, client):
    """A client sends the next row, if one is left and it is not too late. What the servers refuse is answered at once."""
    run.last_turn_ns = now
    row = run.next_row
    if row >= run.rows or now >= run.stop_ns:
        return
    run.next_row += 1
    table[CLIENT, row] = client
    table[INTENDED, row] = now
    if table[OUTCOME, row] == REJECTED:
        table[ARRIVAL, row] = now
        push_turn(run, arena, now + run.turnaround_ns + table[THINK, row], client)
    else:
        send(router, table, run, arena, costs, row, now)


@kernel
def next_event(run, arena):
    """When the next thing happens, in a replica or by a client."""
    now = turn_at(arena, run.turns, 0).time_ns if run.turns_size > 0 else NEVER
    for index in range(run.replicas):
        now = min(now, arena[run.next_ns + index])
    return now


@kernel
def serve(batcher, router, table, run, arena, costs, params, until_ns):
    """Run clients and replicas up to all that is before `until_ns`, instant by instant; say why it stopped."""
    while True:
        now = next_event(run, arena)
        if now >= until_ns:
            return DONE
        for index in range(run.replicas):  # what ends now ends first; its client may come back at once
            if arena[run.next_ns + index] == now:
                replica = replica_at(arena, run.first_replica + index * run.stride)
                code = advance(batcher, table, run, arena, costs, params, replica, now, now)
                if code != DONE:
                    return code
                answer(router, table, run, arena)
        while run.turns_size > 0 and turn_at(arena, run.turns, 0).time_ns == now:
            take_turns(router, table, run, arena, costs, now)
        for index in range(run.replicas):  # then it is delivered, and steps are formed
            if arena[run.next_ns + index] == now:
                replica = replica_at(arena, run.first_replica + index * run.stride)
                code = advance(batcher, table, run, arena, costs, params, replica, now, now + 1)
                if code != DONE:
                    return code


@kernel
def entry(batcher, router, table, arena, costs, params, what, first, last):
    """One closed loop."""
    run = run_at(arena, 0)
    if what == SEND:
        return serve(batcher, router, table, run, arena, costs, params, first)
    return close_all(batcher, table, run, arena, first)
