"""SGLang's steps: policies/batching/sglang.py in arrays."""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import Sglang, made_of
from llmqsim.engine.compiled.batchers.rows.kernels import by_rows
from llmqsim.engine.compiled.books.kernels import float_at, set_float
from llmqsim.engine.compiled.columns import MAX_TOKENS
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.prefix.kernels import hits
from llmqsim.engine.compiled.step.entry.kernels import admit_head, first_in_line
from llmqsim.engine.compiled.step.rows.kernels import held_blocks, slot_at, turn_away
from llmqsim.engine.compiled.step.running.kernels import grow, preempt, snapshot
from llmqsim.jit import kernel
from llmqsim.policies import rules as policy_rules


@kernel
def ratio_of(batcher, arena, base):
    """Share of the remaining output that is reserved."""
    return float_at(arena, base + R_RATIO) if arena[base + R_RATIO_IS_SET] != 0 else batcher.start


@kernel
def set_ratio(arena, base, ratio):
    """Note it."""
    arena[base + R_RATIO_IS_SET] = 1
    set_float(arena, base + R_RATIO, ratio)


@kernel
def draft(batcher, table, arena, costs, params, base, step, now):
    """A prefill step if there is one, else a decode step."""
    count = snapshot(arena, base)
    if not prefill(batcher, table, arena, base, step, count, now):
        decode(batcher, table, arena, base, step, count, now)


@kernel
def expected(batcher, arena, at):
    """Output tokens that a request in a slot may still produce."""
    return policy_rules.expected_tokens(arena[at + S_MAX], arena[at + S_GENERATED], batcher.clip_tokens)


@kernel
def prefill(batcher, table, arena, base, step, count, now):
    """Half-prefilled requests go on, then others enter while memory for all that is expected is there; did any?"""
    scratch, began, block_size = arena[G_SCRATCH], False, arena[G_BLOCK_SIZE]
    for place in range(scratch, scratch + count):
        at = slot_at(arena, base, arena[place])
        if policy_rules.lags(arena[at + S_KNOWN], arena[at + S_COMPUTED]):
            began = grow(batcher, table, arena, base, step, arena[place], NO_LIMIT, 0, now) or began
    if arena[base + R_FULL_SINCE] == arena[base + R_LEFT] and count > 0:
        turn_away(arena, base, step, rules.WAIT_KV)
        return began
    arena[base + R_FULL_SINCE] = -1
    ratio, reserved = ratio_of(batcher, arena, base), 0.0
    for place in range(scratch, scratch + count):
        reserved += expected(batcher, arena, slot_at(arena, base, arena[place])) * ratio
    while arena[base + R_QUEUED] + arena[base + R_PREEMPTED] > 0:
        slot, row, known = first_in_line(batcher, table, arena, base, now)
        generated = arena[slot_at(arena, base, slot) + S_GENERATED] if slot >= 0 else 0
        more = policy_rules.expected_tokens(table[MAX_TOKENS, row], generated, batcher.clip_tokens)
        hit, _ = hits(arena, base, slot, row, known)
        missing = known - hit * block_size
        free = float(arena[base + R_FREE_BLOCKS]) * block_size  # a pool without a limit is beyond whole numbers
        alone = count == 0 and not began
        if not alone and free - reserved < missing + more:
            turn_away(arena, base, step, rules.WAIT_KV)
        elif admit_head(batcher, table, arena, base, step, False, False, now):
            reserved += more * ratio
            began = True
            continue
        if arena[step + T_BUDGET] >= (1 if arena[G_CHUNKED] != 0 else missing):
            arena[base + R_FULL_SINCE] = arena[base + R_LEFT]
        break
    return began


@kernel
def decode(batcher, table, arena, base, step, count, now):
    """A token for everybody who runs, once so many were sent back that their blocks are there."""
    scratch, staying, made, allowed = arena[G_SCRATCH], 0, 0, 0
    for place in range(scratch, scratch + count):
        if arena[slot_at(arena, base, arena[place]) + S_STAGE] == RUNNING:  # not who gave way to a prompt just now
            arena[scratch + staying] = arena[place]
            staying += 1
    if staying == 0:
        return
    before = staying
    while staying > 1 and next_blocks(arena, base, staying) > arena[base + R_FREE_BLOCKS]:
        staying = retract(table, arena, base, step, staying, now)
    if staying < before:
        arena[base + R_FULL_SINCE] = -1
        for place in range(scratch, scratch + staying):
            at = slot_at(arena, base, arena[place])
            made += arena[at + S_GENERATED]
            allowed += min(arena[at + S_MAX], batcher.clip_tokens)
        set_ratio(arena, base, policy_rules.ratio_after_retraction(made, allowed, staying, batcher.retract_decode_steps))
    else:
        ratio = ratio_of(batcher, arena, base)
        set_ratio(
            arena, base, policy_rules.ratio_after_decode(ratio, batcher.start, batcher.floor, batcher.decay_steps)
        )
    for place in range(scratch, scratch + staying):
        grow(batcher, table, arena, base, step, arena[place], NO_LIMIT, 0, now)


@kernel
def next_blocks(arena, base, staying):
    """Blocks that a decode step of those in G_SCRATCH takes."""
    need = 0
    for place in range(arena[G_SCRATCH], arena[G_SCRATCH] + staying):
        at = slot_at(arena, base, arena[place])
        need += rules.new_blocks(arena[at + S_COMPUTED], 1, held_blocks(arena, at), arena[G_BLOCK_SIZE])
    return need


@kernel
def retract(table, arena, base, step, staying, now):
    """Send back whoever has the fewest output tokens, then the longest prompt; returns how many stay."""
    scratch = arena[G_SCRATCH]
    loser = scratch
    for place in range(scratch + 1, scratch + staying):
        if goes_sooner(arena, slot_at(arena, base, arena[place]), slot_at(arena, base, arena[loser])):
            loser = place
    slot = arena[loser]
    for place in range(loser, scratch + staying - 1):
        arena[place] = arena[place + 1]
    preempt(table, arena, base, step, slot, True, now)
    return staying - 1


@kernel
def goes_sooner(arena, at, other):
    """Is the request in one slot sent back before the other?"""
    if arena[at + S_GENERATED] != arena[other + S_GENERATED]:
        return arena[at + S_GENERATED] < arena[other + S_GENERATED]
    if arena[at + S_PROMPT] != arena[other + S_PROMPT]:
        return arena[at + S_PROMPT] > arena[other + S_PROMPT]
    return arena[at + S_ROW] < arena[other + S_ROW]


made_of(Sglang, by_rows(draft))
