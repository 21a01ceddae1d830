"""TensorRT-LLM: a capacity scheduler picks who holds memory, a micro-batch scheduler who runs."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.policies.protocol import Batching, ReplicaView, StepDraft
from llmqsim.registry import register


def _generation_first(view: ReplicaView, draft: StepDraft) -> None:
    for request in sorted(view.running, key=lambda r: r.known_tokens - r.computed_tokens > 1):
        if draft.exhausted:
            break
        draft.grow(request)


@register("batching", "trtllm_guaranteed_no_evict")
@dataclass(frozen=True)
class GuaranteedNoEvict(Batching):
    """Admit in order while blocks for prompt + max_tokens can be reserved for everybody admitted; never preempts."""

    holds_maximum = True

    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """Generation requests, then contexts, up to max_num_tokens; stop at the first that can't be reserved for."""
        _generation_first(view, draft)
        for request in view.waiting():
            if not draft.admit(request, hold_tokens=request.prompt_tokens + request.max_tokens):
                break


@register("batching", "trtllm_max_utilization")
@dataclass(frozen=True)
class MaxUtilization(Batching):
    """Needs only this step's blocks; when short, the last started request is paused and later recomputed or reused."""

    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """Generation requests, then contexts; nobody enters in a step that paused someone."""
        _generation_first(view, draft)
        if draft.preempted:
            return
        for request in view.waiting():
            if not draft.admit(request):
                break
