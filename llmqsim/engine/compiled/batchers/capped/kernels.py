"""Steps with a limit on their prompt tokens: policies/batching/capped.py in arrays."""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import PrefillShare, SloChunk, made_of
from llmqsim.engine.compiled.batchers.rows.kernels import by_rows
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.step.entry.kernels import admit, first_in_line
from llmqsim.engine.compiled.step.rows.kernels import slot_at
from llmqsim.engine.compiled.step.running.kernels import bring_back, grow, snapshot_decodes_first
from llmqsim.engine.costs.kernels import profiled_step_ns
from llmqsim.jit import kernel
from llmqsim.policies import rules as policy_rules


@kernel
def grow_decodes(batcher, table, arena, base, step, decodes, now):
    """A token for each of the first `decodes` requests in G_SCRATCH."""
    for place in range(arena[G_SCRATCH], arena[G_SCRATCH] + decodes):
        grow(batcher, table, arena, base, step, arena[place], NO_LIMIT, 0, now)


@kernel
def prefill(batcher, table, arena, base, step, decodes, count, most, now):
    """The half-prefilled requests (behind the decodes in G_SCRATCH), then new ones, with so many prompt tokens at most."""
    left = min(arena[step + T_BUDGET], most)
    for place in range(arena[G_SCRATCH] + decodes, arena[G_SCRATCH] + count):
        if left > 0:
            before = arena[step + T_BUDGET]
            grow(batcher, table, arena, base, step, arena[place], left, 0, now)
            left = max(0, left - max(0, before - arena[step + T_BUDGET]))
    if arena[step + T_PREEMPTED] != 0 or not bring_back(batcher, table, arena, base, step, now):
        return
    while arena[base + R_PREEMPTED] + arena[base + R_QUEUED] > 0:
        if left == 0:
            arena[step + T_BLOCKED_BY] = rules.WAIT_TOKEN_BUDGET
            break
        slot, row, known = first_in_line(batcher, table, arena, base, now)
        before = arena[step + T_BUDGET]
        if not admit(batcher, table, arena, base, step, slot, row, known, left, 0, now):
            break
        left -= before - arena[step + T_BUDGET]


@kernel
def prefill_share(batcher, table, arena, costs, params, base, step, now):
    """A fixed share of the token budget for prompts."""
    count, decodes = snapshot_decodes_first(arena, base)
    grow_decodes(batcher, table, arena, base, step, decodes, now)
    prefill(batcher, table, arena, base, step, decodes, count, max(1, int(batcher.share * arena[G_BUDGET])), now)


@kernel
def slo_chunk(batcher, table, arena, costs, params, base, step, now):
    """As much for prompts as the TPOT targets of who decodes allow."""
    note_order(arena, base)
    count, decodes = snapshot_decodes_first(arena, base)
    grow_decodes(batcher, table, arena, base, step, decodes, now)
    most = largest_chunk(batcher, arena, costs, params, base, step, decodes, count)
    prefill(batcher, table, arena, base, step, decodes, count, most, now)


@kernel
def note_order(arena, base):
    """Copy the running list behind what `snapshot_decodes_first` writes."""
    for place in range(arena[base + R_RUNNING]):
        arena[arena[G_SCRATCH] + arena[G_SLOTS] + place] = arena[arena[base + R_ORDER] + place]


@kernel
def largest_chunk(batcher, arena, costs, params, base, step, decodes, count):
    """Prompt tokens with which the step ends in time for all who decode in it, by bisection."""
    limit_ns, kv_tokens, budget = NEVER, 0, arena[step + T_BUDGET]
    for place in range(arena[G_SCRATCH], arena[G_SCRATCH] + decodes):
        at = slot_at(arena, base, arena[place])
        tpot_ns = arena[arena[G_TARGETS] + arena[at + S_CLASS] * TARGETS + TPOT]
        if tpot_ns != NO_TARGET:
            limit_ns = min(limit_ns, tpot_ns)
        kv_tokens += arena[at + S_KNOWN]
    if limit_ns == NEVER:
        return max(1, budget)
    context = first_context(arena, base, count)
    low, high = batcher.least, max(batcher.least, budget)
    while low < high:
        chunk = (low + high + 1) // 2
        percent = arena[G_CACHED_PERCENT]
        took_ns = profiled_step_ns(costs, params, percent, decodes, kv_tokens, chunk, context + chunk)
        if took_ns <= limit_ns * batcher.margin:
            low = chunk
        else:
            high = chunk - 1
    return low


@kernel
def first_context(arena, base, count):
    """Tokens that the first prompt in line has behind it."""
    order = arena[G_SCRATCH] + arena[G_SLOTS]
    for place in range(order, order + count):
        at = slot_at(arena, base, arena[place])
        if policy_rules.lags(arena[at + S_KNOWN], arena[at + S_COMPUTED]):
            return arena[at + S_COMPUTED]
    return 0


made_of(PrefillShare, by_rows(prefill_share))
made_of(SloChunk, by_rows(slo_chunk))
