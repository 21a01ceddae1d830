"""Memory set aside for predicted answers: policies/batching/reserving.py in arrays."""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import ReservePredicted, made_of
from llmqsim.engine.compiled.batchers.rows.kernels import by_rows
from llmqsim.engine.compiled.columns import MAX_TOKENS, PREDICTED
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.step.entry.kernels import admit, first_in_line
from llmqsim.engine.compiled.step.rows.kernels import slot_at
from llmqsim.engine.compiled.step.running.kernels import bring_back, grow, snapshot
from llmqsim.jit import kernel
from llmqsim.policies import rules as policy_rules


@kernel
def reserved(batcher, table, arena, base, slot, row, known):
    """Tokens whose blocks the head of the queue holds from its admission on, no more than the pool has."""
    generated, most = arena[slot_at(arena, base, slot) + S_GENERATED] if slot >= 0 else 0, table[MAX_TOKENS, row]
    left = policy_rules.remaining_tokens(table[PREDICTED, row], generated, most, batcher.re_estimate)
    hold = policy_rules.reserved_tokens(left, batcher.margin, most, generated, known)
    if rules.blocks_for(hold, arena[G_BLOCK_SIZE]) > arena[base + R_USABLE_BLOCKS]:
        return arena[base + R_USABLE_BLOCKS] * arena[G_BLOCK_SIZE]
    return hold


@kernel
def draft(batcher, table, arena, costs, params, base, step, now):
    """Running pass, then the waiting pass with reservations."""
    for place in range(arena[G_SCRATCH], arena[G_SCRATCH] + snapshot(arena, base)):
        if arena[step + T_EXHAUSTED] != 0:
            break
        grow(batcher, table, arena, base, step, arena[place], NO_LIMIT, 0, now)
    if arena[step + T_PREEMPTED] != 0 or not bring_back(batcher, table, arena, base, step, now):
        return
    while arena[base + R_PREEMPTED] + arena[base + R_QUEUED] > 0:
        slot, row, known = first_in_line(batcher, table, arena, base, now)
        hold = reserved(batcher, table, arena, base, slot, row, known)
        if not admit(batcher, table, arena, base, step, slot, row, known, NO_LIMIT, hold, now):
            break


made_of(ReservePredicted, by_rows(draft))
