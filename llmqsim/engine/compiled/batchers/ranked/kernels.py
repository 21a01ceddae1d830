"""One list of everybody, by an ordering that preempts: policies/batching/ranked.py in arrays.

Who loses its place while a step is formed joins the queue when the step is there (compiled/orders): until then the queue
is what it was when the list was made.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import RankedByRows, made_of
from llmqsim.engine.compiled.batchers.rows.kernels import by_rows_with
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import catch_up, key_of
from llmqsim.engine.compiled.orders.kernels import inside, slot_inside
from llmqsim.engine.compiled.queue.kernels import entry_at, head
from llmqsim.engine.compiled.step.entry.kernels import admit
from llmqsim.engine.compiled.step.rows.kernels import held_blocks, is_drafted, known_tokens, run_on, slot_at
from llmqsim.engine.compiled.step.running.kernels import give_way, grow
from llmqsim.engine.compiled.swap.kernels import may_return, swap_in, swap_place
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
def rank_of(batcher, table, arena, base, slot, now):
    """(level, value, row) of a request in a slot, as things are now."""
    row = arena[slot_at(arena, base, slot) + S_ROW]
    level, value = key_of(batcher.order, table, arena, base, row, slot, now)
    return level, value, row


@kernel
def line_up(batcher, table, arena, base, now):
    """Write who runs, and (as -1 - slot) who is swapped, in order to G_SCRATCH; returns how many there are."""
    listed, count, in_order = arena[G_SCRATCH], inside(arena, base), True
    for place in range(listed, listed + count):
        slot = slot_inside(arena, base, place - listed)
        arena[place] = slot if place - listed < arena[base + R_RUNNING] else -1 - slot
        level, value, _ = rank_of(batcher, table, arena, base, slot, now)
        arena[place + arena[G_SLOTS]], arena[place + 2 * arena[G_SLOTS]] = level, value
        in_order = in_order and (place == listed or not is_behind(arena, base, place - 1, place))
    other, run = listed + 3 * arena[G_SLOTS], 1
    while not in_order and run < count:  # runs of so many are in order; one list to the other
        for low in range(0, count, 2 * run):
            merge(arena, base, listed, other, low, min(low + run, count), min(low + 2 * run, count))
        listed, other, run = other, listed, 2 * run
    if listed != arena[G_SCRATCH]:
        for place in range(count):
            arena[arena[G_SCRATCH] + place] = arena[listed + place]
    return count


@kernel
def is_behind(arena, base, place, other):
    """Of two in a list: is the first behind the other?"""
    level, other_level = arena[place + arena[G_SLOTS]], arena[other + arena[G_SLOTS]]
    if level != other_level:
        return level > other_level
    value, other_value = arena[place + 2 * arena[G_SLOTS]], arena[other + 2 * arena[G_SLOTS]]
    if value != other_value:
        return value > other_value
    return row_listed(arena, base, place) > row_listed(arena, base, other)


@kernel
def row_listed(arena, base, place):
    """Whose place in a list that is."""
    slot = arena[place]
    return arena[slot_at(arena, base, slot if slot >= 0 else -1 - slot) + S_ROW]


@kernel
def merge(arena, base, listed, other, low, middle, high):
    """Two runs of a list, one behind the other, become one of another list."""
    left, right = low, middle
    for place in range(low, high):
        from_right = left == middle or (right < high and is_behind(arena, base, listed + left, listed + right))
        taken = right if from_right else left
        for part in range(0, 3 * arena[G_SLOTS], arena[G_SLOTS]):
            arena[other + part + place] = arena[listed + part + taken]
        left, right = left + (1 - from_right), right + from_right


@kernel
def draft(batcher, table, arena, costs, params, base, step, now):
    """Tokens from the top of the list until the budget is spent; behind the first who can't enter nobody else does."""
    catch_up(batcher.order, table, arena, base, now)
    count = arena[step + T_LISTED] = line_up(batcher, table, arena, base, now)
    place, entry, fetched = 0, True, -1
    level = value = inside_row = 0
    while entry:
        if fetched < place < count:  # as things are when it is its turn
            fetched, slot = place, arena[arena[G_SCRATCH] + place]
            level, value, inside_row = rank_of(batcher, table, arena, base, slot if slot >= 0 else -1 - slot, now)
        row = head(arena, base)
        if row < 0 and place == count:
            break
        slot = arena[entry_at(arena, row) + Q_SLOT] if row >= 0 else -1
        waits = row >= 0
        if waits and place < count:
            its_level, its_value = key_of(batcher.order, table, arena, base, row, slot, now)
            waits = comes_after(level, value, inside_row, its_level, its_value, row)
        if waits:
            entry = enter_ranked(batcher, table, arena, base, step, slot, row, now)
        else:
            entry = go_on(batcher, table, arena, base, step, arena[arena[G_SCRATCH] + place], now)
            place += 1
    for later in range(arena[G_SCRATCH] + place, arena[G_SCRATCH] + count):
        if arena[later] >= 0:
            grow(batcher, table, arena, base, step, arena[later], NO_LIMIT, 0, now)


@kernel
def go_on(batcher, table, arena, base, step, slot, now):
    """Tokens for one who ran, or (-1 - slot) one who was swapped and comes back; False: he can't."""
    if slot < 0:
        slot = -1 - slot
        known = arena[slot_at(arena, base, slot) + S_KNOWN]
        if not come_back(table, arena, base, step, slot, now):
            row = arena[slot_at(arena, base, slot) + S_ROW]
            if not displace(batcher, table, arena, base, step, slot, row, known, now):
                return False
            if not come_back(table, arena, base, step, slot, now):
                return False
    grow(batcher, table, arena, base, step, slot, NO_LIMIT, 0, now)
    return True


@kernel
def come_back(table, arena, base, step, slot, now):
    """Bring a swapped request into the running list, if slot, token and memory are there."""
    running, free = arena[base + R_RUNNING], arena[base + R_FREE_BLOCKS]
    if not may_return(arena, base, slot, running, free, arena[step + T_BUDGET]):
        return False
    swap_in(table, arena, base, step, swap_place(arena, base, slot), now)
    run_on(arena, base, slot)
    return True


@kernel
def enter_ranked(batcher, table, arena, base, step, slot, row, now):
    """The head of the queue enters, if need be in the place of who ranks behind it; False: it stays out."""
    known = known_tokens(table, arena, base, slot, row)
    if admit(batcher, table, arena, base, step, slot, row, known, NO_LIMIT, 0, now):
        return True
    if not displace(batcher, table, arena, base, step, slot, row, known, now):
        return False
    return admit(batcher, table, arena, base, step, slot, row, known, NO_LIMIT, 0, now)


@kernel
def displace(batcher, table, arena, base, step, slot, row, known, now):
    """Preempt who ranks behind a request, the last first, until it can enter; False, and nobody is, if that's not enough."""
    tokens = known if arena[G_WHOLE_PROMPT] != 0 else min(known, arena[step + T_BUDGET])
    need = rules.blocks_for(tokens, arena[G_BLOCK_SIZE]) + arena[G_WATERMARK]
    places, free = arena[G_MAX_NUM_SEQS] - arena[base + R_RUNNING], arena[base + R_FREE_BLOCKS]
    level, value = key_of(batcher.order, table, arena, base, row, slot, now)
    end = inside_at_first = arena[step + T_LISTED]
    chosen = 0
    while places < 1 or free < need:
        end = last_behind(batcher, table, arena, base, step, level, value, row, end, now)
        if end < 0:
            return False
        chosen, places = chosen + 1, places + 1
        free += held_blocks(arena, slot_at(arena, base, arena[arena[G_SCRATCH] + end]))
    if chosen == 0 or arena[step + T_BUDGET] == 0:
        return False
    end = inside_at_first
    for _ in range(chosen):
        end = last_behind(batcher, table, arena, base, step, level, value, row, end, now)
        give_way(table, arena, base, step, arena[arena[G_SCRATCH] + end], False, now)
    return True


@kernel
def last_behind(batcher, table, arena, base, step, level, value, row, end, now):
    """The last place in the list, before `end`, of a running request that ranks behind one, -1 if there is none.

    Only those that have made a token since they entered, and have none in this step; they stand where they did when the
    list was made.
    """
    for place in range(end - 1, -1, -1):
        slot = arena[arena[G_SCRATCH] + place]
        if slot < 0:
            continue
        at = slot_at(arena, base, slot)
        if arena[at + S_STAGE] != RUNNING or arena[at + S_KNOWN] <= arena[at + S_ENTERED]:
            continue
        if is_drafted(arena, step, at, slot):
            continue
        its_level, its_value, its_row = rank_of(batcher, table, arena, base, slot, now)
        return place if comes_after(its_level, its_value, its_row, level, value, row) else -1
    return -1


@kernel
def last_of_all(batcher, table, arena, base, now):
    """Who gives way when memory is short: the last in the list of those who run."""
    last = arena[arena[base + R_ORDER]]
    level, value, row = rank_of(batcher, table, arena, base, last, now)
    for place in range(1, arena[base + R_RUNNING]):
        slot = arena[arena[base + R_ORDER] + place]
        its_level, its_value, its_row = rank_of(batcher, table, arena, base, slot, now)
        if comes_after(its_level, its_value, its_row, level, value, row):
            last, level, value, row = slot, its_level, its_value, its_row
    return last


made_of(RankedByRows, by_rows_with(draft, last_of_all))
