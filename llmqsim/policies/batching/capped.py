"""vLLM V1 with a limit on the prompt tokens of a step, so that decodes keep their pace."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from llmqsim.policies.batching.swapped import bring_back
from llmqsim.policies.protocol import Batching, ReplicaView, RequestView, StepDraft
from llmqsim.registry import bound, param, register


class Capped(Batching):
    """Base: decodes first, then half-prefilled requests, then new ones, up to `prompt_tokens` of a step."""

    takes_swapped = True
    needs_chunks = True

    @abstractmethod
    def prompt_tokens(self, view: ReplicaView, draft: StepDraft, decoding: list[RequestView]) -> int:
        """Most prompt tokens of this step, at least 1. decoding : running requests that make a token a step."""

    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """Three passes; nobody new enters in a step that preempted."""
        decoding = [r for r in view.running if r.known_tokens - r.computed_tokens <= 1]
        for request in decoding:
            draft.grow(request)
        left = min(draft.budget, self.prompt_tokens(view, draft, decoding))
        for request in view.running:
            if request.known_tokens - request.computed_tokens > 1 and left:
                before = draft.budget
                draft.grow(request, at_most=left)
                left = max(0, left - max(0, before - draft.budget))
        if draft.preempted or not bring_back(view, draft):
            return
        for request in view.waiting():
            before = draft.budget
            if not left:
                draft.hold_back("token_budget")
                break
            if not draft.admit(request, at_most=left):
                break
            left -= before - draft.budget


@register("batching", "prefill_share")
@dataclass(frozen=True)
class PrefillShare(Capped):
    """Prompts get at most `share` of the step's token budget (max_num_batched_tokens), whatever decodes leave."""

    share: float = param(0.5, above=0, most=1)

    def prompt_tokens(self, view: ReplicaView, draft: StepDraft, decoding: list[RequestView]) -> int:
        """A fixed number."""
        return max(1, int(self.share * view.token_budget))


@register("batching", "slo_chunk")
@dataclass(frozen=True)
class SloChunk(Capped):
    """The largest prefill chunk with which the step keeps the TPOT target of everybody who decodes in it.

    margin : share of the target that a step may take. least : tokens that prompts get in any case, so that they go on
    under targets that decodes alone miss. The step's time is the cost model's own: a scheduler would have profiled it.
    """

    margin: float = param(1.0, above=0, most=10)
    least: int = param(16, least=1)
    costs: Any = bound()

    needs = ("tpot",)

    def prompt_tokens(self, view: ReplicaView, draft: StepDraft, decoding: list[RequestView]) -> int:
        """By bisection: the step's time rises with the chunk."""
        limits = [r.targets.tpot_ns for r in decoding if r.targets.tpot_ns is not None]
        if not limits:
            return max(1, draft.budget)
        limit_ns = min(limits) * self.margin
        kv_tokens = sum(r.known_tokens for r in decoding)
        before = self._context(view)
        low, high = self.least, max(self.least, draft.budget)
        while low < high:
            chunk = (low + high + 1) // 2
            if self.costs.step_ns(len(decoding), kv_tokens, chunk, before + chunk) <= limit_ns:
                low = chunk
            else:
                high = chunk - 1
        return low

    @staticmethod
    def _context(view: ReplicaView) -> int:
        """Tokens that the first prompt in line has behind it."""
        return next((r.computed_tokens for r in view.running if r.known_tokens - r.computed_tokens > 1), 0)
