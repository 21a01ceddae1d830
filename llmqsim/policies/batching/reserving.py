"""vLLM V1 with memory set aside for what an answer is expected to need."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.policies import rules
from llmqsim.policies.batching.continuous import Continuous
from llmqsim.policies.batching.swapped import bring_back
from llmqsim.policies.protocol import ReplicaView, StepDraft
from llmqsim.registry import param, register


@register("batching", "reserve_predicted")
@dataclass(frozen=True)
class ReservePredicted(Continuous):
    """As continuous, but a request enters only when the blocks of its prompt and predicted answer are free, and holds them.

    margin : times the prediction. A request that outlives it takes blocks one by one, and then somebody may be preempted.
    The reservation never exceeds the pool. Between holding the maximum (Orca, TensorRT-LLM) and nothing (vLLM).
    """

    margin: float = param(1.0, above=0, most=1000)

    takes_ranks = False
    needs = ("predicted_tokens",)

    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """Running pass, then the waiting pass with reservations."""
        for request in view.running:
            if draft.exhausted:
                break
            draft.grow(request)
        if draft.preempted or not bring_back(view, draft):
            return
        whole = view.usable_blocks * view.block_size
        for request in view.waiting():
            known, made, most = request.known_tokens, request.generated_tokens, request.max_tokens
            hold = rules.reserved_tokens(request.remaining_tokens, self.margin, most, made, known)
            if not draft.admit(request, hold_tokens=min(whole, hold)):
                break
