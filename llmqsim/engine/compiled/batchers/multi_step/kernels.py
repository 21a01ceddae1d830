"""Multi-step scheduling: policies/batching/multi_step.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import MultiStep, made_of
from llmqsim.engine.compiled.batchers.continuous.kernels import draft as schedule
from llmqsim.engine.compiled.batchers.rows.kernels import by_rows
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.step.running.kernels import grow, snapshot
from llmqsim.jit import kernel


@kernel
def draft(batcher, table, arena, costs, params, base, step, now):
    """A step of the batch as it is (R_CARRIED: so many to go), or one that is scheduled."""
    running = arena[base + R_RUNNING]
    if arena[base + R_CARRIED] > 0 and running > 0 and arena[base + R_SWAPPED] == 0:
        arena[base + R_CARRIED] -= 1
        arena[step + T_SAVED_NS] = batcher.saved_ns
        for place in range(arena[G_SCRATCH], arena[G_SCRATCH] + snapshot(arena, base)):
            grow(batcher, table, arena, base, step, arena[place], NO_LIMIT, 0, now)
    else:
        schedule(batcher, table, arena, costs, params, base, step, now)
        arena[base + R_CARRIED] = 0 if arena[step + T_CHUNKS] > 0 or running == 0 else batcher.n - 1


made_of(MultiStep, by_rows(draft))
