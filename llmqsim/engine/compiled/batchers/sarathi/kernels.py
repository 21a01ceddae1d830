"""Sarathi-Serve's steps: policies/batching/sarathi.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import Sarathi, made_of
from llmqsim.engine.compiled.batchers.rows.kernels import by_rows
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.step.entry.kernels import admit_waiting
from llmqsim.engine.compiled.step.running.kernels import grow, snapshot_decodes_first
from llmqsim.jit import kernel


@kernel
def draft(batcher, table, arena, costs, params, base, step, now):
    """Three passes; nobody new enters in a step that preempted."""
    count, _ = snapshot_decodes_first(arena, base)
    for place in range(arena[G_SCRATCH], arena[G_SCRATCH] + count):
        grow(batcher, table, arena, base, step, arena[place], NO_LIMIT, 0, now)
    if arena[step + T_PREEMPTED] == 0:
        admit_waiting(batcher, table, arena, base, step, True, False, now)


made_of(Sarathi, by_rows(draft))
