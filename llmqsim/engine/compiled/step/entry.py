"""The waiting pass: who is next, may it enter, and what it holds and computes once it does.

Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.blocks.pool import take
from llmqsim.engine.compiled.columns import (
    CACHED,
    CLASS_ID,
    FIRST_SCHEDULED,
    MAX_TOKENS,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    TENANT_ID,
    WAIT_PREEMPTED,
    WAIT_STEP,
)
from llmqsim.engine.compiled.orders import catch_up, left
from llmqsim.engine.compiled.prefix.copies import find_keys, hits, share, take_hits
from llmqsim.engine.compiled.queue import head, pop
from llmqsim.engine.compiled.step.rows import at_most, known_tokens, next_row, put, run_on
from llmqsim.engine.compiled.step.running import awaited_tokens
from llmqsim.engine.compiled.world.limits import MORE_SLOTS, NO_LIMIT
from llmqsim.engine.compiled.world.queue import entry_at
from llmqsim.engine.compiled.world.request import NO_MEMBER, request_at
from llmqsim.jit import kernel


@kernel
def first_in_line(batcher, table, run, arena, replica, now):
    """(slot, row, known tokens) of the head of the queue; slot -1 if it is a new request."""
    preempted = replica.preempted
    if run.sorted != 0:
        catch_up(batcher.order, table, run, arena, replica, now)
        row = head(run, arena, replica)
        slot = entry_at(arena, run.queue, row).slot
        return slot, row, known_tokens(table, arena, replica, slot, row)
    if preempted > 0:
        slot = arena[replica.stack + preempted - 1]
        request = request_at(arena, replica.slots, slot)
        return slot, request.row, request.known_tokens
    row = replica.head_row
    return -1, row, table[PROMPT_TOKENS, row]


@kernel
def admission(run, arena, replica, slot, row, known, budget, most, hold_tokens):
    """May this one enter? (what keeps it out or ADMITTED, its first tokens, cached blocks)."""
    running, free, block_size = replica.running, replica.free_blocks, run.block_size
    refused_by = rules.has_place(running, run.max_num_seqs, budget)
    if refused_by != rules.ADMITTED:
        return refused_by, 0, 0
    if slot >= 0 and run.stages > 1 and awaited_tokens(request_at(arena, replica.slots, slot)) > 0:
        return rules.WAIT_STEP, 0, 0  # preempted while its token was under way
    if slot < 0 and replica.free_slots == 0:  # preempted requests keep theirs
        run.fault = MORE_SLOTS
        return rules.WAIT_SLOTS, 0, 0
    hit, hit_free = hits(run, arena, replica, slot, row, known)
    cached = hit * block_size
    want = rules.first_tokens(known - cached, budget, at_most(run, budget, most), run.chunked != 0)
    if want == 0:
        return rules.WAIT_TOKEN_BUDGET, 0, hit
    hold = max(cached + want, hold_tokens)
    must_fit = max(hold, known) if run.whole_prompt != 0 else hold
    above = run.watermark if running > 0 else 0
    if not rules.has_memory(must_fit, hit, hit_free, block_size, free, above):
        return rules.WAIT_KV, 0, hit
    return rules.ADMITTED, want, hit


@kernel
def fill_slot(table, run, arena, replica, row):
    """Give a new request a slot; returns it."""
    replica.free_slots -= 1
    slot = arena[replica.free + replica.free_slots]
    request = request_at(arena, replica.slots, slot)
    request.row = row
    request.prompt_tokens = table[PROMPT_TOKENS, row]
    request.output_tokens = table[OUTPUT_TOKENS, row]
    request.max_tokens = table[MAX_TOKENS, row]
    request.class_id = table[CLASS_ID, row]
    request.tenant_id = table[TENANT_ID, row]
    request.computed_tokens = 0
    request.known_tokens = request.prompt_tokens
    request.generated_tokens = 0
    request.high_water_tokens = 0
    request.last_ns = -1
    request.max_gap_ns = -1
    request.member = NO_MEMBER
    request.drafted = request.hold = request.was_swapped = 0
    if run.sorted != 0:
        entry_at(arena, run.queue, row).slot = slot
    find_keys(run, arena, request, row)
    return slot


@kernel
def dequeue(table, run, arena, replica, slot, row):
    """Take the head off the queue (slot -1: a new request)."""
    if run.sorted != 0:
        pop(run, arena, replica)
    elif slot < 0 and replica.queued > 1:
        replica.head_row = next_row(table, run, replica, row)


@kernel
def enter(table, run, arena, replica, slot, row, now):
    """A request that is off the queue (slot -1: a new one) joins the running list; its waits are settled. Returns its slot."""
    if slot >= 0:
        replica.preempted -= 1
        table[WAIT_PREEMPTED, row] += now - request_at(arena, replica.slots, slot).preempted_ns
    else:
        replica.queued -= 1
        for reason in range(4):
            table[WAIT_STEP + reason, row] += replica.clocks[reason]
        table[FIRST_SCHEDULED, row] = now
        slot = fill_slot(table, run, arena, replica, row)
    run_on(arena, replica, slot)
    return slot


@kernel
def settle_in(batcher, table, run, arena, replica, step, slot, row, want, hit, hold_tokens, padding, now):
    """A request that may enter, and is off the queue, does: with its cached blocks, those it needs, and its first row."""
    block_size = run.block_size
    slot = enter(table, run, arena, replica, slot, row, now)
    left(batcher.order, table, run, arena, replica, row, True)
    request = request_at(arena, replica.slots, slot)
    cached = hit * block_size
    replica.admissions += 1
    if hit > 0:
        step.loaded_blocks += take_hits(run, arena, replica, slot, hit)
        step.cached_tokens += cached
        table[CACHED, row] += max(0, cached - request.high_water_tokens)
    request.computed_tokens = request.hit_tokens = cached
    request.padding_tokens = padding
    request.hold = rules.blocks_for(hold_tokens, block_size)
    take(run, arena, replica, rules.blocks_for(max(cached + want, hold_tokens), block_size) - hit)
    put(run, arena, replica, step, slot, want)
    share(run, arena, replica, request)


@kernel
def admit_head(batcher, table, run, arena, replica, step, hold_known, hold_maximum, now):
    """Let the head of the queue enter, or note what keeps it out; False: it stays out.

    hold_known, hold_maximum : are the blocks of all its known tokens, or of the longest answer, taken at once?
    """
    slot, row, known = first_in_line(batcher, table, run, arena, replica, now)
    hold_tokens = known if hold_known else 0
    if hold_maximum:
        hold_tokens = table[PROMPT_TOKENS, row] + table[MAX_TOKENS, row]
    return admit(batcher, table, run, arena, replica, step, slot, row, known, NO_LIMIT, hold_tokens, now)


@kernel
def admit(batcher, table, run, arena, replica, step, slot, row, known, most, hold_tokens, now):
    """Let the head of the queue (`first_in_line`) enter with at most so many tokens, or note what keeps it out."""
    refused_by, want, hit = admission(run, arena, replica, slot, row, known, step.budget, most, hold_tokens)
    if refused_by != rules.ADMITTED:
        step.blocked_by = refused_by
        return False
    dequeue(table, run, arena, replica, slot, row)
    settle_in(batcher, table, run, arena, replica, step, slot, row, want, hit, hold_tokens, 0, now)
    return True


@kernel
def admit_waiting(batcher, table, run, arena, replica, step, hold_known, hold_maximum, now):
    """The waiting pass, up to the first that may not enter; did any?"""
    entered = False
    while replica.preempted + replica.queued > 0:
        if not admit_head(batcher, table, run, arena, replica, step, hold_known, hold_maximum, now):
            break
        entered = True
    return entered
