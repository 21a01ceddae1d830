"""Batching: what runs in this step?"""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.policies.protocol import ReplicaView, StepDraft
from llmqsim.registry import register


@register("batching", "continuous")
@dataclass(frozen=True)
class Continuous:
    """vLLM V1: whoever runs goes on, then waiting requests enter, all under one token budget.

    There are no phases, only requests whose computed tokens must catch up with their known ones. "Decodes first" is
    a result, not a rule: a half-prefilled request is the newest, hence last, and gets what the decodes leave.
    """

    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """Running pass in admission order, then, if memory was enough for all of them, the waiting pass."""
        for request in view.running:
            if draft.exhausted:
                break
            draft.grow(request)
        if draft.preempted:
            return
        for request in view.waiting():
            if not draft.admit(request):
                break
