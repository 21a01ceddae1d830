"""TensorRT-LLM's steps under both capacity schedulers: policies/batching/trtllm.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import GuaranteedNoEvict, MaxUtilization, made_of
from llmqsim.engine.compiled.batchers.rows.kernels import by_rows
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.step.entry.kernels import admit_waiting
from llmqsim.engine.compiled.step.running.kernels import grow, snapshot_decodes_first
from llmqsim.jit import kernel


@kernel
def generation_first(batcher, table, arena, base, step, now):
    """Generation requests, then contexts, while there is something to give."""
    count, _ = snapshot_decodes_first(arena, base)
    for place in range(arena[G_SCRATCH], arena[G_SCRATCH] + count):
        if arena[step + T_EXHAUSTED] != 0:
            break
        grow(batcher, table, arena, base, step, arena[place], NO_LIMIT, 0, now)


@kernel
def guaranteed_no_evict(batcher, table, arena, costs, params, base, step, now):
    """Stop at the first for whose longest answer no blocks can be reserved."""
    generation_first(batcher, table, arena, base, step, now)
    admit_waiting(batcher, table, arena, base, step, False, True, now)


@kernel
def max_utilization(batcher, table, arena, costs, params, base, step, now):
    """Nobody enters in a step that paused someone."""
    generation_first(batcher, table, arena, base, step, now)
    if arena[step + T_PREEMPTED] == 0:
        admit_waiting(batcher, table, arena, base, step, False, False, now)


made_of(GuaranteedNoEvict, by_rows(guaranteed_no_evict))
made_of(MaxUtilization, by_rows(max_utilization))
