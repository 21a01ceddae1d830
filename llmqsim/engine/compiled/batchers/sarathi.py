"""Sarathi-Serve's steps: policies/batching/sarathi.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import Sarathi, made_of
from llmqsim.engine.compiled.batchers.rows import by_rows
from llmqsim.engine.compiled.step.entry import admit_waiting
from llmqsim.engine.compiled.step.running import grow, snapshot_decodes_first
from llmqsim.engine.compiled.world.limits import NO_LIMIT
from llmqsim.jit import kernel


@kernel
def draft(batcher, table, run, arena, costs, params, replica, step, now):
    """Three passes; nobody new enters in a step that preempted."""
    count, _ = snapshot_decodes_first(run, arena, replica)
    for place in range(run.scratch, run.scratch + count):
        grow(batcher, table, run, arena, replica, step, arena[place], NO_LIMIT, 0, now)
    if step.preempted == 0:
        admit_waiting(batcher, table, run, arena, replica, step, True, False, now)


made_of(Sarathi, by_rows(draft))
