"""TensorRT-LLM's steps under both capacity schedulers: policies/batching/trtllm.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import GuaranteedNoEvict, MaxUtilization, made_of
from llmqsim.engine.compiled.batchers.rows import by_rows
from llmqsim.engine.compiled.step.entry import admit_waiting
from llmqsim.engine.compiled.step.running import grow, snapshot_decodes_first
from llmqsim.engine.compiled.world.limits import NO_LIMIT
from llmqsim.jit import kernel


@kernel
def generation_first(batcher, table, run, arena, replica, step, now):
    """Generation requests, then contexts, while there is something to give."""
    count, _ = snapshot_decodes_first(run, arena, replica)
    for place in range(run.scratch, run.scratch + count):
        if step.exhausted != 0:
            break
        grow(batcher, table, run, arena, replica, step, arena[place], NO_LIMIT, 0, now)


@kernel
def guaranteed_no_evict(batcher, table, run, arena, costs, params, replica, step, now):
    """Stop at the first for whose longest answer no blocks can be reserved."""
    generation_first(batcher, table, run, arena, replica, step, now)
    admit_waiting(batcher, table, run, arena, replica, step, False, True, now)


@kernel
def max_utilization(batcher, table, run, arena, costs, params, replica, step, now):
    """Nobody enters in a step that paused someone."""
    generation_first(batcher, table, run, arena, replica, step, now)
    if step.preempted == 0:
        admit_waiting(batcher, table, run, arena, replica, step, False, False, now)


made_of(GuaranteedNoEvict, by_rows(guaranteed_no_evict))


made_of(MaxUtilization, by_rows(max_utilization))
