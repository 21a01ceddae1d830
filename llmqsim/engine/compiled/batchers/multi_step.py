"""Multi-step scheduling: policies/batching/multi_step.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import MultiStep, made_of
from llmqsim.engine.compiled.batchers.continuous import draft as schedule
from llmqsim.engine.compiled.batchers.rows import by_rows
from llmqsim.engine.compiled.step.running import grow, snapshot
from llmqsim.engine.compiled.world.limits import NO_LIMIT
from llmqsim.jit import kernel


@kernel
def draft(batcher, table, run, arena, costs, params, replica, step, now):
    """A step of the batch as it is (replica.carried: so many to go), or one that is scheduled."""
    running = replica.running
    if replica.carried > 0 and running > 0 and replica.swapped == 0:
        replica.carried -= 1
        step.saved_ns = batcher.saved_ns
        for place in range(run.scratch, run.scratch + snapshot(run, arena, replica)):
            grow(batcher, table, run, arena, replica, step, arena[place], NO_LIMIT, 0, now)
    else:
        schedule(batcher, table, run, arena, costs, params, replica, step, now)
        replica.carried = 0 if step.chunks > 0 or running == 0 else batcher.n - 1


made_of(MultiStep, by_rows(draft))
