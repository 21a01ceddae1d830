"""Requests that run: their next tokens, who gives way when blocks run out, and who comes back from the host.

Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import choose_victim
from llmqsim.engine.compiled.blocks.kernels import release, take
from llmqsim.engine.compiled.books.kernels import float_at
from llmqsim.engine.compiled.columns import ARRIVAL, DEADLINE, MAX_TOKENS, PREDICTED, PREEMPTIONS, PRIORITY
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.prefix.kernels import forget, share
from llmqsim.engine.compiled.queue.kernels import rejoin
from llmqsim.engine.compiled.step.rows.kernels import (
    at_most,
    held_blocks,
    leave_order,
    put,
    run_on,
    slot_at,
    take_back,
    turn_away,
)
from llmqsim.engine.compiled.swap.kernels import may_return, swap_in, swap_out
from llmqsim.engine.costs.kernels import decode_ns
from llmqsim.jit import kernel
from llmqsim.kv.kernels import copy_ns
from llmqsim.policies import rules as policy_rules


@kernel
def preempt(table, arena, base, step, slot, last, now):
    """A running request loses its blocks as memory is short; nobody new enters then in most policies' steps."""
    give_way(table, arena, base, step, slot, last, now)
    arena[step + T_PREEMPTED] = 1


@kernel
def give_way(table, arena, base, step, slot, last, now):
    """A running request loses its blocks: to the host, or it is to compute them again.

    last: it waits at the end of the queue, its KV is not kept cached.
    """
    at = slot_at(arena, base, slot)
    held = blocks = held_blocks(arena, at)
    take_back(arena, base, step, slot)
    computed = arena[at + S_COMPUTED]
    kept = arena[at + S_HIT] if last else computed
    held -= forget(arena, base, at, kept)
    leave_order(arena, base, at)
    table[PREEMPTIONS, arena[at + S_ROW]] += 1
    arena[base + U_PREEMPTIONS] += 1
    arena[at + S_PREEMPTED_NS] = now
    if arena[G_SWAPS] != 0:
        if is_worth_a_swap(arena, at, blocks) and swap_out(table, arena, base, step, slot, blocks, held):
            return
        if arena[G_CACHING] != 0 and arena[at + S_WAS_SWAPPED] != 0:
            arena[G_FAULT] = CACHED_TWICE
    release(arena, base, slot, held, kept // arena[G_BLOCK_SIZE], True)
    arena[at + S_HIGH_WATER] = max(arena[at + S_HIGH_WATER], computed)
    arena[at + S_COMPUTED] = arena[at + S_HOLD] = 0
    arena[at + S_STAGE] = WAITING
    if arena[G_SORTED] != 0:
        rejoin(table, arena, base, arena[at + S_ROW], last, now)
    else:
        arena[arena[base + R_STACK] + arena[base + R_PREEMPTED]] = slot
    arena[base + R_PREEMPTED] += 1


@kernel
def victim(batcher, table, arena, base, now):
    """Who gives way: the request that was admitted last, or the one with the largest (standing, arrival, row)."""
    order, last = arena[base + R_ORDER], arena[base + R_ORDER_END] - 1
    chosen = arena[order + last]
    if arena[G_VICTIM] == NEWEST:
        return chosen
    at = slot_at(arena, base, chosen)
    row, standing = arena[at + S_ROW], standing_of(table, arena, at)
    for place in range(order, order + last):
        at = slot_at(arena, base, arena[place])
        its_standing = standing_of(table, arena, at)
        if its_standing > standing or (its_standing == standing and came_after(table, arena[at + S_ROW], row)):
            chosen, row, standing = arena[place], arena[at + S_ROW], its_standing
    return chosen


@kernel
def came_after(table, row, other):
    """By arrival, then row."""
    if table[ARRIVAL, row] != table[ARRIVAL, other]:
        return table[ARRIVAL, row] > table[ARRIVAL, other]
    return row > other


@kernel
def standing_of(table, arena, at):
    """By what a request in a slot is chosen to give way, largest first: priority, KV that it keeps, or slack."""
    row = arena[at + S_ROW]
    if arena[G_VICTIM] == LEAST_URGENT:
        return table[PRIORITY, row]
    if arena[G_VICTIM] == LEAST_KV:
        return -arena[at + S_COMPUTED]
    at_end = arena[arena[G_TARGETS] + arena[at + S_CLASS] * TARGETS + TTFT] == NO_TARGET
    if table[DEADLINE, row] < 0 or (arena[at + S_GENERATED] > 0 and not at_end):
        return NEVER
    cost = arena[arena[G_PREFILL_NS] + arena[at + S_PROMPT]]
    if at_end:
        left = remaining_tokens(table, arena, row, arena[at + S_GENERATED])
        cost += decode_ns(arena[G_DECODE_NS], arena[G_DECODE_TOKEN], arena[at + S_PROMPT], left)
    return table[ARRIVAL, row] + table[DEADLINE, row] - cost


@kernel
def remaining_tokens(table, arena, row, generated):
    """Output tokens that are still expected of a request that has made so many."""
    re_estimate = float_at(arena, G_RE_ESTIMATE)
    return policy_rules.remaining_tokens(table[PREDICTED, row], generated, table[MAX_TOKENS, row], re_estimate)


@kernel
def is_worth_a_swap(arena, at, blocks):
    """Does the KV of a victim go to the host: always, or where there and back is quicker than to compute it again?"""
    if arena[G_CHEAPER] == 0:
        return True
    there_and_back = copy_ns(2 * blocks, arena[G_COPY_NS], arena[G_BLOCK_BYTES], float_at(arena, G_LINK_RATE))
    return there_and_back < arena[arena[G_PREFILL_NS] + max(1, arena[at + S_COMPUTED])]


@kernel
def awaited_tokens(arena, at):
    """Output tokens that steps in flight make: a pipeline has to know one before it computes the next."""
    return arena[at + S_KNOWN] - arena[at + S_PROMPT] - arena[at + S_GENERATED]


@kernel
def grow(batcher, table, arena, base, step, slot, most, spare, now):
    """Give a running request its next tokens, preempting while the pool is short of their blocks; False: it got none."""
    at = slot_at(arena, base, slot)
    if arena[at + S_STAGE] != RUNNING or (arena[G_STAGES] > 1 and awaited_tokens(arena, at) > 0):
        return False
    computed = arena[at + S_COMPUTED]
    want = rules.want_tokens(
        arena[at + S_KNOWN],
        computed,
        arena[at + S_PROMPT],
        arena[at + S_MAX],
        at_most(arena, arena[step + T_BUDGET], most),
    )
    if want == 0:
        return False
    need = rules.new_blocks(computed, want, held_blocks(arena, at), arena[G_BLOCK_SIZE])
    while arena[base + R_FREE_BLOCKS] < max(need, spare):
        loser = choose_victim(batcher, table, arena, base, now)
        preempt(table, arena, base, step, loser, False, now)
        if loser == slot:
            arena[step + T_EXHAUSTED] = 1
            return False
    take(arena, base, need)
    put(arena, base, step, slot, want)
    share(arena, base, at)
    return True


@kernel
def bring_back(batcher, table, arena, base, step, now):
    """Swapped requests come back and get their next tokens, up to the first that may not. May new ones enter then?"""
    place = 0
    for _ in range(arena[base + R_SWAPPED]):
        slot = arena[arena[base + R_SWAPS] + place]
        running, free = arena[base + R_RUNNING], arena[base + R_FREE_BLOCKS]
        if not may_return(arena, base, slot, running, free, arena[step + T_BUDGET]):
            turn_away(arena, base, step, rules.WAIT_KV)
            return False
        swap_in(table, arena, base, step, place, now)
        run_on(arena, base, slot)
        grow(batcher, table, arena, base, step, slot, NO_LIMIT, 0, now)
        place += arena[slot_at(arena, base, slot) + S_STAGE] == SWAPPED  # it had to go again
    return arena[step + T_PREEMPTED] == 0


@kernel
def snapshot(arena, base):
    """Copy the running list, in order, to G_SCRATCH, so that preemptions don't change it; returns how many there are."""
    for place in range(arena[base + R_RUNNING]):
        arena[arena[G_SCRATCH] + place] = arena[arena[base + R_ORDER] + place]
    return arena[base + R_RUNNING]


@kernel
def snapshot_decodes_first(arena, base):
    """The same with the half-prefilled requests behind the others; returns (how many there are, how many decode)."""
    order, count, behind = arena[base + R_ORDER], 0, arena[base + R_RUNNING]
    for place in range(arena[base + R_RUNNING]):
        at = slot_at(arena, base, arena[order + place])
        if not policy_rules.lags(arena[at + S_KNOWN], arena[at + S_COMPUTED]):
            arena[arena[G_SCRATCH] + count] = arena[order + place]
            count += 1
    decodes = count
    for place in range(behind):
        at = slot_at(arena, base, arena[order + place])
        if policy_rules.lags(arena[at + S_KNOWN], arena[at + S_COMPUTED]):
            arena[arena[G_SCRATCH] + count] = arena[order + place]
            count += 1
    return count, decodes
