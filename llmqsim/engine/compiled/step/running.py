"""Requests that run: their next tokens, who gives way when blocks run out, and who comes back from the host.

Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import choose_victim
from llmqsim.engine.compiled.blocks.pool import release, take
from llmqsim.engine.compiled.columns import ARRIVAL, DEADLINE, MAX_TOKENS, PREDICTED, PREEMPTIONS, PRIORITY
from llmqsim.engine.compiled.prefix.copies import forget, share
from llmqsim.engine.compiled.queue import rejoin
from llmqsim.engine.compiled.step.rows import at_most, held_blocks, leave_order, put, run_on, take_back, turn_away
from llmqsim.engine.compiled.swap import may_return, swap_in, swap_out
from llmqsim.engine.compiled.world.limits import CACHED_TWICE, NEVER, NO_LIMIT
from llmqsim.engine.compiled.world.request import RUNNING, SWAPPED, WAITING, request_at
from llmqsim.engine.compiled.world.run import LEAST_KV, LEAST_URGENT, NEWEST, NO_TARGET, target_at
from llmqsim.engine.costs.kernels import decode_ns
from llmqsim.jit import kernel
from llmqsim.kv.kernels import copy_ns
from llmqsim.policies import rules as policy_rules


@kernel
def preempt(table, run, arena, replica, step, slot, last, now):
    """A running request loses its blocks as memory is short; nobody new enters then in most policies' steps."""
    give_way(table, run, arena, replica, step, slot, last, now)
    step.preempted = 1


@kernel
def give_way(table, run, arena, replica, step, slot, last, now):
    """A running request loses its blocks: to the host, or it is to compute them again.

    last: it waits at the end of the queue, its KV is not kept cached.
    """
    request = request_at(arena, replica.slots, slot)
    held = blocks = held_blocks(run, request)
    take_back(run, arena, replica, step, slot)
    computed = request.computed_tokens
    kept = request.hit_tokens if last else computed
    held -= forget(run, arena, replica, request, kept)
    leave_order(arena, replica, request)
    table[PREEMPTIONS, request.row] += 1
    replica.usage.preemptions += 1
    request.preempted_ns = now
    if run.swaps != 0:
        if is_worth_a_swap(run, arena, request, blocks) and swap_out(
            table, run, arena, replica, step, slot, blocks, held
        ):
            return
        if run.caching != 0 and request.was_swapped != 0:
            run.fault = CACHED_TWICE
    release(run, arena, replica, slot, held, kept // run.block_size, True)
    request.high_water_tokens = max(request.high_water_tokens, computed)
    request.computed_tokens = request.hold = 0
    request.stage = WAITING
    if run.sorted != 0:
        rejoin(table, run, arena, replica, request.row, last, now)
    else:
        arena[replica.stack + replica.preempted] = slot
    replica.preempted += 1


@kernel
def victim(batcher, table, run, arena, replica, now):
    """Who gives way: the request that was admitted last, or the one with the largest (standing, arrival, row)."""
    order, last = replica.order, replica.order_end - 1
    chosen = arena[order + last]
    if run.victim == NEWEST:
        return chosen
    request = request_at(arena, replica.slots, chosen)
    row, standing = request.row, standing_of(table, run, arena, request)
    for place in range(order, order + last):
        request = request_at(arena, replica.slots, arena[place])
        its_standing = standing_of(table, run, arena, request)
        if its_standing > standing or (its_standing == standing and came_after(table, request.row, row)):
            chosen, row, standing = arena[place], request.row, its_standing
    return chosen


@kernel
def came_after(table, row, other):
    """By arrival, then row."""
    if table[ARRIVAL, row] != table[ARRIVAL, other]:
        return table[ARRIVAL, row] > table[ARRIVAL, other]
    return row > other


@kernel
def standing_of(table, run, arena, request):
    """By what a request in a slot is chosen to give way, largest first: priority, KV that it keeps, or slack."""
    row = request.row
    if run.victim == LEAST_URGENT:
        return table[PRIORITY, row]
    if run.victim == LEAST_KV:
        return -request.computed_tokens
    at_end = target_at(arena, run.targets, request.class_id).ttft_ns == NO_TARGET
    if table[DEADLINE, row] < 0 or (request.generated_tokens > 0 and not at_end):
        return NEVER
    cost = arena[run.prefill_ns + request.prompt_tokens]
    if at_end:
        left = remaining_tokens(table, run, row, request.generated_tokens)
        cost += decode_ns(run.decode_ns, run.decode_token, request.prompt_tokens, left)
    return table[ARRIVAL, row] + table[DEADLINE, row] - cost


@kernel
def remaining_tokens(table, run, row, generated):
    """Output tokens that are still expected of a request that has made so many."""
    re_estimate = run.re_estimate
    return policy_rules.remaining_tokens(table[PREDICTED, row], generated, table[MAX_TOKENS, row], re_estimate)


@kernel
def is_worth_a_swap(run, arena, request, blocks):
    """Does the KV of a victim go to the host: always, or where there and back is quicker than to compute it again?"""
    if run.cheaper == 0:
        return True
    there_and_back = copy_ns(2 * blocks, run.copy_ns, run.block_bytes, run.link_rate)
    return there_and_back < arena[run.prefill_ns + max(1, request.computed_tokens)]


@kernel
def awaited_tokens(request):
    """Output tokens that steps in flight make: a pipeline has to know one before it computes the next."""
    return request.known_tokens - request.prompt_tokens - request.generated_tokens


@kernel
def grow(batcher, table, run, arena, replica, step, slot, most, spare, now):
    """Give a running request its next tokens, preempting while the pool is short of their blocks; False: it got none."""
    request = request_at(arena, replica.slots, slot)
    if request.stage != RUNNING or (run.stages > 1 and awaited_tokens(request) > 0):
        return False
    computed = request.computed_tokens
    want = rules.want_tokens(
        request.known_tokens,
        computed,
        request.prompt_tokens,
        request.max_tokens,
        at_most(run, step.budget, most),
    )
    if want == 0:
        return False
    need = rules.new_blocks(computed, want, held_blocks(run, request), run.block_size)
    while replica.free_blocks < max(need, spare):
        loser = choose_victim(batcher, table, run, arena, replica, now)
        preempt(table, run, arena, replica, step, loser, False, now)
        if loser == slot:
            step.exhausted = 1
            return False
    take(run, arena, replica, need)
    put(run, arena, replica, step, slot, want)
    share(run, arena, replica, request)
    return True


@kernel
def bring_back(batcher, table, run, arena, replica, step, now):
    """Swapped requests come back and get their next tokens, up to the first that may not. May new ones enter then?"""
    place = 0
    for _ in range(replica.swapped):
        slot = arena[replica.swaps + place]
        running, free = replica.running, replica.free_blocks
        if not may_return(run, arena, replica, slot, running, free, step.budget):
            turn_away(replica, step, rules.WAIT_KV)
            return False
        swap_in(table, run, arena, replica, step, place, now)
        run_on(arena, replica, slot)
        grow(batcher, table, run, arena, replica, step, slot, NO_LIMIT, 0, now)
        place += request_at(arena, replica.slots, slot).stage == SWAPPED  # it had to go again
    return step.preempted == 0


@kernel
def snapshot(run, arena, replica):
    """Copy the running list, in order, to run.scratch, so that preemptions don't change it; returns how many there are."""
    for place in range(replica.running):
        arena[run.scratch + place] = arena[replica.order + place]
    return replica.running


@kernel
def snapshot_decodes_first(run, arena, replica):
    """The same with the half-prefilled requests behind the others; returns (how many there are, how many decode)."""
    order, count, behind = replica.order, 0, replica.running
    for place in range(replica.running):
        request = request_at(arena, replica.slots, arena[order + place])
        if not policy_rules.lags(request.known_tokens, request.computed_tokens):
            arena[run.scratch + count] = arena[order + place]
            count += 1
    decodes = count
    for place in range(behind):
        request = request_at(arena, replica.slots, arena[order + place])
        if policy_rules.lags(request.known_tokens, request.computed_tokens):
            arena[run.scratch + count] = arena[order + place]
            count += 1
    return count, decodes
