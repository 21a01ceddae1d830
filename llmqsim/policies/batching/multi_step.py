"""vLLM V0's multi-step scheduling."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.policies.batching.continuous import Continuous
from llmqsim.policies.protocol import ReplicaView, StepDraft
from llmqsim.registry import param, register


@register("batching", "multi_step")
@dataclass(frozen=True)
class MultiStep(Continuous):
    """The scheduler is called once for `n` steps, if all who run decode: nobody enters in between.

    vLLM V0's num_scheduler_steps (from memory; V1 has none). saved : share of the host's time a step
    (engine.host.per_step) that the steps in between do without. A request that ends in between leaves at once, where
    vLLM computes on for it until the n steps are over.
    """

    n: int = param(8, least=1, most=1000)
    saved: float = param(1.0, least=0, most=1)

    takes_ranks = False

    def start(self) -> list[int]:
        """Steps to go until the scheduler is called again."""
        return [0]

    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """A step of the batch as it is, or one that is scheduled."""
        left = view.state
        if left[0] > 0 and view.running and not view.swapped:
            left[0] -= 1
            draft.carry_on(self.saved)
            for request in view.running:
                draft.grow(request)
            return
        super().form(view, draft)
        left[0] = 0 if draft.prefills or not view.running else self.n - 1
