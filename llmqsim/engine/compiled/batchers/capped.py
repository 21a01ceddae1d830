"""Steps with a limit on their prompt tokens: policies/batching/capped.py in arrays."""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import PrefillShare, SloChunk, made_of
from llmqsim.engine.compiled.batchers.rows import by_rows
from llmqsim.engine.compiled.step.entry import admit, first_in_line
from llmqsim.engine.compiled.step.running import bring_back, grow, snapshot_decodes_first
from llmqsim.engine.compiled.world.limits import NEVER, NO_LIMIT
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.engine.compiled.world.run import NO_TARGET, target_at
from llmqsim.engine.costs.kernels import profiled_step_ns
from llmqsim.jit import kernel
from llmqsim.policies import rules as policy_rules


@kernel
def grow_decodes(batcher, table, run, arena, replica, step, decodes, now):
    """A token for each of the first `decodes` requests in run.scratch."""
    for place in range(run.scratch, run.scratch + decodes):
        grow(batcher, table, run, arena, replica, step, arena[place], NO_LIMIT, 0, now)


@kernel
def prefill(batcher, table, run, arena, replica, step, decodes, count, most, now):
    """The half-prefilled requests (behind the decodes in run.scratch), then new ones, with so many prompt tokens at most."""
    left = min(step.budget, most)
    for place in range(run.scratch + decodes, run.scratch + count):
        if left > 0:
            before = step.budget
            grow(batcher, table, run, arena, replica, step, arena[place], left, 0, now)
            left = max(0, left - max(0, before - step.budget))
    if step.preempted != 0 or not bring_back(batcher, table, run, arena, replica, step, now):
        return
    while replica.preempted + replica.queued > 0:
        if left == 0:
            step.blocked_by = rules.WAIT_TOKEN_BUDGET
            break
        slot, row, known = first_in_line(batcher, table, run, arena, replica, now)
        before = step.budget
        if not admit(batcher, table, run, arena, replica, step, slot, row, known, left, 0, now):
            break
        left -= before - step.budget


@kernel
def prefill_share(batcher, table, run, arena, costs, params, replica, step, now):
    """A fixed share of the token budget for prompts."""
    count, decodes = snapshot_decodes_first(run, arena, replica)
    grow_decodes(batcher, table, run, arena, replica, step, decodes, now)
    prefill(batcher, table, run, arena, replica, step, decodes, count, max(1, int(batcher.share * run.budget)), now)


@kernel
def slo_chunk(batcher, table, run, arena, costs, params, replica, step, now):
    """As much for prompts as the TPOT targets of who decodes allow."""
    note_order(run, arena, replica)
    count, decodes = snapshot_decodes_first(run, arena, replica)
    grow_decodes(batcher, table, run, arena, replica, step, decodes, now)
    most = largest_chunk(batcher, run, arena, costs, params, replica, step, decodes, count)
    prefill(batcher, table, run, arena, replica, step, decodes, count, most, now)


@kernel
def note_order(run, arena, replica):
    """Copy the running list behind what `snapshot_decodes_first` writes."""
    for place in range(replica.running):
        arena[run.scratch + run.slots + place] = arena[replica.order + place]


@kernel
def largest_chunk(batcher, run, arena, costs, params, replica, step, decodes, count):
    """Prompt tokens with which the step ends in time for all who decode in it, by bisection."""
    limit_ns, kv_tokens, budget = NEVER, 0, step.budget
    for place in range(run.scratch, run.scratch + decodes):
        request = request_at(arena, replica.slots, arena[place])
        tpot_ns = target_at(arena, run.targets, request.class_id).tpot_ns
        if tpot_ns != NO_TARGET:
            limit_ns = min(limit_ns, tpot_ns)
        kv_tokens += request.known_tokens
    if limit_ns == NEVER:
        return max(1, budget)
    context = first_context(run, arena, replica, count)
    low, high = batcher.least, max(batcher.least, budget)
    while low < high:
        chunk = (low + high + 1) // 2
        percent = run.cached_percent
        took_ns = profiled_step_ns(costs, params, percent, decodes, kv_tokens, chunk, context + chunk)
        if took_ns <= limit_ns * batcher.margin:
            low = chunk
        else:
            high = chunk - 1
    return low


@kernel
def first_context(run, arena, replica, count):
    """Tokens that the first prompt in line has behind it."""
    order = run.scratch + run.slots
    for place in range(order, order + count):
        request = request_at(arena, replica.slots, arena[place])
        if policy_rules.lags(request.known_tokens, request.computed_tokens):
            return request.computed_tokens
    return 0


made_of(PrefillShare, by_rows(prefill_share))


made_of(SloChunk, by_rows(slo_chunk))
