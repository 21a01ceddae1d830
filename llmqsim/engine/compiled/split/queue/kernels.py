"""The waiting queue of a replica, and what its time goes into: engine/queue.py and the integrals of engine/book.py.

Arguments as in replica/kernels.py.
"""

from __future__ import annotations

from llmqsim.engine.compiled.books import add
from llmqsim.engine.compiled.split.layout import *  # names of words, nothing else
from llmqsim.engine.compiled.world.books import whole_at
from llmqsim.jit import kernel


@kernel
def all_waiting(arena, at):
    """Requests that wait: new and preempted ones, and those whose KV is to come."""
    return arena[at + R_QUEUED] + arena[at + R_PREEMPTED] + arena[at + R_INCOMING]


@kernel
def tally(arena, at, now):
    """Add the time since the last change to the integrals."""
    elapsed = now - arena[at + R_SINCE_NS]
    if elapsed > 0:
        add(whole_at(arena, at + U_RUNNING), elapsed * arena[at + R_RUNNING])
        add(whole_at(arena, at + U_WAITING), elapsed * all_waiting(arena, at))
        add(whole_at(arena, at + U_BLOCKS), elapsed * (arena[at + R_USABLE] - arena[at + R_FREE]))
        if arena[at + R_STEPS] > 0:
            add(whole_at(arena, at + U_BUSY), elapsed)
        arena[at + R_SINCE_NS] = now


@kernel
def look(arena, state, at, now):
    """The scheduler looks at the queue: the clocks go on, and new requests note them."""
    arena[at + R_CLOCKS + arena[at + R_BLOCKED_BY]] += now - arena[at + R_CLOCK_NS]
    arena[at + R_CLOCK_NS] = now
    fresh = arena[at + R_FRESH_ROWS]
    for place in range(arena[at + R_FRESH]):
        row = arena[fresh + place]
        for reason in range(4):
            state[row, S_ENTRY + reason] = arena[at + R_CLOCKS + reason]
        state[row, S_WAIT] += now - state[row, S_DELIVERED_NS]
    arena[at + R_FRESH] = 0


@kernel
def settle_wait(arena, state, at, row):
    """A request that was new leaves the queue, or the clock stops."""
    for reason in range(4):
        state[row, S_WAIT + reason] += arena[at + R_CLOCKS + reason] - state[row, S_ENTRY + reason]


@kernel
def push_row(arena, heap, size, row):
    """Add a row to a heap, smallest first."""
    place = size
    while place > 0 and arena[heap + (place - 1) // 2] > row:
        arena[heap + place] = arena[heap + (place - 1) // 2]
        place = (place - 1) // 2
    arena[heap + place] = row


@kernel
def pop_row(arena, heap, size):
    """Take the smallest row off a heap of `size`."""
    last = arena[heap + size - 1]
    place = 0
    while 2 * place + 1 < size - 1:
        child = 2 * place + 1
        if child + 1 < size - 1 and arena[heap + child + 1] < arena[heap + child]:
            child += 1
        if arena[heap + child] >= last:
            break
        arena[heap + place] = arena[heap + child]
        place = child
    arena[heap + place] = last


@kernel
def leave_queue(arena, state, at, row):
    """The head of the queue, which was new, leaves it."""
    settle_wait(arena, state, at, row)
    pop_row(arena, arena[at + R_HEAP], arena[at + R_QUEUED])
    arena[at + R_QUEUED] -= 1


@kernel
def wake(arena, at, now):
    """Something has changed: if nothing is under way, a step may be formed at this instant."""
    if arena[at + R_STEPS] == 0 and arena[at + R_FORM_NS] > now:
        arena[at + R_FORM_NS] = now


@kernel
def submit(arena, state, at, row, now):
    """A request joins the queue."""
    tally(arena, at, now)
    arena[at + U_REQUESTS] += 1
    push_row(arena, arena[at + R_HEAP], arena[at + R_QUEUED], row)
    arena[at + R_QUEUED] += 1
    arena[arena[at + R_FRESH_ROWS] + arena[at + R_FRESH]] = row
    arena[at + R_FRESH] += 1
    state[row, S_STAGE] = WAITING
    state[row, S_DELIVERED_NS] = now
    arena[at + U_WAITING_PEAK] = max(arena[at + U_WAITING_PEAK], all_waiting(arena, at))
    wake(arena, at, now)
