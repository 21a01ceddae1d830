"""vLLM V1."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.policies.batching.ranked import form_ahead, form_ranked
from llmqsim.policies.batching.swapped import bring_back
from llmqsim.policies.protocol import Batching, ReplicaView, RequestView, StepDraft
from llmqsim.registry import register


@register("batching", "continuous")
@dataclass(frozen=True)
class Continuous(Batching):
    """vLLM V1: whoever runs goes on, then waiting requests enter, all under one token budget.

    There are no phases, only requests whose computed tokens must catch up with their known ones. "Decodes first" is
    a result, not a rule: a half-prefilled request is the newest, hence last, and gets what the decodes leave.
    """

    takes_swapped = True
    takes_ranks = True

    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """Running pass in admission order, then, if memory was enough for all of them, the waiting pass."""
        if view.ranks:
            form = form_ahead if view.swaps_ahead else form_ranked
            form(view, draft)
            return
        for request in view.running:
            if draft.exhausted:
                break
            draft.grow(request)
        if draft.preempted or not bring_back(view, draft):
            return
        for request in view.waiting():
            if not draft.admit(request):
                break


@register("batching", "partial_prefills")
@dataclass(frozen=True)
class PartialPrefills(Batching):
    """Several prompts share the step's tokens, so that one whale does not hold back all minnows.

    At most `n` half-prefilled requests at a time, at most `long` of them with prompts of at least `long_tokens`; each
    gets an equal share of the budget. vLLM V0's max_num_partial_prefills, max_long_partial_prefills and
    long_prefill_token_threshold; V1 has the fields and does not use them.
    """

    n: int = 1
    long: int = 1
    long_tokens: int = 2048

    takes_swapped = True

    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """Decodes first, then half-prefilled requests, then new ones that may be partial."""
        partial = [r for r in view.running if r.computed_tokens < r.known_tokens - 1]
        for request in view.running:
            if request not in partial:
                draft.grow(request)
        newcomers = self._newcomers(view, partial)
        share = max(1, draft.budget // max(1, len(partial) + len(newcomers)))
        for request in partial:
            draft.grow(request, at_most=share)
        if draft.preempted or not bring_back(view, draft):
            return
        for request in newcomers:
            if draft.preempted or not draft.admit(request, at_most=share):
                break
        if not newcomers and len(view.waiting()):
            draft.hold_back("token_budget")

    def _newcomers(self, view: ReplicaView, partial: list[RequestView]) -> list[RequestView]:
        """Who may start, in the queue's order: long prompts that find no place are passed over."""
        places, long_places = self.n - len(partial), self.long - sum(self._is_long(r) for r in partial)
        chosen = []
        for request in view.waiting():
            if len(chosen) >= places:
                break
            if self._is_long(request):
                if long_places <= 0:
                    continue
                long_places -= 1
            chosen.append(request)
        return chosen

    def _is_long(self, request: RequestView) -> bool:
        return request.known_tokens >= self.long_tokens
