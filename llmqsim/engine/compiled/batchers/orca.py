"""Orca's steps: policies/batching/orca.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import Orca, made_of
from llmqsim.engine.compiled.batchers.rows import by_rows
from llmqsim.engine.compiled.step.entry import admit_waiting
from llmqsim.engine.compiled.step.running import grow, snapshot
from llmqsim.engine.compiled.world.limits import NO_LIMIT
from llmqsim.jit import kernel


@kernel
def draft(batcher, table, run, arena, costs, params, replica, step, now):
    """Everybody who runs, then whoever fits, in order."""
    for place in range(run.scratch, run.scratch + snapshot(run, arena, replica)):
        grow(batcher, table, run, arena, replica, step, arena[place], NO_LIMIT, 0, now)
    admit_waiting(batcher, table, run, arena, replica, step, False, True, now)


made_of(Orca, by_rows(draft))
