"""What orderings that look again share: requests join the queue with the keys of their time, and get new ones.

Nobody reads the queue but the scheduler, so new requests (`coming` of them, from `coming_row` on in the order of sending) get
their keys when it looks, and preempted ones (a chain from `rejoined`, by `sibling`) before it next asks who is first: in the
order of what has happened, as the reference engine gives them at once. Arguments as in orders/__init__.py.
"""

from __future__ import annotations

from llmqsim.engine.compiled.columns import ARRIVAL
from llmqsim.engine.compiled.orders import Kernels, joined, key_of, late_key_of, made_of, stand, stand_again
from llmqsim.engine.compiled.queue import empty, pop_from, push, push_front, push_key, put_into, take_out, waits_by_key
from llmqsim.engine.compiled.world.queue import IN_ORDER, NOBODY_IN_LINE, NOT_IN_LINE, NOT_LATE, entry_at
from llmqsim.jit import kernel


@kernel
def waiting(replica):
    """Requests in the queue."""
    return replica.queued + replica.preempted


@kernel
def inside(replica):
    """How many run or are swapped."""
    return replica.running + replica.swapped


@kernel
def slot_inside(arena, replica, place):
    """The slots of those who run, in admission order, then of those who are swapped, by arrival."""
    running = replica.running
    if place < running:
        return arena[replica.order + place]
    return arena[replica.swaps + place - running]


@kernel
def welcome(order, table, run, arena, replica):
    """New requests join, each as of its own time; who has been taken back since is only noted."""
    row = replica.coming_row
    for _ in range(replica.coming):
        entry, now = entry_at(arena, run.queue, row), table[ARRIVAL, row] + run.before_ns
        joined(order, table, run, arena, replica, row, -1, now)
        if entry.rank != NOT_IN_LINE:
            stand(order, table, run, arena, replica, row, -1, now)
        row = entry.next_row
    replica.coming = 0


@kernel
def take_back_in(order, table, run, arena, replica, now):
    """Preempted requests join: at the front, where their keys put them, or behind all."""
    row = replica.rejoined
    replica.rejoined = NOBODY_IN_LINE
    while row >= 0:
        entry = entry_at(arena, run.queue, row)
        following, slot = entry.sibling, entry.slot
        joined(order, table, run, arena, replica, row, slot, now)
        if entry.child != 0:
            level, value = late_key_of(order, table, run, arena, replica, row, slot, now)
            push_key(run, arena, replica, row, level, value)
            note_late(run, arena, replica, row)
        elif run.preempted_go_first != 0:
            push_front(run, arena, replica, row)
        else:
            stand(order, table, run, arena, replica, row, slot, now)
        row = following


@kernel
def note_late(run, arena, replica, row):
    """Chain a request from replica.late on until those behind all get keys of their own again; it may be there already."""
    entry = entry_at(arena, run.queue, row)
    if entry.later == NOT_LATE:
        entry.later = replica.late
        replica.late = row


@kernel
def call_late(order, table, run, arena, replica, stay, now):
    """Those who went behind all stand where their keys of now put them. stay : and are called again next time."""
    row = replica.late
    replica.late = NOBODY_IN_LINE
    while row >= 0:
        entry = entry_at(arena, run.queue, row)
        following = entry.later
        entry.later = NOT_LATE
        if waits_by_key(run, arena, row):
            take_out(run, arena, replica.top, row)
            stand(order, table, run, arena, replica, row, entry.slot, now)
            if stay:
                note_late(run, arena, replica, row)
        row = following


@kernel
def forget_late(run, arena, replica):
    """Everybody is about to get a key."""
    row = replica.late
    replica.late = NOBODY_IN_LINE
    while row >= 0:
        following = entry_at(arena, run.queue, row).later
        entry_at(arena, run.queue, row).later = NOT_LATE
        row = following


@kernel
def put_back(order, table, run, arena, replica, row):
    """A lifted row, and all that are chained to it, wait where they did."""
    while row >= 0:
        entry = entry_at(arena, run.queue, row)
        following = entry.sibling
        stand_again(order, table, run, arena, replica, row, entry.child)
        row = following


# Timers: each row has a second entry, in a heap of its own by the time since when it has waited for service.


@kernel
def set_timer(run, arena, replica, row, since):
    """Note since when a row that waits was not served; one that is set already may be early."""
    timer = run.rows + row
    entry = entry_at(arena, run.queue, timer)
    if entry.rank == NOT_IN_LINE:
        entry.rank = IN_ORDER
        entry.value = since
        put_into(run, arena, replica.timers, timer)


@kernel
def next_timer(run, arena, replica, until):
    """Take off the first timer that says `until` or less; returns its row, NOBODY_IN_LINE if there is none."""
    timer = replica.timers.first
    if timer < 0 or entry_at(arena, run.queue, timer).value > until:
        return NOBODY_IN_LINE
    return pop_from(run, arena, replica.timers) - run.rows


# The whole queue again: where the keys of all may have changed.


@kernel
def sort_again(order, table, run, arena, replica, now):
    """Everybody but those at the front gets a new key."""
    row = empty(run, arena, replica)
    while row >= 0:
        entry = entry_at(arena, run.queue, row)
        following = entry.sibling
        if entry.rank == IN_ORDER:
            level, value = key_of(order, table, run, arena, replica, row, entry.slot, now)
            push_key(run, arena, replica, row, level, value)
        else:
            push(run, arena, replica, row, entry.rank, entry.value)
        row = following


# For orderings that need only some of the faces.


@kernel
def does_not_note_joins(order, table, run, arena, replica, row, slot, now):
    """Its keys remember nothing of it."""


@kernel
def stands_by_key(order, table, run, arena, replica, row, slot, now):
    """In the one heap."""
    level, value = key_of(order, table, run, arena, replica, row, slot, now)
    push_key(run, arena, replica, row, level, value)


@kernel
def does_not_note_lifts(order, table, run, arena, replica, row):
    """Everybody else is in the heap."""


@kernel
def stands_as_before(order, table, run, arena, replica, row, rank):
    """With its old key."""
    push(run, arena, replica, row, rank, entry_at(arena, run.queue, row).value)


@kernel
def does_not_note_leaves(order, table, run, arena, replica, row, entered):
    """Its keys remember nothing of it."""


@kernel
def only_welcomes(order, table, run, arena, replica, now):
    """No keys change while requests wait."""
    welcome(order, table, run, arena, replica)


@kernel
def does_not_note_steps(order, table, run, arena, replica, step, now):
    """Its keys remember nothing of it."""


@kernel
def strides_always(order, run, arena, replica):
    """No keys change while nobody is preempted."""
    return True


@kernel
def strides_alone(order, run, arena, replica):
    """While nobody waits."""
    return waiting(replica) == 0


@kernel
def does_not_note_strides(order, run, arena, replica, steps):
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
