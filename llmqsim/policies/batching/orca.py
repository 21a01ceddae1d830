"""Orca."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.policies.protocol import Batching, ReplicaView, StepDraft
from llmqsim.registry import register


@register("batching", "orca")
@dataclass(frozen=True)
class Orca(Batching):
    """Iteration-level batching: a request joins at any step if a slot and the blocks of its maximum length are free.

    It runs to completion: no preemption. Whole prompts are mixed with decodes, which they stall; no token budget.
    """

    has_token_budget = False
    holds_maximum = True

    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """Everybody who runs, then whoever fits, in order."""
        for request in view.running:
            draft.grow(request)
        for request in view.waiting():
            if not draft.admit(request, hold_tokens=request.prompt_tokens + request.max_tokens):
                break
