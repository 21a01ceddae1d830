"""vLLM V1's steps: policies/batching/continuous.py in arrays. While memory is enough, all who decode are one group."""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import Continuous, ContinuousByRows, Kernels, made_of
from llmqsim.engine.compiled.batchers.rows.kernels import by_rows
from llmqsim.engine.compiled.group.kernels import close_group, commit_grouped, form_grouped, open_group
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.step.ending.kernels import commit
from llmqsim.engine.compiled.step.entry.kernels import admit_waiting
from llmqsim.engine.compiled.step.forming.kernels import form
from llmqsim.engine.compiled.step.running.kernels import bring_back, grow, snapshot, victim
from llmqsim.engine.compiled.stride.kernels import stride
from llmqsim.jit import inlined


@inlined
def draft(batcher, table, arena, costs, params, base, step, now):
    """Running pass in admission order, then, if memory was enough for all of them, the waiting pass."""
    for place in range(arena[G_SCRATCH], arena[G_SCRATCH] + snapshot(arena, base)):
        if arena[step + T_EXHAUSTED] != 0:
            break
        grow(batcher, table, arena, base, step, arena[place], NO_LIMIT, 0, now)
    if arena[step + T_PREEMPTED] == 0 and bring_back(batcher, table, arena, base, step, now):
        admit_waiting(batcher, table, arena, base, step, False, False, now)


@inlined
def form_next(batcher, table, arena, costs, params, base, now):
    """Form one step, if possible with the group."""
    if arena[base + R_OPEN] == 0:
        open_group(arena, base)
    if arena[base + R_OPEN] != 0:
        formed = form_grouped(batcher, table, arena, costs, params, base, now)
        if formed != SHORT:
            return formed == FORMED
        close_group(arena, base)
    return form(batcher, table, arena, costs, params, base, now)


@inlined
def commit_next(batcher, table, arena, params, base):
    """The oldest step ends, for the group or request by request."""
    if arena[base + R_OPEN] != 0:
        commit_grouped(table, arena, params, base)
    else:
        commit(batcher, table, arena, params, base)


@inlined
def close(arena, base):
    """The group, if there is one, becomes single requests."""
    if arena[base + R_OPEN] != 0:
        close_group(arena, base)


made_of(Continuous, Kernels(draft, form_next, commit_next, stride, close, victim))
made_of(ContinuousByRows, by_rows(draft))
