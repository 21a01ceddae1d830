"""What orderings that look again share: requests join the queue with the keys of their time, and get new ones.

Nobody reads the queue but the scheduler, so new requests (R_COMING of them, from R_COMING_ROW on in the order of sending)
get their keys when it looks, and preempted ones (a chain from R_REJOINED, by Q_SIBLING) before it next asks who is first:
in the order of what has happened, as the reference engine gives them at once. Arguments as in orders/__init__.py.
"""

from __future__ import annotations

from llmqsim.engine.compiled.columns import ARRIVAL
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import Kernels, joined, key_of, late_key_of, made_of
from llmqsim.engine.compiled.queue.kernels import empty, entry_at, push, push_front, push_key
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
            level, value = key_of(order, table, arena, base, row, -1, now)
            push_key(arena, base, row, level, value)
        row = arena[at + Q_NEXT]
    arena[base + R_COMING] = 0


@kernel
def take_back_in(order, table, arena, base, now):
    """Preempted requests join: at the front, where their keys put them, or behind all."""
    if arena[base + R_STALE] != 0:
        sort_again(order, table, arena, base, now)
    row = arena[base + R_REJOINED]
    arena[base + R_REJOINED] = NOBODY_IN_LINE
    while row >= 0:
        at = entry_at(arena, row)
        following, slot = arena[at + Q_SIBLING], arena[at + Q_SLOT]
        joined(order, table, arena, base, row, slot, now)
        if arena[at + Q_CHILD] != 0:
            level, value = late_key_of(order, table, arena, base, row, slot, now)
            arena[base + R_LATE] += 1
            push_key(arena, base, row, level, value)
        elif arena[G_FRONT] != 0:
            push_front(arena, base, row)
        else:
            level, value = key_of(order, table, arena, base, row, slot, now)
            push_key(arena, base, row, level, value)
        row = following


@kernel
def sort_again(order, table, arena, base, now):
    """Everybody but those at the front gets a new key."""
    put_in_line(order, table, arena, base, empty(arena, base), True, now)
    arena[base + R_STALE] = arena[base + R_LATE] = 0


@kernel
def put_in_line(order, table, arena, base, row, anew, now):
    """A row, and all that are chained to it, stand in the queue again. anew : with the keys of now."""
    while row >= 0:
        at = entry_at(arena, row)
        following = arena[at + Q_SIBLING]
        if anew and arena[at + Q_RANK] == IN_ORDER:
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
