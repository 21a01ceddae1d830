"""Orca's steps: policies/batching/orca.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import Orca, made_of
from llmqsim.engine.compiled.batchers.rows.kernels import by_rows
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.step.entry.kernels import admit_waiting
from llmqsim.engine.compiled.step.running.kernels import grow, snapshot
from llmqsim.jit import kernel


@kernel
def draft(batcher, table, arena, costs, params, base, step, now):
    """Everybody who runs, then whoever fits, in order."""
    for place in range(arena[G_SCRATCH], arena[G_SCRATCH] + snapshot(arena, base)):
        grow(batcher, table, arena, base, step, arena[place], NO_LIMIT, 0, now)
    admit_waiting(batcher, table, arena, base, step, False, True, now)


made_of(Orca, by_rows(draft))
