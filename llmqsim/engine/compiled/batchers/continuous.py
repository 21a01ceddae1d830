"""vLLM V1's steps: policies/batching/continuous.py in arrays. While memory is enough, all who decode are one group."""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import Continuous, ContinuousByRows, Kernels, made_of
from llmqsim.engine.compiled.batchers.rows import by_rows
from llmqsim.engine.compiled.group.opening import close_group, open_group
from llmqsim.engine.compiled.group.steps import commit_grouped, form_grouped
from llmqsim.engine.compiled.step.ending import commit
from llmqsim.engine.compiled.step.entry import admit_waiting
from llmqsim.engine.compiled.step.forming import form
from llmqsim.engine.compiled.step.running import bring_back, grow, snapshot, victim
from llmqsim.engine.compiled.stride import stride
from llmqsim.engine.compiled.world.limits import FORMED, NO_LIMIT, SHORT
from llmqsim.jit import inlined


@inlined
def draft(batcher, table, run, arena, costs, params, replica, step, now):
    """Running pass in admission order, then, if memory was enough for all of them, the waiting pass."""
    for place in range(run.scratch, run.scratch + snapshot(run, arena, replica)):
        if step.exhausted != 0:
            break
        grow(batcher, table, run, arena, replica, step, arena[place], NO_LIMIT, 0, now)
    if step.preempted == 0 and bring_back(batcher, table, run, arena, replica, step, now):
        admit_waiting(batcher, table, run, arena, replica, step, False, False, now)


@inlined
def form_next(batcher, table, run, arena, costs, params, replica, now):
    """Form one step, if possible with the group."""
    if replica.open == 0:
        open_group(run, arena, replica)
    if replica.open != 0:
        formed = form_grouped(batcher, table, run, arena, costs, params, replica, now)
        if formed != SHORT:
            return formed == FORMED
        close_group(run, arena, replica)
    return form(batcher, table, run, arena, costs, params, replica, now)


@inlined
def commit_next(batcher, table, run, arena, params, replica):
    """The oldest step ends, for the group or request by request."""
    if replica.open != 0:
        commit_grouped(table, run, arena, params, replica)
    else:
        commit(batcher, table, run, arena, params, replica)


@inlined
def close(run, arena, replica):
    """The group, if there is one, becomes single requests."""
    if replica.open != 0:
        close_group(run, arena, replica)


made_of(Continuous, Kernels(draft, form_next, commit_next, stride, close, victim))


made_of(ContinuousByRows, by_rows(draft))
