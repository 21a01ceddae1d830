"""SGLang's steps: policies/batching/sglang.py in arrays."""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import Sglang, made_of
from llmqsim.engine.compiled.batchers.rows import by_rows
from llmqsim.engine.compiled.columns import MAX_TOKENS
from llmqsim.engine.compiled.prefix.copies import hits
from llmqsim.engine.compiled.step.entry import admit_head, first_in_line
from llmqsim.engine.compiled.step.rows import held_blocks, turn_away
from llmqsim.engine.compiled.step.running import grow, preempt, snapshot
from llmqsim.engine.compiled.world.limits import NO_LIMIT
from llmqsim.engine.compiled.world.request import RUNNING, request_at
from llmqsim.jit import kernel
from llmqsim.policies import rules as policy_rules


@kernel
def ratio_of(batcher, replica):
    """Share of the remaining output that is reserved."""
    return replica.ratio if replica.ratio_is_set != 0 else batcher.start


@kernel
def set_ratio(replica, ratio):
    """Note it."""
    replica.ratio_is_set = 1
    replica.ratio = ratio


@kernel
def draft(batcher, table, run, arena, costs, params, replica, step, now):
    """A prefill step if there is one, else a decode step."""
    count = snapshot(run, arena, replica)
    if not prefill(batcher, table, run, arena, replica, step, count, now):
        decode(batcher, table, run, arena, replica, step, count, now)


@kernel
def expected(batcher, request):
    """Output tokens that a request in a slot may still produce."""
    return policy_rules.expected_tokens(request.max_tokens, request.generated_tokens, batcher.clip_tokens)


@kernel
def prefill(batcher, table, run, arena, replica, step, count, now):
    """Half-prefilled requests go on, then others enter while memory for all that is expected is there; did any?"""
    scratch, began, block_size = run.scratch, False, run.block_size
    for place in range(scratch, scratch + count):
        request = request_at(arena, replica.slots, arena[place])
        if policy_rules.lags(request.known_tokens, request.computed_tokens):
            began = grow(batcher, table, run, arena, replica, step, arena[place], NO_LIMIT, 0, now) or began
    if replica.full_since == replica.left and count > 0:
        turn_away(replica, step, rules.WAIT_KV)
        return began
    replica.full_since = -1
    ratio, reserved = ratio_of(batcher, replica), 0.0
    for place in range(scratch, scratch + count):
        reserved += expected(batcher, request_at(arena, replica.slots, arena[place])) * ratio
    while replica.queued + replica.preempted > 0:
        slot, row, known = first_in_line(batcher, table, run, arena, replica, now)
        generated = request_at(arena, replica.slots, slot).generated_tokens if slot >= 0 else 0
        more = policy_rules.expected_tokens(table[MAX_TOKENS, row], generated, batcher.clip_tokens)
        hit, _ = hits(run, arena, replica, slot, row, known)
        missing = known - hit * block_size
        free = float(replica.free_blocks) * block_size  # a pool without a limit is beyond whole numbers
        alone = count == 0 and not began
        if not alone and free - reserved < missing + more:
            turn_away(replica, step, rules.WAIT_KV)
        elif admit_head(batcher, table, run, arena, replica, step, False, False, now):
            reserved += more * ratio
            began = True
            continue
        if step.budget >= (1 if run.chunked != 0 else missing):
            replica.full_since = replica.left
        break
    return began


@kernel
def decode(batcher, table, run, arena, replica, step, count, now):
    """A token for everybody who runs, once so many were sent back that their blocks are there."""
    scratch, staying, made, allowed = run.scratch, 0, 0, 0
    for place in range(scratch, scratch + count):
        if request_at(arena, replica.slots, arena[place]).stage == RUNNING:  # not who gave way to a prompt just now
            arena[scratch + staying] = arena[place]
            staying += 1
    if staying == 0:
        return
    before = staying
    while staying > 1 and next_blocks(run, arena, replica, staying) > replica.free_blocks:
        staying = retract(table, run, arena, replica, step, staying, now)
    if staying < before:
        replica.full_since = -1
        for place in range(scratch, scratch + staying):
            request = request_at(arena, replica.slots, arena[place])
            made += request.generated_tokens
            allowed += min(request.max_tokens, batcher.clip_tokens)
        set_ratio(replica, policy_rules.ratio_after_retraction(made, allowed, staying, batcher.retract_decode_steps))
    else:
        ratio = ratio_of(batcher, replica)
        set_ratio(replica, policy_rules.ratio_after_decode(ratio, batcher.start, batcher.floor, batcher.decay_steps))
    for place in range(scratch, scratch + staying):
        grow(batcher, table, run, arena, replica, step, arena[place], NO_LIMIT, 0, now)


@kernel
def next_blocks(run, arena, replica, staying):
    """Blocks that a decode step of those in run.scratch takes."""
    need = 0
    for place in range(run.scratch, run.scratch + staying):
        request = request_at(arena, replica.slots, arena[place])
        need += rules.new_blocks(request.computed_tokens, 1, held_blocks(run, request), run.block_size)
    return need


@kernel
def retract(table, run, arena, replica, step, staying, now):
    """Send back whoever has the fewest output tokens, then the longest prompt; returns how many stay."""
    scratch = run.scratch
    loser = scratch
    for place in range(scratch + 1, scratch + staying):
        if goes_sooner(request_at(arena, replica.slots, arena[place]), request_at(arena, replica.slots, arena[loser])):
            loser = place
    slot = arena[loser]
    for place in range(loser, scratch + staying - 1):
        arena[place] = arena[place + 1]
    preempt(table, run, arena, replica, step, slot, True, now)
    return staying - 1


@kernel
def goes_sooner(request, other):
    """Is the request in one slot sent back before the other?"""
    if request.generated_tokens != other.generated_tokens:
        return request.generated_tokens < other.generated_tokens
    if request.prompt_tokens != other.prompt_tokens:
        return request.prompt_tokens > other.prompt_tokens
    return request.row < other.row


made_of(Sglang, by_rows(draft))
