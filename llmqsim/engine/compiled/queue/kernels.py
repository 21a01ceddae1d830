"""A waiting queue sorted by (rank, level, value, row): what engine/queue.py keeps as a list, as a pairing heap.

Each row of the request table has one entry (ENTRY words), so that the heap of every replica is made of links alone:
R_TOP is its first row, Q_CHILD and Q_SIBLING lead on. Where nothing but arrival counts and nobody is sent to the back, a
replica needs no heap (step/entry): waiting rows are then those between two cursors.

Whoever leaves from the middle (its client gave up, or its last token was under way) is only marked NOT_IN_LINE and
dropped when it comes to the top. Q_NEXT chains rows in the order in which they were sent to their replica. Arguments as in
step/.
"""

from __future__ import annotations

from llmqsim.engine.compiled.columns import ARRIVAL
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.jit import kernel


@kernel
def entry_at(arena, row):
    """Where the entry of a row lies."""
    return arena[G_QUEUE] + row * ENTRY


@kernel
def waits_by_key(arena, row):
    """Does a row stand in a queue where its key puts it?"""
    at = entry_at(arena, row)
    return arena[at + Q_RANK] == IN_ORDER and arena[at + Q_BEFORE] != REJOINS


@kernel
def goes_before(arena, row, other):
    """Is one row ahead of the other?"""
    one, two = entry_at(arena, row), entry_at(arena, other)
    if arena[one + Q_RANK] != arena[two + Q_RANK]:
        return arena[one + Q_RANK] < arena[two + Q_RANK]
    if arena[one + Q_RANK] == IN_ORDER and arena[one + Q_LEVEL] != arena[two + Q_LEVEL]:
        return arena[one + Q_LEVEL] < arena[two + Q_LEVEL]
    if arena[one + Q_VALUE] != arena[two + Q_VALUE]:
        return arena[one + Q_VALUE] < arena[two + Q_VALUE]
    return row < other


@kernel
def meld(arena, row, other):
    """Make one heap of two with these tops (the second may be NOBODY_IN_LINE); returns its top."""
    if other < 0:
        return row
    if goes_before(arena, other, row):
        row, other = other, row
    at, child = entry_at(arena, row), arena[entry_at(arena, row) + Q_CHILD]
    if child >= 0:
        arena[entry_at(arena, child) + Q_BEFORE] = other
    arena[entry_at(arena, other) + Q_SIBLING] = child
    arena[entry_at(arena, other) + Q_BEFORE] = row
    arena[at + Q_CHILD] = other
    return row


@kernel
def meld_children(arena, top):
    """Make one heap of a row's children, in pairs, then the pairs from the last to the first; returns its top."""
    node, pairs = arena[entry_at(arena, top) + Q_CHILD], NOBODY_IN_LINE
    while node >= 0:
        second = arena[entry_at(arena, node) + Q_SIBLING]
        rest = arena[entry_at(arena, second) + Q_SIBLING] if second >= 0 else NOBODY_IN_LINE
        node = meld(arena, node, second)
        arena[entry_at(arena, node) + Q_SIBLING] = pairs
        pairs, node = node, rest
    heap = NOBODY_IN_LINE
    while pairs >= 0:
        rest = arena[entry_at(arena, pairs) + Q_SIBLING]
        heap = meld(arena, pairs, heap)
        pairs = rest
    return heap


@kernel
def put_into(arena, top, row):
    """A row whose key is written joins the heap whose first row stands in the word `top`."""
    at = entry_at(arena, row)
    arena[at + Q_CHILD] = arena[at + Q_SIBLING] = arena[at + Q_BEFORE] = NOBODY_IN_LINE
    arena[top] = meld(arena, row, arena[top])


@kernel
def pop_from(arena, top):
    """Take the first off such a heap; returns it."""
    row = arena[top]
    arena[top] = meld_children(arena, row)
    arena[entry_at(arena, row) + Q_RANK] = NOT_IN_LINE
    return row


@kernel
def take_out(arena, top, row):
    """Take a row from anywhere in such a heap."""
    if arena[top] == row:
        pop_from(arena, top)
        return
    at = entry_at(arena, row)
    before, after = arena[at + Q_BEFORE], arena[at + Q_SIBLING]
    link = Q_CHILD if arena[entry_at(arena, before) + Q_CHILD] == row else Q_SIBLING
    arena[entry_at(arena, before) + link] = after
    if after >= 0:
        arena[entry_at(arena, after) + Q_BEFORE] = before
    children = meld_children(arena, row)
    if children >= 0:
        arena[top] = meld(arena, children, arena[top])
    arena[at + Q_RANK] = NOT_IN_LINE


@kernel
def first_of(arena, top):
    """The first of such a heap, NOBODY_IN_LINE if it is empty; who was only marked is dropped."""
    while arena[top] >= 0 and arena[entry_at(arena, arena[top]) + Q_RANK] == NOT_IN_LINE:
        pop_from(arena, top)
    return arena[top]


@kernel
def push(arena, base, row, rank, value):
    """A row joins the queue."""
    at = entry_at(arena, row)
    arena[at + Q_RANK] = rank
    arena[at + Q_VALUE] = value
    put_into(arena, base + R_TOP, row)


@kernel
def push_key(arena, base, row, level, value):
    """A row joins the queue with a key of now."""
    arena[entry_at(arena, row) + Q_LEVEL] = level
    push(arena, base, row, IN_ORDER, value)


@kernel
def push_front(arena, base, row):
    """A row joins the queue before everybody."""
    arena[base + R_FRONTS] += 1
    push(arena, base, row, FRONT, -arena[base + R_FRONTS])


@kernel
def empty(arena, base):
    """Take everybody off; returns the first of them (in no order), to whom the others are chained by Q_SIBLING."""
    node, chain = arena[base + R_TOP], NOBODY_IN_LINE
    arena[base + R_TOP] = NOBODY_IN_LINE
    if node >= 0:
        arena[entry_at(arena, node) + Q_SIBLING] = NOBODY_IN_LINE
    while node >= 0:
        at = entry_at(arena, node)
        following, child = arena[at + Q_SIBLING], arena[at + Q_CHILD]
        if child >= 0:  # before those who follow
            last = child
            while arena[entry_at(arena, last) + Q_SIBLING] >= 0:
                last = arena[entry_at(arena, last) + Q_SIBLING]
            arena[entry_at(arena, last) + Q_SIBLING] = following
            following = child
        if arena[at + Q_RANK] != NOT_IN_LINE:
            arena[at + Q_SIBLING] = chain
            chain = node
        node = following
    return chain


@kernel
def pop(arena, base):
    """Take the first off the queue; returns it."""
    return pop_from(arena, base + R_TOP)


@kernel
def head(arena, base):
    """The row that is next, NOBODY_IN_LINE if nobody waits."""
    return first_of(arena, base + R_TOP)


@kernel
def lift(arena, base):
    """Take the top off for a moment (orders/kernels.put_back); returns it. It can be chained to others by Q_SIBLING meanwhile."""
    top = head(arena, base)
    rank = arena[entry_at(arena, top) + Q_RANK]
    pop(arena, base)
    arena[entry_at(arena, top) + Q_CHILD] = rank
    arena[entry_at(arena, top) + Q_SIBLING] = NOBODY_IN_LINE
    return top


@kernel
def join(table, arena, base, row):
    """A row joins where its key puts it; where keys are looked at again, it gets one when they are (compiled/orders)."""
    if arena[G_LOOKS_AGAIN] != 0:
        arena[entry_at(arena, row) + Q_RANK] = IN_ORDER
        if arena[base + R_COMING] == 0:
            arena[base + R_COMING_ROW] = row
        arena[base + R_COMING] += 1
        return
    value = arena[entry_at(arena, row) + Q_BASE] + arena[G_SLOPE] * table[ARRIVAL, row]
    push(arena, base, row, IN_ORDER, value)


@kernel
def rejoin(table, arena, base, row, last, now):
    """A preempted request waits again: at the front, where its key puts it, or behind all of its level."""
    if arena[G_LOOKS_AGAIN] != 0:
        rejoin_later(arena, base, row, last)
    elif last:
        push(arena, base, row, IN_ORDER, arena[entry_at(arena, row) + Q_BASE] + now)
    elif arena[G_FRONT] != 0:
        push_front(arena, base, row)
    else:
        join(table, arena, base, row)


@kernel
def rejoin_later(arena, base, row, last):
    """It gets its key before the queue is next read."""
    at = entry_at(arena, row)
    arena[at + Q_RANK] = IN_ORDER
    arena[at + Q_CHILD] = last
    arena[at + Q_BEFORE] = REJOINS
    arena[at + Q_SIBLING] = NOBODY_IN_LINE
    if arena[base + R_REJOINED] < 0:
        arena[base + R_REJOINED] = row
    else:
        arena[entry_at(arena, arena[base + R_LAST_REJOINED]) + Q_SIBLING] = row
    arena[base + R_LAST_REJOINED] = row


@kernel
def chain(arena, base, row):
    """A row was sent to this replica, after all that were before."""
    if arena[base + R_LAST_SENT] >= 0:
        arena[entry_at(arena, arena[base + R_LAST_SENT]) + Q_NEXT] = row
    else:
        arena[base + R_OLDEST_ROW] = row
    arena[base + R_LAST_SENT] = row
