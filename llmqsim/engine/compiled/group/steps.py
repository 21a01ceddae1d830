"""A step of the group is formed, with rows for those who don't decode yet, and ends. Arguments as in step/."""

from __future__ import annotations

from llmqsim.cost.kernels import step_ns
from llmqsim.engine import rules
from llmqsim.engine.compiled.blocks.pool import take
from llmqsim.engine.compiled.books import count_gap, look, tally
from llmqsim.engine.compiled.columns import FIRST_TOKEN
from llmqsim.engine.compiled.group.members import (
    computed_by,
    foresee_ends,
    form_no_more,
    formed_steps,
    join,
    note_ending,
    pop_end,
    push_gap,
    worst_gap_after,
)
from llmqsim.engine.compiled.orders import look_again, ran
from llmqsim.engine.compiled.prefix.copies import share
from llmqsim.engine.compiled.step.ending import book_step, close_ranks, leave
from llmqsim.engine.compiled.step.entry import admit_waiting
from llmqsim.engine.compiled.step.forming import clear, note_peaks, note_state, queue_up, read_kv, start, start_cold
from llmqsim.engine.compiled.step.rows import at_most, attention, drop_oldest, put, step_in_flight
from llmqsim.engine.compiled.step.running import bring_back
from llmqsim.engine.compiled.swap import may_return, with_copies
from llmqsim.engine.compiled.world.limits import FORMED, GONE, NO_LIMIT, NOBODY, SHORT
from llmqsim.engine.compiled.world.replica import GAPS, SLOT_BITS, SLOT_MASK
from llmqsim.engine.compiled.world.request import MEMBER, NO_MEMBER, request_at
from llmqsim.jit import kernel

# Form and commit.


@kernel
def fits(run, arena, replica, members_need):
    """Have members and prefilling requests tokens and blocks enough, whatever the order in which they are served?"""
    block_size = run.block_size
    budget = run.budget - replica.members
    if run.host_blocks > 0 and replica.mixed != 0 and members_need > 0:
        return False  # what goes to the host depends on whose blocks are taken first
    free = replica.free_blocks - members_need
    whole = True
    for place in range(replica.prefilling):
        request = request_at(arena, replica.slots, arena[replica.prefill + place])
        computed = request.computed_tokens
        missing = request.known_tokens - computed
        tokens = min(missing, at_most(run, budget, NO_LIMIT))
        whole = whole and tokens == min(missing, at_most(run, missing, NO_LIMIT))
        free -= rules.new_blocks(computed, tokens, rules.blocks_for(computed, block_size), block_size)
        budget -= tokens
    if free < 0 or budget < 0 or not (whole or replica.mixed == 0):
        return False
    return replica.swapped == 0 or can_grow_on_return(run, arena, replica, free, budget)


@kernel
def can_grow_on_return(run, arena, replica, free, budget):
    """Will those who come back from the host now find the blocks that they need beside those that they bring?"""
    running, block_size = replica.running, run.block_size
    for place in range(replica.swapped):
        slot = arena[replica.swaps + place]
        if not may_return(run, arena, replica, slot, running, free, budget):
            return True
        request = request_at(arena, replica.slots, slot)
        blocks, computed = request.swapped_blocks, request.computed_tokens
        want = min(request.known_tokens - computed, at_most(run, budget, NO_LIMIT))
        need = rules.new_blocks(computed, want, blocks, block_size)
        if blocks + need > free:
            return False
        free -= blocks + need
        budget -= want
        running += 1
    return True


@kernel
def grow_prefilling(run, arena, replica, step):
    """The running pass behind the members, who have had their tokens; memory is enough (`fits`)."""
    block_size = run.block_size
    for place in range(replica.prefilling):
        slot = arena[replica.prefill + place]
        request = request_at(arena, replica.slots, slot)
        computed = request.computed_tokens
        budget = at_most(run, step.budget, NO_LIMIT)
        want = rules.want_tokens(request.known_tokens, computed, request.prompt_tokens, request.max_tokens, budget)
        if want > 0:
            held = rules.blocks_for(computed, block_size)
            take(run, arena, replica, rules.new_blocks(computed, want, held, block_size))
            put(run, arena, replica, step, slot, want)
            share(run, arena, replica, request)


@kernel
def sort_out(run, arena, replica, step, newcomers_from):
    """After a step is formed: who samples a token joins, the others go on prefilling, newcomers last."""
    number = formed_steps(replica)
    for place in range(step.sampled):
        join(run, arena, replica, arena[step.samples + place], number)
    prefill, kept = replica.prefill, 0
    for place in range(replica.prefilling):
        slot = arena[prefill + place]
        if request_at(arena, replica.slots, slot).member == NO_MEMBER:
            arena[prefill + kept] = slot
            kept += 1
        elif kept > 0:
            replica.mixed = 1
    for place in range(newcomers_from, replica.order_end):
        slot = arena[replica.order + place]
        if request_at(arena, replica.slots, slot).member == NO_MEMBER:
            arena[prefill + kept] = slot
            kept += 1
        elif kept > 0:
            replica.mixed = 1
    if kept == 0:
        replica.mixed = 0
    replica.prefilling = kept


@kernel
def form_grouped(batcher, table, run, arena, costs, params, replica, now):
    """Form the next step: FORMED, NOBODY when nobody can have a token, SHORT (and nothing done) when memory is short."""
    if run.in_flight > 1:
        foresee_ends(run, arena, replica)
    members, block_size = replica.members, run.block_size
    need = arena[replica.residues + (-formed_steps(replica)) % block_size]
    if replica.gaps_size >= GAPS - 1 or not fits(run, arena, replica, need):
        return SHORT
    if replica.order_end > 2 * run.slots:
        close_ranks(arena, replica)
    tally(replica, now)
    look(table, run, arena, replica, now)
    look_again(batcher.order, table, run, arena, replica, now)
    step, newcomers_from = step_in_flight(run, arena, replica, replica.steps), replica.order_end
    clear(step)
    take(run, arena, replica, need)
    step.decodes = members
    step.kv_tokens = replica.context
    step.budget = run.budget - members
    if replica.prefilling > 0:
        grow_prefilling(run, arena, replica, step)
    all_back = replica.swapped == 0 or bring_back(batcher, table, run, arena, replica, step, now)
    if all_back and replica.queued + replica.preempted > 0:
        admit_waiting(batcher, table, run, arena, replica, step, False, False, now)
    replica.blocked_by = step.blocked_by
    note_peaks(replica)
    note_state(replica, step)
    if step.decodes + step.chunks == 0:
        return NOBODY
    replica.context += members
    running, attention_ns = replica.running, attention(run, arena, costs, params, step)
    step.running = running
    duration_ns = step_ns(
        costs,
        params,
        step.decodes,
        read_kv(run, replica, step.kv_tokens, step.decodes),
        step.prefill_tokens,
        step.chunks,
        attention_ns,
        members + step.sampled,
        running,
    )
    step.duration_ns = with_copies(run, costs, step, duration_ns)
    start_cold(run, replica, step)
    queue_up(run, arena, replica, step, now)
    ran(batcher.order, table, run, arena, replica, step, now)
    if replica.prefilling > 0 or replica.order_end > newcomers_from:
        sort_out(run, arena, replica, step, newcomers_from)
    return FORMED


@kernel
def commit_grouped(table, run, arena, params, replica):
    """The oldest step ends: members get a token each, then the rows that sampled one; who has all of them leaves."""
    step = step_in_flight(run, arena, replica, 0)
    now, number = step.end_ns, replica.usage.steps + 1
    tally(replica, now)
    gap = now - replica.last_commit_ns
    for class_id in range(run.classes):
        weight = arena[replica.classes + class_id]
        if weight > 0:
            count_gap(run, arena, class_id, gap, weight)
    push_gap(arena, replica, number, gap)
    replica.usage.wasted_rows += step.gone
    for place in range(step.sampled):
        if arena[step.samples + place] < 0:
            replica.usage.wasted_rows += arena[step.samples + place] == GONE
        else:
            deliver_token(
                table, run, arena, replica, request_at(arena, replica.slots, arena[step.samples + place]), now
            )
    while replica.ends_size > 0 and arena[replica.ends] >> SLOT_BITS <= number:
        note_ending(arena, replica, pop_end(arena, replica) & SLOT_MASK)
    for place in range(replica.endings):
        end_member(table, run, arena, replica, arena[replica.ending + place], now)
    replica.endings = 0
    drop_oldest(run, replica)
    replica.last_commit_ns = now
    book_step(run, arena, params, replica, step, now)
    if replica.steps > 0:
        start(step_in_flight(run, arena, replica, 0), now)
    replica.form_ns = now


@kernel
def deliver_token(table, run, arena, replica, request, now):
    """The token of a row: the first of its request, or the first since it was preempted. From the next on it is a member's."""
    if request.generated_tokens > 0:
        gap = now - request.last_ns
        count_gap(run, arena, request.class_id, gap, 1)
        request.max_gap_ns = max(request.max_gap_ns, gap)
    else:
        table[FIRST_TOKEN, request.row] = now + run.after_ns
    request.last_ns = now
    request.generated_tokens += 1
    arena[replica.classes + request.class_id] += 1


@kernel
def end_member(table, run, arena, replica, slot, now):
    """A member has all its tokens. If nobody foresaw it, the step formed since holds a row of it for nothing."""
    request = request_at(arena, replica.slots, slot)
    computed = computed_by(request, formed_steps(replica))
    if request.member == MEMBER:
        if replica.steps > 1:
            step_in_flight(run, arena, replica, 1).gone += 1
        form_no_more(run, arena, replica, request)
    arena[replica.classes + request.class_id] -= 1
    request.computed_tokens = computed
    request.generated_tokens = request.output_tokens
    request.max_gap_ns = max(request.max_gap_ns, worst_gap_after(arena, replica, request.joined_step))
    request.member = NO_MEMBER
    arena[replica.order + request.place] = GONE
    replica.running -= 1
    leave(table, run, arena, replica, slot, now)
