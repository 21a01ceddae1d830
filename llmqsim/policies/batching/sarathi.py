"""Sarathi-Serve."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.policies.protocol import Batching, ReplicaView, StepDraft
from llmqsim.registry import register


@register("batching", "sarathi")
@dataclass(frozen=True)
class Sarathi(Batching):
    """Decodes first, then half-prefilled prompts, then new ones, up to the chunk size (max_num_batched_tokens).

    All blocks of a prompt are taken at its admission, so that only decodes can run short of memory.
    """

    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """Three passes; nobody new enters in a step that preempted."""
        for request in sorted(view.running, key=lambda r: r.known_tokens - r.computed_tokens > 1):
            draft.grow(request)
        if draft.preempted:
            return
        for request in view.waiting():
            if not draft.admit(request, hold_tokens=request.known_tokens):
                break
