"""The rows of a step: what a row adds to a drafted step, and how it is taken out. Arguments as in step/."""

from __future__ import annotations

from llmqsim.cost.kernels import prefill_attention_ns
from llmqsim.engine import rules
from llmqsim.engine.compiled.columns import GENERATED, MAX_ITL, PROMPT_TOKENS, REPLICA_OF
from llmqsim.engine.compiled.world.limits import GONE, NEVER
from llmqsim.engine.compiled.world.request import RUNNING, request_at
from llmqsim.engine.compiled.world.step import drafted_at, step_at
from llmqsim.jit import kernel


@kernel
def step_in_flight(run, arena, replica, place):
    """Step `place` in flight, 0: the oldest."""
    place += replica.oldest
    if place >= run.ring:
        place -= run.ring
    return step_at(arena, replica.ring + place * run.step_words)


@kernel
def drop_oldest(run, replica):
    """The oldest step in flight has ended: the next one is the oldest."""
    replica.steps -= 1
    replica.oldest += 1
    if replica.oldest == run.ring:
        replica.oldest = 0


@kernel
def next_row(table, run, replica, row):
    """The next request after `row` that was sent to this replica, -1 if there is none yet."""
    index = replica.index
    for later in range(row + 1, run.routed):
        if table[REPLICA_OF, later] == index:
            return later
    return -1


@kernel
def at_most(run, budget, most):
    """Most tokens that a request gets of what is left of a step's budget. most : what its batching policy allows."""
    threshold = run.threshold
    return min(budget, most, threshold) if threshold > 0 else min(budget, most)


@kernel
def held_blocks(run, request):
    """Blocks that a running request holds: of what is computed, and at least what was held at its admission."""
    return max(request.hold, rules.blocks_for(request.computed_tokens, run.block_size))


@kernel
def put(run, arena, replica, step, slot, tokens):
    """Add a row to a step and move its slot on."""
    request, drafted = request_at(arena, replica.slots, slot), drafted_at(arena, run.draft, step.rows)
    request.drafted = step.rows
    step.rows += 1
    step.budget -= tokens
    step.exhausted = step.budget == 0
    computed = request.computed_tokens
    end = computed + tokens
    drafted.slot = slot
    drafted.tokens = tokens
    drafted.samples = end == request.known_tokens
    if end == request.known_tokens:
        arena[step.samples + step.sampled] = slot
        step.sampled += 1
        request.known_tokens += 1
    if rules.is_decode(computed, tokens):
        drafted.query_tokens = 0
        drafted.kv_tokens = rules.padded_context(end, request.padding_tokens, run.longest)
        step.decodes += 1
        step.kv_tokens += drafted.kv_tokens
    else:
        padding = request.padding_tokens if computed == 0 else 0
        drafted.query_tokens = tokens + padding
        drafted.kv_tokens = end + padding
        step.chunks += 1
        step.prefill_tokens += tokens
        step.padding_tokens += padding
    step.recomputed_tokens += lost(request, tokens)
    request.computed_tokens = end


@kernel
def lost(request, tokens):
    """How many of the next tokens had their KV before a preemption took it."""
    return max(0, min(tokens, request.high_water_tokens - request.computed_tokens))


@kernel
def is_drafted(run, arena, step, request, slot):
    """Has a request a row in the step that is being formed?"""
    drafted = request.drafted
    return drafted < step.rows and drafted_at(arena, run.draft, drafted).slot == slot


@kernel
def take_back(run, arena, replica, step, slot):
    """Undo `put` for a request that loses its memory while the step is formed; nothing if it has no row."""
    request = request_at(arena, replica.slots, slot)
    if not is_drafted(run, arena, step, request, slot):
        return
    drafted = drafted_at(arena, run.draft, request.drafted)
    tokens = drafted.tokens
    drafted.slot = GONE
    if drafted.samples != 0:
        drop_sampled(arena, step, slot)
        request.known_tokens -= 1
    if drafted.query_tokens > 0:
        step.chunks -= 1
        step.prefill_tokens -= tokens
        step.padding_tokens -= drafted.query_tokens - tokens
    else:
        step.decodes -= 1
        step.kv_tokens -= drafted.kv_tokens
    request.computed_tokens -= tokens
    step.recomputed_tokens -= lost(request, tokens)
    step.budget += tokens


@kernel
def drop_sampled(arena, step, slot):
    """Take a slot off those that sample a token in a step; the order of the others stays."""
    kept = 0
    for place in range(step.sampled):
        other = arena[step.samples + place]
        if other != slot:
            arena[step.samples + kept] = other
            kept += 1
    step.sampled = kept


@kernel
def attention(run, arena, costs, params, step):
    """All rows are there: ns (float) of their prefill attention, in the order of granting; notes the longest context."""
    attention_ns = 0.0
    for number in range(step.rows):
        drafted = drafted_at(arena, run.draft, number)
        if drafted.slot != GONE and drafted.query_tokens > 0:
            attention_ns += prefill_attention_ns(costs, params, drafted.query_tokens, drafted.kv_tokens)
            step.context_tokens = max(step.context_tokens, drafted.kv_tokens)
    return attention_ns


@kernel
def leave_order(arena, replica, request):
    """Take a running request off the list; the order of the others stays."""
    order = replica.order
    replica.running -= 1
    replica.order_end -= 1
    for place in range(request.place, replica.order_end):
        slot = arena[order + place + 1]
        arena[order + place] = slot
        request_at(arena, replica.slots, slot).place = place


@kernel
def known_tokens(table, arena, replica, slot, row):
    """Known tokens of a request that waits."""
    return request_at(arena, replica.slots, slot).known_tokens if slot >= 0 else table[PROMPT_TOKENS, row]


@kernel
def run_on(arena, replica, slot):
    """Put a slot at the end of the running list."""
    request = request_at(arena, replica.slots, slot)
    request.stage = RUNNING
    request.entered_tokens = request.known_tokens
    request.place = replica.order_end
    arena[replica.order + replica.order_end] = slot
    replica.order_end += 1
    replica.running += 1


@kernel
def turn_away(replica, step, reason):
    """The policy itself lets nobody enter."""
    step.blocked_by = reason
    replica.retry_ns = NEVER


@kernel
def write_marks(table, request):
    """Write into its row what a slot alone knew."""
    row = request.row
    table[GENERATED, row] = request.generated_tokens
    table[MAX_ITL, row] = request.max_gap_ns
