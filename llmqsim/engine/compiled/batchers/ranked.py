"""One list of everybody, by an ordering that preempts: policies/batching/ranked.py in arrays.

Who loses its place while a step is formed joins the queue when the step is there (compiled/orders): until then the queue
is what it was when the list was made.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import RankedByRows, made_of
from llmqsim.engine.compiled.batchers.rows import by_rows_with
from llmqsim.engine.compiled.orders import catch_up, key_of
from llmqsim.engine.compiled.orders.common import inside, slot_inside
from llmqsim.engine.compiled.queue import head
from llmqsim.engine.compiled.step.entry import admit
from llmqsim.engine.compiled.step.rows import held_blocks, is_drafted, known_tokens, run_on
from llmqsim.engine.compiled.step.running import give_way, grow
from llmqsim.engine.compiled.swap import may_return, swap_in, swap_place
from llmqsim.engine.compiled.world.limits import NO_LIMIT
from llmqsim.engine.compiled.world.queue import entry_at
from llmqsim.engine.compiled.world.request import RUNNING, request_at
from llmqsim.jit import kernel


@kernel
def comes_after(level, value, row, other_level, other_value, other_row):
    """Is the first of two in the list behind the other?"""
    if level != other_level:
        return level > other_level
    if value != other_value:
        return value > other_value
    return row > other_row


@kernel
def rank_of(batcher, table, run, arena, replica, slot, now):
    """(level, value, row) of a request in a slot, as things are now."""
    row = request_at(arena, replica.slots, slot).row
    level, value = key_of(batcher.order, table, run, arena, replica, row, slot, now)
    return level, value, row


@kernel
def line_up(batcher, table, run, arena, replica, now):
    """Write who runs, and (as -1 - slot) who is swapped, in order to run.scratch; returns how many there are."""
    listed, count, in_order = run.scratch, inside(replica), True
    for place in range(listed, listed + count):
        slot = slot_inside(arena, replica, place - listed)
        arena[place] = slot if place - listed < replica.running else -1 - slot
        level, value, _ = rank_of(batcher, table, run, arena, replica, slot, now)
        arena[place + run.slots], arena[place + 2 * run.slots] = level, value
        in_order = in_order and (place == listed or not is_behind(run, arena, replica, place - 1, place))
    other, length = listed + 3 * run.slots, 1
    while not in_order and length < count:  # runs of so many are in order; one list to the other
        for low in range(0, count, 2 * length):
            merge(run, arena, replica, listed, other, low, min(low + length, count), min(low + 2 * length, count))
        listed, other, length = other, listed, 2 * length
    if listed != run.scratch:
        for place in range(count):
            arena[run.scratch + place] = arena[listed + place]
    return count


@kernel
def is_behind(run, arena, replica, place, other):
    """Of two in a list: is the first behind the other?"""
    level, other_level = arena[place + run.slots], arena[other + run.slots]
    if level != other_level:
        return level > other_level
    value, other_value = arena[place + 2 * run.slots], arena[other + 2 * run.slots]
    if value != other_value:
        return value > other_value
    return row_listed(arena, replica, place) > row_listed(arena, replica, other)


@kernel
def row_listed(arena, replica, place):
    """Whose place in a list that is."""
    slot = arena[place]
    return request_at(arena, replica.slots, slot if slot >= 0 else -1 - slot).row


@kernel
def merge(run, arena, replica, listed, other, low, middle, high):
    """Two runs of a list, one behind the other, become one of another list."""
    left, right = low, middle
    for place in range(low, high):
        from_right = left == middle or (right < high and is_behind(run, arena, replica, listed + left, listed + right))
        taken = right if from_right else left
        for part in range(0, 3 * run.slots, run.slots):
            arena[other + part + place] = arena[listed + part + taken]
        left, right = left + (1 - from_right), right + from_right


@kernel
def draft(batcher, table, run, arena, costs, params, replica, step, now):
    """Tokens from the top of the list until the budget is spent; behind the first who can't enter nobody else does."""
    catch_up(batcher.order, table, run, arena, replica, now)
    count = step.listed = line_up(batcher, table, run, arena, replica, now)
    place, entry, fetched = 0, True, -1
    level = value = inside_row = 0
    while entry:
        if fetched < place < count:  # as things are when it is its turn
            fetched, slot = place, arena[run.scratch + place]
            level, value, inside_row = rank_of(
                batcher, table, run, arena, replica, slot if slot >= 0 else -1 - slot, now
            )
        row = head(run, arena, replica)
        if row < 0 and place == count:
            break
        slot = entry_at(arena, run.queue, row).slot if row >= 0 else -1
        waits = row >= 0
        if waits and place < count:
            its_level, its_value = key_of(batcher.order, table, run, arena, replica, row, slot, now)
            waits = comes_after(level, value, inside_row, its_level, its_value, row)
        if waits:
            entry = enter_ranked(batcher, table, run, arena, replica, step, slot, row, now)
        else:
            entry = go_on(batcher, table, run, arena, replica, step, arena[run.scratch + place], now)
            place += 1
    for later in range(run.scratch + place, run.scratch + count):
        if arena[later] >= 0:
            grow(batcher, table, run, arena, replica, step, arena[later], NO_LIMIT, 0, now)


@kernel
def go_on(batcher, table, run, arena, replica, step, slot, now):
    """Tokens for one who ran, or (-1 - slot) one who was swapped and comes back; False: he can't."""
    if slot < 0:
        slot = -1 - slot
        known = request_at(arena, replica.slots, slot).known_tokens
        if not come_back(table, run, arena, replica, step, slot, now):
            row = request_at(arena, replica.slots, slot).row
            if not displace(batcher, table, run, arena, replica, step, slot, row, known, now):
                return False
            if not come_back(table, run, arena, replica, step, slot, now):
                return False
    grow(batcher, table, run, arena, replica, step, slot, NO_LIMIT, 0, now)
    return True


@kernel
def come_back(table, run, arena, replica, step, slot, now):
    """Bring a swapped request into the running list, if slot, token and memory are there."""
    running, free = replica.running, replica.free_blocks
    if not may_return(run, arena, replica, slot, running, free, step.budget):
        return False
    swap_in(table, run, arena, replica, step, swap_place(arena, replica, slot), now)
    run_on(arena, replica, slot)
    return True


@kernel
def enter_ranked(batcher, table, run, arena, replica, step, slot, row, now):
    """The head of the queue enters, if need be in the place of who ranks behind it; False: it stays out."""
    known = known_tokens(table, arena, replica, slot, row)
    if admit(batcher, table, run, arena, replica, step, slot, row, known, NO_LIMIT, 0, now):
        return True
    if not displace(batcher, table, run, arena, replica, step, slot, row, known, now):
        return False
    return admit(batcher, table, run, arena, replica, step, slot, row, known, NO_LIMIT, 0, now)


@kernel
def displace(batcher, table, run, arena, replica, step, slot, row, known, now):
    """Preempt who ranks behind a request, the last first, until it can enter; False, and nobody is, if that's not enough."""
    tokens = known if run.whole_prompt != 0 else min(known, step.budget)
    need = rules.blocks_for(tokens, run.block_size) + run.watermark
    places, free = run.max_num_seqs - replica.running, replica.free_blocks
    level, value = key_of(batcher.order, table, run, arena, replica, row, slot, now)
    end = inside_at_first = step.listed
    chosen = 0
    while places < 1 or free < need:
        end = last_behind(batcher, table, run, arena, replica, step, level, value, row, end, now)
        if end < 0:
            return False
        chosen, places = chosen + 1, places + 1
        free += held_blocks(run, request_at(arena, replica.slots, arena[run.scratch + end]))
    if chosen == 0 or step.budget == 0:
        return False
    end = inside_at_first
    for _ in range(chosen):
        end = last_behind(batcher, table, run, arena, replica, step, level, value, row, end, now)
        give_way(table, run, arena, replica, step, arena[run.scratch + end], False, now)
    return True


@kernel
def last_behind(batcher, table, run, arena, replica, step, level, value, row, end, now):
    """The last place in the list, before `end`, of a running request that ranks behind one, -1 if there is none.

    Only those that have made a token since they entered, and have none in this step; they stand where they did when the
    list was made.
    """
    for place in range(end - 1, -1, -1):
        slot = arena[run.scratch + place]
        if slot < 0:
            continue
        request = request_at(arena, replica.slots, slot)
        if request.stage != RUNNING or request.known_tokens <= request.entered_tokens:
            continue
        if is_drafted(run, arena, step, request, slot):
            continue
        its_level, its_value, its_row = rank_of(batcher, table, run, arena, replica, slot, now)
        return place if comes_after(its_level, its_value, its_row, level, value, row) else -1
    return -1


@kernel
def last_of_all(batcher, table, run, arena, replica, now):
    """Who gives way when memory is short: the last in the list of those who run."""
    last = arena[replica.order]
    level, value, row = rank_of(batcher, table, run, arena, replica, last, now)
    for place in range(1, replica.running):
        slot = arena[replica.order + place]
        its_level, its_value, its_row = rank_of(batcher, table, run, arena, replica, slot, now)
        if comes_after(its_level, its_value, its_row, level, value, row):
            last, level, value, row = slot, its_level, its_value, its_row
    return last


made_of(RankedByRows, by_rows_with(draft, last_of_all))
