"""For batching policies whose steps are made request by request: the face of step/. Arguments as there."""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import Kernels
from llmqsim.engine.compiled.step.ending import commit
from llmqsim.engine.compiled.step.forming import form
from llmqsim.engine.compiled.step.running import victim
from llmqsim.jit import kernel


@kernel
def no_stride(batcher, table, run, arena, costs, params, replica, commit_limit, form_limit):
    """Steps are made one by one."""
    return 0


@kernel
def nothing_to_close(run, arena, replica):
    """Slots are always up to date."""


def by_rows(draft) -> Kernels:
    """The kernels of a policy that has only a draft of its own."""
    return by_rows_with(draft, victim)


def by_rows_with(draft, loser) -> Kernels:
    """The same with a choice of its own of who gives way."""
    return Kernels(draft, form, commit, no_stride, nothing_to_close, loser)
