"""The waiting pass: who is next, may it enter, and what it holds and computes once it does.

Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.blocks.kernels import take
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
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import catch_up, left
from llmqsim.engine.compiled.prefix.kernels import find_keys, hits, share, take_hits
from llmqsim.engine.compiled.queue.kernels import entry_at, head, pop
from llmqsim.engine.compiled.step.rows.kernels import at_most, known_tokens, next_row, put, run_on, slot_at
from llmqsim.engine.compiled.step.running.kernels import awaited_tokens
from llmqsim.jit import kernel


@kernel
def first_in_line(batcher, table, arena, base, now):
    """(slot, row, known tokens) of the head of the queue; slot -1 if it is a new request."""
    preempted = arena[base + R_PREEMPTED]
    if arena[G_SORTED] != 0:
        catch_up(batcher.order, table, arena, base, now)
        row = head(arena, base)
        slot = arena[entry_at(arena, row) + Q_SLOT]
        return slot, row, known_tokens(table, arena, base, slot, row)
    if preempted > 0:
        slot = arena[arena[base + R_STACK] + preempted - 1]
        at = slot_at(arena, base, slot)
        return slot, arena[at + S_ROW], arena[at + S_KNOWN]
    row = arena[base + R_HEAD_ROW]
    return -1, row, table[PROMPT_TOKENS, row]


@kernel
def admission(arena, base, slot, row, known, budget, most, hold_tokens):
    """May this one enter? (what keeps it out or ADMITTED, its first tokens, cached blocks)."""
    running, free, block_size = arena[base + R_RUNNING], arena[base + R_FREE_BLOCKS], arena[G_BLOCK_SIZE]
    refused_by = rules.has_place(running, arena[G_MAX_NUM_SEQS], budget)
    if refused_by != rules.ADMITTED:
        return refused_by, 0, 0
    if slot >= 0 and arena[G_STAGES] > 1 and awaited_tokens(arena, slot_at(arena, base, slot)) > 0:
        return rules.WAIT_STEP, 0, 0  # preempted while its token was under way
    if slot < 0 and arena[base + R_FREE_SLOTS] == 0:  # preempted requests keep theirs
        arena[G_FAULT] = MORE_SLOTS
        return rules.WAIT_SLOTS, 0, 0
    hit, hit_free = hits(arena, base, slot, row, known)
    cached = hit * block_size
    want = rules.first_tokens(known - cached, budget, at_most(arena, budget, most), arena[G_CHUNKED] != 0)
    if want == 0:
        return rules.WAIT_TOKEN_BUDGET, 0, hit
    hold = max(cached + want, hold_tokens)
    must_fit = max(hold, known) if arena[G_WHOLE_PROMPT] != 0 else hold
    above = arena[G_WATERMARK] if running > 0 else 0
    if not rules.has_memory(must_fit, hit, hit_free, block_size, free, above):
        return rules.WAIT_KV, 0, hit
    return rules.ADMITTED, want, hit


@kernel
def fill_slot(table, arena, base, row):
    """Give a new request a slot; returns it."""
    arena[base + R_FREE_SLOTS] -= 1
    slot = arena[arena[base + R_FREE] + arena[base + R_FREE_SLOTS]]
    at = slot_at(arena, base, slot)
    arena[at + S_ROW] = row
    arena[at + S_PROMPT] = table[PROMPT_TOKENS, row]
    arena[at + S_OUTPUT] = table[OUTPUT_TOKENS, row]
    arena[at + S_MAX] = table[MAX_TOKENS, row]
    arena[at + S_CLASS] = table[CLASS_ID, row]
    arena[at + S_TENANT] = table[TENANT_ID, row]
    arena[at + S_COMPUTED] = 0
    arena[at + S_KNOWN] = arena[at + S_PROMPT]
    arena[at + S_GENERATED] = 0
    arena[at + S_HIGH_WATER] = 0
    arena[at + S_LAST_NS] = -1
    arena[at + S_MAX_GAP_NS] = -1
    arena[at + S_MEMBER] = NO_MEMBER
    arena[at + S_DRAFT] = arena[at + S_HOLD] = arena[at + S_WAS_SWAPPED] = 0
    if arena[G_SORTED] != 0:
        arena[entry_at(arena, row) + Q_SLOT] = slot
    find_keys(arena, at, row)
    return slot


@kernel
def dequeue(table, arena, base, slot, row):
    """Take the head off the queue (slot -1: a new request)."""
    if arena[G_SORTED] != 0:
        pop(arena, base)
    elif slot < 0 and arena[base + R_QUEUED] > 1:
        arena[base + R_HEAD_ROW] = next_row(table, arena, base, row)


@kernel
def enter(table, arena, base, slot, row, now):
    """A request that is off the queue (slot -1: a new one) joins the running list; its waits are settled. Returns its slot."""
    if slot >= 0:
        arena[base + R_PREEMPTED] -= 1
        table[WAIT_PREEMPTED, row] += now - arena[slot_at(arena, base, slot) + S_PREEMPTED_NS]
    else:
        arena[base + R_QUEUED] -= 1
        for reason in range(4):
            table[WAIT_STEP + reason, row] += arena[base + R_CLOCKS + reason]
        table[FIRST_SCHEDULED, row] = now
        slot = fill_slot(table, arena, base, row)
    run_on(arena, base, slot)
    return slot


@kernel
def settle_in(batcher, table, arena, base, step, slot, row, want, hit, hold_tokens, padding, now):
    """A request that may enter, and is off the queue, does: with its cached blocks, those it needs, and its first row."""
    block_size = arena[G_BLOCK_SIZE]
    slot = enter(table, arena, base, slot, row, now)
    left(batcher.order, table, arena, base, row, True)
    at = slot_at(arena, base, slot)
    cached = hit * block_size
    arena[base + R_ADMISSIONS] += 1
    if hit > 0:
        arena[step + T_LOADED] += take_hits(arena, base, slot, hit)
        arena[step + T_CACHED] += cached
        table[CACHED, row] += max(0, cached - arena[at + S_HIGH_WATER])
    arena[at + S_COMPUTED] = arena[at + S_HIT] = cached
    arena[at + S_PADDING] = padding
    arena[at + S_HOLD] = rules.blocks_for(hold_tokens, block_size)
    take(arena, base, rules.blocks_for(max(cached + want, hold_tokens), block_size) - hit)
    put(arena, base, step, slot, want)
    share(arena, base, at)


@kernel
def admit_head(batcher, table, arena, base, step, hold_known, hold_maximum, now):
    """Let the head of the queue enter, or note what keeps it out; False: it stays out.

    hold_known, hold_maximum : are the blocks of all its known tokens, or of the longest answer, taken at once?
    """
    slot, row, known = first_in_line(batcher, table, arena, base, now)
    hold_tokens = known if hold_known else 0
    if hold_maximum:
        hold_tokens = table[PROMPT_TOKENS, row] + table[MAX_TOKENS, row]
    return admit(batcher, table, arena, base, step, slot, row, known, NO_LIMIT, hold_tokens, now)


@kernel
def admit(batcher, table, arena, base, step, slot, row, known, most, hold_tokens, now):
    """Let the head of the queue (`first_in_line`) enter with at most so many tokens, or note what keeps it out."""
    refused_by, want, hit = admission(arena, base, slot, row, known, arena[step + T_BUDGET], most, hold_tokens)
    if refused_by != rules.ADMITTED:
        arena[step + T_BLOCKED_BY] = refused_by
        return False
    dequeue(table, arena, base, slot, row)
    settle_in(batcher, table, arena, base, step, slot, row, want, hit, hold_tokens, 0, now)
    return True


@kernel
def admit_waiting(batcher, table, arena, base, step, hold_known, hold_maximum, now):
    """The waiting pass, up to the first that may not enter; did any?"""
    entered = False
    while arena[base + R_PREEMPTED] + arena[base + R_QUEUED] > 0:
        if not admit_head(batcher, table, arena, base, step, hold_known, hold_maximum, now):
            break
        entered = True
    return entered
