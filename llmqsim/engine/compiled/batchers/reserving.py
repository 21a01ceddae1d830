"""Memory set aside for predicted answers: policies/batching/reserving.py in arrays."""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import ReservePredicted, made_of
from llmqsim.engine.compiled.batchers.rows import by_rows
from llmqsim.engine.compiled.columns import MAX_TOKENS, PREDICTED
from llmqsim.engine.compiled.step.entry import admit, first_in_line
from llmqsim.engine.compiled.step.running import bring_back, grow, snapshot
from llmqsim.engine.compiled.world.limits import NO_LIMIT
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.jit import kernel
from llmqsim.policies import rules as policy_rules


@kernel
def reserved(batcher, table, run, arena, replica, slot, row, known):
    """Tokens whose blocks the head of the queue holds from its admission on, no more than the pool has."""
    generated, most = (
        request_at(arena, replica.slots, slot).generated_tokens if slot >= 0 else 0,
        table[MAX_TOKENS, row],
    )
    left = policy_rules.remaining_tokens(table[PREDICTED, row], generated, most, batcher.re_estimate)
    hold = policy_rules.reserved_tokens(left, batcher.margin, most, generated, known)
    if rules.blocks_for(hold, run.block_size) > replica.usable_blocks:
        return replica.usable_blocks * run.block_size
    return hold


@kernel
def draft(batcher, table, run, arena, costs, params, replica, step, now):
    """Running pass, then the waiting pass with reservations."""
    for place in range(run.scratch, run.scratch + snapshot(run, arena, replica)):
        if step.exhausted != 0:
            break
        grow(batcher, table, run, arena, replica, step, arena[place], NO_LIMIT, 0, now)
    if step.preempted != 0 or not bring_back(batcher, table, run, arena, replica, step, now):
        return
    while replica.preempted + replica.queued > 0:
        slot, row, known = first_in_line(batcher, table, run, arena, replica, now)
        hold = reserved(batcher, table, run, arena, replica, slot, row, known)
        if not admit(batcher, table, run, arena, replica, step, slot, row, known, NO_LIMIT, hold, now):
            break


made_of(ReservePredicted, by_rows(draft))
