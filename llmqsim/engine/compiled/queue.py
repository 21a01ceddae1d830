"""A waiting queue sorted by (rank, level, value, row): what engine/queue.py keeps as a list, as a pairing heap.

Each row of the request table has one entry, so that the heap of every replica is made of links alone: `replica.top` names
its first row, `child` and `sibling` lead on. Where nothing but arrival counts and nobody is sent to the back, a replica
needs no heap (step/entry.py): waiting rows are then those between two cursors.

Whoever leaves from the middle (its client gave up, or its last token was under way) is only marked NOT_IN_LINE and dropped
when it comes to the top. `next_row` chains rows in the order in which they were sent to their replica. top : of a heap
(Heap); other arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine.compiled.columns import ARRIVAL
from llmqsim.engine.compiled.world.queue import FRONT, IN_ORDER, NOBODY_IN_LINE, NOT_IN_LINE, REJOINS, entry_at
from llmqsim.jit import kernel


@kernel
def waits_by_key(run, arena, row):
    """Does a row stand in a queue where its key puts it?"""
    entry = entry_at(arena, run.queue, row)
    return entry.rank == IN_ORDER and entry.before != REJOINS


@kernel
def goes_before(run, arena, row, other):
    """Is one row ahead of the other?"""
    one, two = entry_at(arena, run.queue, row), entry_at(arena, run.queue, other)
    if one.rank != two.rank:
        return one.rank < two.rank
    if one.rank == IN_ORDER and one.level != two.level:
        return one.level < two.level
    if one.value != two.value:
        return one.value < two.value
    return row < other


@kernel
def meld(run, arena, row, other):
    """Make one heap of two with these tops (the second may be NOBODY_IN_LINE); returns its top."""
    if other < 0:
        return row
    if goes_before(run, arena, other, row):
        row, other = other, row
    entry, child = entry_at(arena, run.queue, row), entry_at(arena, run.queue, row).child
    if child >= 0:
        entry_at(arena, run.queue, child).before = other
    entry_at(arena, run.queue, other).sibling = child
    entry_at(arena, run.queue, other).before = row
    entry.child = other
    return row


@kernel
def meld_children(run, arena, top):
    """Make one heap of a row's children, in pairs, then the pairs from the last to the first; returns its top."""
    node, pairs = entry_at(arena, run.queue, top).child, NOBODY_IN_LINE
    while node >= 0:
        second = entry_at(arena, run.queue, node).sibling
        rest = entry_at(arena, run.queue, second).sibling if second >= 0 else NOBODY_IN_LINE
        node = meld(run, arena, node, second)
        entry_at(arena, run.queue, node).sibling = pairs
        pairs, node = node, rest
    heap = NOBODY_IN_LINE
    while pairs >= 0:
        rest = entry_at(arena, run.queue, pairs).sibling
        heap = meld(run, arena, pairs, heap)
        pairs = rest
    return heap


@kernel
def put_into(run, arena, top, row):
    """A row whose key is written joins a heap."""
    entry = entry_at(arena, run.queue, row)
    entry.child = entry.sibling = entry.before = NOBODY_IN_LINE
    top.first = meld(run, arena, row, top.first)


@kernel
def pop_from(run, arena, top):
    """Take the first off a heap; returns it."""
    row = top.first
    top.first = meld_children(run, arena, row)
    entry_at(arena, run.queue, row).rank = NOT_IN_LINE
    return row


@kernel
def take_out(run, arena, top, row):
    """Take a row from anywhere in a heap."""
    if top.first == row:
        pop_from(run, arena, top)
        return
    entry = entry_at(arena, run.queue, row)
    before, after = entry.before, entry.sibling
    if entry_at(arena, run.queue, before).child == row:
        entry_at(arena, run.queue, before).child = after
    else:
        entry_at(arena, run.queue, before).sibling = after
    if after >= 0:
        entry_at(arena, run.queue, after).before = before
    children = meld_children(run, arena, row)
    if children >= 0:
        top.first = meld(run, arena, children, top.first)
    entry.rank = NOT_IN_LINE


@kernel
def first_of(run, arena, top):
    """The first of a heap, NOBODY_IN_LINE if it is empty; who was only marked is dropped."""
    while top.first >= 0 and entry_at(arena, run.queue, top.first).rank == NOT_IN_LINE:
        pop_from(run, arena, top)
    return top.first


@kernel
def push(run, arena, replica, row, rank, value):
    """A row joins the queue."""
    entry = entry_at(arena, run.queue, row)
    entry.rank = rank
    entry.value = value
    put_into(run, arena, replica.top, row)


@kernel
def push_key(run, arena, replica, row, level, value):
    """A row joins the queue with a key of now."""
    entry_at(arena, run.queue, row).level = level
    push(run, arena, replica, row, IN_ORDER, value)


@kernel
def push_front(run, arena, replica, row):
    """A row joins the queue before everybody."""
    replica.fronts += 1
    push(run, arena, replica, row, FRONT, -replica.fronts)


@kernel
def empty(run, arena, replica):
    """Take everybody off; returns the first of them (in no order), to whom the others are chained by entry.sibling."""
    node, chain = replica.top.first, NOBODY_IN_LINE
    replica.top.first = NOBODY_IN_LINE
    if node >= 0:
        entry_at(arena, run.queue, node).sibling = NOBODY_IN_LINE
    while node >= 0:
        entry = entry_at(arena, run.queue, node)
        following, child = entry.sibling, entry.child
        if child >= 0:  # before those who follow
            last = child
            while entry_at(arena, run.queue, last).sibling >= 0:
                last = entry_at(arena, run.queue, last).sibling
            entry_at(arena, run.queue, last).sibling = following
            following = child
        if entry.rank != NOT_IN_LINE:
            entry.sibling = chain
            chain = node
        node = following
    return chain


@kernel
def pop(run, arena, replica):
    """Take the first off the queue; returns it."""
    return pop_from(run, arena, replica.top)


@kernel
def head(run, arena, replica):
    """The row that is next, NOBODY_IN_LINE if nobody waits."""
    return first_of(run, arena, replica.top)


@kernel
def lift(run, arena, replica):
    """Take the top off for a moment (orders/common.put_back); returns it. It can be chained to others by `sibling` meanwhile."""
    top = head(run, arena, replica)
    rank = entry_at(arena, run.queue, top).rank
    pop(run, arena, replica)
    entry_at(arena, run.queue, top).child = rank
    entry_at(arena, run.queue, top).sibling = NOBODY_IN_LINE
    return top


@kernel
def join(table, run, arena, replica, row):
    """A row joins where its key puts it; where keys are looked at again, it gets one when they are (compiled/orders)."""
    if run.looks_again != 0:
        entry_at(arena, run.queue, row).rank = IN_ORDER
        if replica.coming == 0:
            replica.coming_row = row
        replica.coming += 1
        return
    value = entry_at(arena, run.queue, row).base + run.slope * table[ARRIVAL, row]
    push(run, arena, replica, row, IN_ORDER, value)


@kernel
def rejoin(table, run, arena, replica, row, last, now):
    """A preempted request waits again: at the front, where its key puts it, or behind all of its level."""
    if run.looks_again != 0:
        rejoin_later(run, arena, replica, row, last)
    elif last:
        push(run, arena, replica, row, IN_ORDER, entry_at(arena, run.queue, row).base + now)
    elif run.preempted_go_first != 0:
        push_front(run, arena, replica, row)
    else:
        join(table, run, arena, replica, row)


@kernel
def rejoin_later(run, arena, replica, row, last):
    """It gets its key before the queue is next read."""
    entry = entry_at(arena, run.queue, row)
    entry.rank = IN_ORDER
    entry.child = last
    entry.before = REJOINS
    entry.sibling = NOBODY_IN_LINE
    if replica.rejoined < 0:
        replica.rejoined = row
    else:
        entry_at(arena, run.queue, replica.last_rejoined).sibling = row
    replica.last_rejoined = row


@kernel
def chain(run, arena, replica, row):
    """A row was sent to this replica, after all that were before."""
    if replica.last_sent >= 0:
        entry_at(arena, run.queue, replica.last_sent).next_row = row
    else:
        replica.oldest_row = row
    replica.last_sent = row
