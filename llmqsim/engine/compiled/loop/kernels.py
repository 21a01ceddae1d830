"""A closed loop over compiled replicas: clients that send, wait for the answer, pause, and send again.

Nobody may run ahead of an instant at which another's answer could lead to a request, so all replicas and clients go from
one instant to the next together. Arguments as in step/; the turns to come are a heap of (time, client).
"""

from __future__ import annotations

from llmqsim.engine.compiled.columns import CLIENT, FINISH, INTENDED, THINK
from llmqsim.engine.compiled.kernels import ARRIVAL, OUTCOME, REJECTED, advance, send
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.routers import ended
from llmqsim.jit import kernel


@kernel
def before(arena, one, other):
    """Is the turn at place `one` of the heap earlier than the one at `other`? At the same time, lower clients first."""
    turns = arena[G_TURNS]
    time, later = arena[turns + 2 * one], arena[turns + 2 * other]
    return time < later or (time == later and arena[turns + 2 * one + 1] < arena[turns + 2 * other + 1])


@kernel
def swap(arena, one, other):
    """Exchange two places of the heap."""
    for word in range(2):
        first, second = arena[G_TURNS] + 2 * one + word, arena[G_TURNS] + 2 * other + word
        arena[first], arena[second] = arena[second], arena[first]


@kernel
def push_turn(arena, time, client):
    """This client wants its next request then."""
    place = arena[G_TURNS_SIZE]
    arena[G_TURNS_SIZE] += 1
    arena[arena[G_TURNS] + 2 * place] = time
    arena[arena[G_TURNS] + 2 * place + 1] = client
    while place > 0 and before(arena, place, (place - 1) // 2):
        swap(arena, place, (place - 1) // 2)
        place = (place - 1) // 2


@kernel
def pop_turn(arena):
    """Take the earliest turn off the heap: (time, client)."""
    time, client = arena[arena[G_TURNS]], arena[arena[G_TURNS] + 1]
    size = arena[G_TURNS_SIZE] - 1
    arena[G_TURNS_SIZE] = size
    swap(arena, 0, size)
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and before(arena, child + 1, child):
            child += 1
        if not before(arena, child, place):
            break
        swap(arena, child, place)
        place = child
    return time, client


@kernel
def answer(router, table, arena):
    """The clients whose requests have just ended will see the last token, turn around, think, and come back."""
    for place in range(arena[G_ANSWERED]):
        row = arena[arena[G_ANSWERS] + place]
        ended(router, table, arena, row)
        push_turn(arena, table[FINISH, row] + arena[G_TURNAROUND_NS] + table[THINK, row], table[CLIENT, row])
    arena[G_ANSWERED] = 0


@kernel
def take_turns(router, table, arena, costs, now):
    """All clients whose turn is now, by number. Those who come back at once take their turn after them."""
    due = 0
    while arena[G_TURNS_SIZE] > 0 and arena[arena[G_TURNS]] == now:
        _, client = pop_turn(arena)
        arena[arena[G_DUE] + due] = client
        due += 1
    for place in range(due):
        take_turn(router, table, arena, costs, now, arena[arena[G_DUE] + place])


@kernel
def take_turn(router, table, arena, costs, now, client):
    """A client sends the next row, if one is left and it is not too late. What the servers refuse is answered at once."""
    arena[G_LAST_TURN_NS] = now
    row = arena[G_NEXT_ROW]
    if row >= arena[G_ROWS] or now >= arena[G_STOP_NS]:
        return
    arena[G_NEXT_ROW] += 1
    table[CLIENT, row] = client
    table[INTENDED, row] = now
    if table[OUTCOME, row] == REJECTED:
        table[ARRIVAL, row] = now
        push_turn(arena, now + arena[G_TURNAROUND_NS] + table[THINK, row], client)
    else:
        send(router, table, arena, costs, row, now)


@kernel
def next_event(arena):
    """When the next thing happens, in a replica or by a client."""
    now = arena[arena[G_TURNS]] if arena[G_TURNS_SIZE] > 0 else NEVER
    for index in range(arena[G_REPLICAS]):
        now = min(now, arena[arena[G_NEXT_NS] + index])
    return now


@kernel
def serve(batcher, router, table, arena, costs, params, until_ns):
    """Run clients and replicas up to all that is before `until_ns`, instant by instant; say why it stopped."""
    while True:
        now = next_event(arena)
        if now >= until_ns:
            return DONE
        for index in range(arena[G_REPLICAS]):  # what ends now ends first; its client may come back at once
            if arena[arena[G_NEXT_NS] + index] == now:
                base = arena[G_FIRST_REPLICA] + index * arena[G_STRIDE]
                code = advance(batcher, table, arena, costs, params, base, now, now)
                if code != DONE:
                    return code
                answer(router, table, arena)
        while arena[G_TURNS_SIZE] > 0 and arena[arena[G_TURNS]] == now:
            take_turns(router, table, arena, costs, now)
        for index in range(arena[G_REPLICAS]):  # then it is delivered, and steps are formed
            if arena[arena[G_NEXT_NS] + index] == now:
                base = arena[G_FIRST_REPLICA] + index * arena[G_STRIDE]
                code = advance(batcher, table, arena, costs, params, base, now, now + 1)
                if code != DONE:
                    return code
