"""What orderings that look again share: requests join the queue with the keys of their time, and get new ones.

Nobody reads the queue but the scheduler, so new requests (R_COMING of them, from R_COMING_ROW on in the order of sending)
get their keys when it looks, and preempted ones (a chain from R_REJOINED, by Q_SIBLING) before it next asks who is first:
in the order of what has happened, as the reference engine gives them at once. Arguments as in orders/__init__.py.
"""

from __future__ import annotations

from llmqsim.engine.compiled.columns import ARRIVAL
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import Kernels, joined, key_of, late_key_of, made_of, stand, stand_again
from llmqsim.engine.compiled.queue.kernels import (
    empty,
    entry_at,
    pop_from,
    push,
    push_front,
    push_key,
    put_into,
    take_out,
    waits_by_key,
)
from llmqsim.jit import kernel


@kernel
def waiting(arena, base):
    """Requests in the queue."""
    return arena[base + R_QUEUED] + arena[base + R_PREEMPTED]


@kernel
def inside(arena, base):
    """How many run or are swapped."""
    return arena[base + R_RUNNING] + arena[base + R_SWAPPED]


@kernel
def slot_inside(arena, base, place):
    """The slots of those who run, in admission order, then of those who are swapped, by arrival."""
    running = arena[base + R_RUNNING]
    if place < running:
        return arena[arena[base + R_ORDER] + place]
    return arena[arena[base + R_SWAPS] + place - running]


@kernel
def mark_at(arena, row):
    """Where the words lie that an ordering keeps for a row."""
    return arena[G_MARKS] + row * MARKS


@kernel
def welcome(order, table, arena, base):
    """New requests join, each as of its own time; who has been taken back since is only noted."""
    row = arena[base + R_COMING_ROW]
    for _ in range(arena[base + R_COMING]):
        at, now = entry_at(arena, row), table[ARRIVAL, row] + arena[G_BEFORE_NS]
        joined(order, table, arena, base, row, -1, now)
        if arena[at + Q_RANK] != NOT_IN_LINE:
            stand(order, table, arena, base, row, -1, now)
        row = arena[at + Q_NEXT]
    arena[base + R_COMING] = 0


@kernel
def take_back_in(order, table, arena, base, now):
    """Preempted requests join: at the front, where their keys put them, or behind all."""
    row = arena[base + R_REJOINED]
    arena[base + R_REJOINED] = NOBODY_IN_LINE
    while row >= 0:
        at = entry_at(arena, row)
        following, slot = arena[at + Q_SIBLING], arena[at + Q_SLOT]
        joined(order, table, arena, base, row, slot, now)
        if arena[at + Q_CHILD] != 0:
            level, value = late_key_of(order, table, arena, base, row, slot, now)
            push_key(arena, base, row, level, value)
            note_late(arena, base, row)
        elif arena[G_FRONT] != 0:
            push_front(arena, base, row)
        else:
            stand(order, table, arena, base, row, slot, now)
        row = following


@kernel
def note_late(arena, base, row):
    """Chain a request from R_LATE on until those behind all get keys of their own again; it may be there already."""
    at = entry_at(arena, row)
    if arena[at + Q_LATER] == NOT_LATE:
        arena[at + Q_LATER] = arena[base + R_LATE]
        arena[base + R_LATE] = row


@kernel
def call_late(order, table, arena, base, stay, now):
    """Those who went behind all stand where their keys of now put them. stay : and are called again next time."""
    row = arena[base + R_LATE]
    arena[base + R_LATE] = NOBODY_IN_LINE
    while row >= 0:
        at = entry_at(arena, row)
        following = arena[at + Q_LATER]
        arena[at + Q_LATER] = NOT_LATE
        if waits_by_key(arena, row):
            take_out(arena, base + R_TOP, row)
            stand(order, table, arena, base, row, arena[at + Q_SLOT], now)
            if stay:
                note_late(arena, base, row)
        row = following


@kernel
def forget_late(arena, base):
    """Everybody is about to get a key."""
    row = arena[base + R_LATE]
    arena[base + R_LATE] = NOBODY_IN_LINE
    while row >= 0:
        following = arena[entry_at(arena, row) + Q_LATER]
        arena[entry_at(arena, row) + Q_LATER] = NOT_LATE
        row = following


@kernel
def put_back(order, table, arena, base, row):
    """A lifted row, and all that are chained to it, wait where they did."""
    while row >= 0:
        at = entry_at(arena, row)
        following = arena[at + Q_SIBLING]
        stand_again(order, table, arena, base, row, arena[at + Q_CHILD])
        row = following


# Timers: each row has a second entry, in a heap of its own by the time since when it has waited for service.


@kernel
def set_timer(arena, base, row, since):
    """Note since when a row that waits was not served; one that is set already may be early."""
    timer = arena[G_ROWS] + row
    at = entry_at(arena, timer)
    if arena[at + Q_RANK] == NOT_IN_LINE:
        arena[at + Q_RANK] = IN_ORDER
        arena[at + Q_VALUE] = since
        put_into(arena, base + R_TIMERS, timer)


@kernel
def next_timer(arena, base, until):
    """Take off the first timer that says `until` or less; returns its row, NOBODY_IN_LINE if there is none."""
    timer = arena[base + R_TIMERS]
    if timer < 0 or arena[entry_at(arena, timer) + Q_VALUE] > until:
        return NOBODY_IN_LINE
    return pop_from(arena, base + R_TIMERS) - arena[G_ROWS]


# The whole queue again: where the keys of all may have changed.


@kernel
def sort_again(order, table, arena, base, now):
    """Everybody but those at the front gets a new key."""
    row = empty(arena, base)
    while row >= 0:
        at = entry_at(arena, row)
        following = arena[at + Q_SIBLING]
        if arena[at + Q_RANK] == IN_ORDER:
            level, value = key_of(order, table, arena, base, row, arena[at + Q_SLOT], now)
            push_key(arena, base, row, level, value)
        else:
            push(arena, base, row, arena[at + Q_RANK], arena[at + Q_VALUE])
        row = following


# For orderings that need only some of the faces.


@kernel
def does_not_note_joins(order, table, arena, base, row, slot, now):
    """Its keys remember nothing of it."""


@kernel
def stands_by_key(order, table, arena, base, row, slot, now):
    """In the one heap."""
    level, value = key_of(order, table, arena, base, row, slot, now)
    push_key(arena, base, row, level, value)


@kernel
def does_not_note_lifts(order, table, arena, base, row):
    """Everybody else is in the heap."""


@kernel
def stands_as_before(order, table, arena, base, row, rank):
    """With its old key."""
    push(arena, base, row, rank, arena[entry_at(arena, row) + Q_VALUE])


@kernel
def does_not_note_leaves(order, table, arena, base, row, entered):
    """Its keys remember nothing of it."""


@kernel
def only_welcomes(order, table, arena, base, now):
    """No keys change while requests wait."""
    welcome(order, table, arena, base)


@kernel
def does_not_note_steps(order, table, arena, base, step, now):
    """Its keys remember nothing of it."""


@kernel
def strides_always(order, arena, base):
    """No keys change while nobody is preempted."""
    return True


@kernel
def strides_alone(order, arena, base):
    """While nobody waits."""
    return waiting(arena, base) == 0


@kernel
def does_not_note_strides(order, arena, base, steps):
    """Its keys remember nothing of them."""


QUIET = Kernels(
    key_of=None,
    late_key_of=None,
    joined=does_not_note_joins,
    stand=stands_by_key,
    lifted=does_not_note_lifts,
    stand_again=stands_as_before,
    left=does_not_note_leaves,
    look_again=only_welcomes,
    catch_up=take_back_in,
    ran=does_not_note_steps,
    may_stride=strides_alone,
    strode=does_not_note_strides,
)
"""what an ordering is made of that remembers nothing and looks at nothing; keys it must have"""


def page(order, key_of, late_key_of, **own):
    """An ordering's module says which kernels it is made of: those of its own, else QUIET's."""
    made_of(order, QUIET._replace(key_of=key_of, late_key_of=late_key_of, **own))
