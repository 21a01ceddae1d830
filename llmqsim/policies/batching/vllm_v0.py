"""vLLM up to 0.7 (V0)."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.policies.batching.swapped import bring_back
from llmqsim.policies.protocol import Batching, ReplicaView, StepDraft
from llmqsim.registry import register


@register("batching", "vllm_v0")
@dataclass(frozen=True)
class VllmV0(Batching):
    """Prefill first, never mixed: while prompts can enter, all decodes stall. Whole prompts only.

    With enable_chunked_prefill it is V0's chunked mode: decodes, then half-prefilled requests, swapped ones, new
    prompts, under one budget, and new prompts are tried also after a preemption.
    """

    takes_swapped = True
    spare_blocks = 1
    """a decode wants one free block, needed or not"""

    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """One of the two modes."""
        if view.chunked_prefill:
            self._mixed(view, draft)
        elif view.swapped or not self._prefill(view, draft):
            self._decode(view, draft)

    def _prefill(self, view: ReplicaView, draft: StepDraft) -> bool:
        """Admit whole prompts in order until budget, slots or blocks stop it; did any enter?"""
        entered = False
        for request in view.waiting():
            if not draft.admit(request, hold_tokens=request.known_tokens):
                break
            entered = True
        return entered

    def _decode(self, view: ReplicaView, draft: StepDraft) -> None:
        for request in sorted(view.running, key=lambda r: (r.arrival_ns, r.row)):
            draft.grow(request, spare_blocks=self.spare_blocks)
        if not draft.preempted:
            bring_back(view, draft)

    def _mixed(self, view: ReplicaView, draft: StepDraft) -> None:
        by_need = sorted(view.running, key=lambda r: (r.known_tokens - r.computed_tokens > 1, r.arrival_ns, r.row))
        for request in by_need:
            draft.grow(request, spare_blocks=self.spare_blocks)
        if view.swapped and (draft.preempted or not bring_back(view, draft)):
            return
        for request in view.waiting():
            if not draft.admit(request, hold_tokens=request.known_tokens):
                break
