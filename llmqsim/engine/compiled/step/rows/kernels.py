"""The rows of a step and the slots of requests: where they lie, what a row adds to a drafted step, and how it is taken out.

Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.cost.kernels import prefill_attention_ns
from llmqsim.engine import rules
from llmqsim.engine.compiled.columns import GENERATED, MAX_ITL, PROMPT_TOKENS, REPLICA_OF
from llmqsim.engine.compiled.layout import *  # names of words, nothing else
from llmqsim.jit import kernel


@kernel
def step_at(arena, base, place):
    """Where step `place` (0: the oldest in flight) lies."""
    place += arena[base + R_OLDEST]
    if place >= arena[G_RING]:
        place -= arena[G_RING]
    return base + REPLICA + place * (STEP + arena[G_SLOTS])


@kernel
def drop_oldest(arena, base):
    """The oldest step in flight has ended: the next one is the oldest."""
    arena[base + R_STEPS] -= 1
    arena[base + R_OLDEST] += 1
    if arena[base + R_OLDEST] == arena[G_RING]:
        arena[base + R_OLDEST] = 0


@kernel
def slot_at(arena, base, slot):
    """Where a slot lies."""
    return arena[base + R_SLOTS] + slot * SLOT


@kernel
def next_row(table, arena, base, row):
    """The next request after `row` that was sent to this replica, -1 if there is none yet."""
    index = arena[base + R_INDEX]
    for later in range(row + 1, arena[G_ROUTED]):
        if table[REPLICA_OF, later] == index:
            return later
    return -1


@kernel
def at_most(arena, budget, most):
    """Most tokens that a request gets of what is left of a step's budget. most : what its batching policy allows."""
    threshold = arena[G_THRESHOLD]
    return min(budget, most, threshold) if threshold > 0 else min(budget, most)


@kernel
def held_blocks(arena, at):
    """Blocks that a running request holds: of what is computed, and at least what was held at its admission."""
    return max(arena[at + S_HOLD], rules.blocks_for(arena[at + S_COMPUTED], arena[G_BLOCK_SIZE]))


@kernel
def put(arena, base, step, slot, tokens):
    """Add a row to a step and move its slot on."""
    at, row = slot_at(arena, base, slot), arena[G_DRAFT] + arena[step + T_ROWS] * DRAFT
    arena[at + S_DRAFT] = arena[step + T_ROWS]
    arena[step + T_ROWS] += 1
    arena[step + T_BUDGET] -= tokens
    arena[step + T_EXHAUSTED] = arena[step + T_BUDGET] == 0
    computed = arena[at + S_COMPUTED]
    end = computed + tokens
    arena[row + D_SLOT] = slot
    arena[row + D_TOKENS] = tokens
    arena[row + D_SAMPLES] = end == arena[at + S_KNOWN]
    if end == arena[at + S_KNOWN]:
        arena[step + STEP + arena[step + T_SAMPLED]] = slot
        arena[step + T_SAMPLED] += 1
        arena[at + S_KNOWN] += 1
    if rules.is_decode(computed, tokens):
        arena[row + D_QUERY] = 0
        arena[row + D_KV] = rules.padded_context(end, arena[at + S_PADDING], arena[G_LONGEST])
        arena[step + T_DECODES] += 1
        arena[step + T_KV] += arena[row + D_KV]
    else:
        padding = arena[at + S_PADDING] if computed == 0 else 0
        arena[row + D_QUERY] = tokens + padding
        arena[row + D_KV] = end + padding
        arena[step + T_CHUNKS] += 1
        arena[step + T_PREFILL] += tokens
        arena[step + T_PADDING] += padding
    arena[step + T_RECOMPUTED] += lost(arena, at, tokens)
    arena[at + S_COMPUTED] = end


@kernel
def lost(arena, at, tokens):
    """How many of the next tokens had their KV before a preemption took it."""
    return max(0, min(tokens, arena[at + S_HIGH_WATER] - arena[at + S_COMPUTED]))


@kernel
def is_drafted(arena, step, at, slot):
    """Has a request a row in the step that is being formed?"""
    drafted = arena[at + S_DRAFT]
    return drafted < arena[step + T_ROWS] and arena[arena[G_DRAFT] + drafted * DRAFT + D_SLOT] == slot


@kernel
def take_back(arena, base, step, slot):
    """Undo `put` for a request that loses its memory while the step is formed; nothing if it has no row."""
    at = slot_at(arena, base, slot)
    if not is_drafted(arena, step, at, slot):
        return
    row = arena[G_DRAFT] + arena[at + S_DRAFT] * DRAFT
    tokens = arena[row + D_TOKENS]
    arena[row + D_SLOT] = GONE
    if arena[row + D_SAMPLES] != 0:
        drop_sampled(arena, step, slot)
        arena[at + S_KNOWN] -= 1
    if arena[row + D_QUERY] > 0:
        arena[step + T_CHUNKS] -= 1
        arena[step + T_PREFILL] -= tokens
        arena[step + T_PADDING] -= arena[row + D_QUERY] - tokens
    else:
        arena[step + T_DECODES] -= 1
        arena[step + T_KV] -= arena[row + D_KV]
    arena[at + S_COMPUTED] -= tokens
    arena[step + T_RECOMPUTED] -= lost(arena, at, tokens)
    arena[step + T_BUDGET] += tokens


@kernel
def drop_sampled(arena, step, slot):
    """Take a slot off those that sample a token in a step; the order of the others stays."""
    kept = 0
    for place in range(arena[step + T_SAMPLED]):
        other = arena[step + STEP + place]
        if other != slot:
            arena[step + STEP + kept] = other
            kept += 1
    arena[step + T_SAMPLED] = kept


@kernel
def attention(arena, costs, params, step):
    """All rows are there: ns (float) of their prefill attention, in the order of granting; notes the longest context."""
    attention_ns = 0.0
    for row in range(arena[G_DRAFT], arena[G_DRAFT] + arena[step + T_ROWS] * DRAFT, DRAFT):
        if arena[row + D_SLOT] != GONE and arena[row + D_QUERY] > 0:
            attention_ns += prefill_attention_ns(costs, params, arena[row + D_QUERY], arena[row + D_KV])
            arena[step + T_CONTEXT] = max(arena[step + T_CONTEXT], arena[row + D_KV])
    return attention_ns


@kernel
def leave_order(arena, base, at):
    """Take a running request off the list; the order of the others stays."""
    order = arena[base + R_ORDER]
    arena[base + R_RUNNING] -= 1
    arena[base + R_ORDER_END] -= 1
    for place in range(arena[at + S_PLACE], arena[base + R_ORDER_END]):
        slot = arena[order + place + 1]
        arena[order + place] = slot
        arena[slot_at(arena, base, slot) + S_PLACE] = place


@kernel
def known_tokens(table, arena, base, slot, row):
    """Known tokens of a request that waits."""
    return arena[slot_at(arena, base, slot) + S_KNOWN] if slot >= 0 else table[PROMPT_TOKENS, row]


@kernel
def run_on(arena, base, slot):
    """Put a slot at the end of the running list."""
    at = slot_at(arena, base, slot)
    arena[at + S_STAGE] = RUNNING
    arena[at + S_ENTERED] = arena[at + S_KNOWN]
    arena[at + S_PLACE] = arena[base + R_ORDER_END]
    arena[arena[base + R_ORDER] + arena[base + R_ORDER_END]] = slot
    arena[base + R_ORDER_END] += 1
    arena[base + R_RUNNING] += 1


@kernel
def turn_away(arena, base, step, reason):
    """The policy itself lets nobody enter."""
    arena[step + T_BLOCKED_BY] = reason
    arena[base + R_RETRY_NS] = NEVER


@kernel
def write_marks(table, arena, at):
    """Write into its row what a slot alone knew."""
    row = arena[at + S_ROW]
    table[GENERATED, row] = arena[at + S_GENERATED]
    table[MAX_ITL, row] = arena[at + S_MAX_GAP_NS]
