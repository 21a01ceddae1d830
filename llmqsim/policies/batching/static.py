"""Static batching (FasterTransformer, plain Hugging Face) and dynamic batching with a time-out (Triton)."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.policies.protocol import Batching, ReplicaView, RequestView, StepDraft
from llmqsim.registry import register
from llmqsim.units import to_ns


@register("batching", "static")
@dataclass(frozen=True)
class Static(Batching):
    """A batch starts when none runs; its prompts are padded to the longest of them; it ends with its longest member.

    Rows that ended keep their slot, their blocks and their share of each step until then, at the length that they had.
    Padding is computed with the prompts and read in every later step (FasterTransformer, Hugging Face). Each member holds
    memory for the longest prompt and the most output tokens of the batch, up to max_model_len, and reads no more. No
    preemption, no token budget.

    size : a batch starts once so many requests wait. max_wait_s : or once the first of them has waited so long
    (dynamic batching). Without `size` it starts with whoever is there.
    """

    size: int = 1
    max_wait_s: float = 0.0

    keeps_slots = True
    has_token_budget = False
    holds_maximum = True

    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """Go on with the batch, or start one."""
        if view.running or view.ended:
            for request in view.running:
                draft.grow(request)
            for request in view.ended:
                draft.idle(request)
            draft.hold_back("slots")
            return
        waiting = list(view.waiting())
        if not waiting:
            return
        patience_ends_ns = min(r.arrival_ns for r in waiting) + to_ns(self.max_wait_s)
        if len(waiting) < min(self.size, view.max_num_seqs) and view.now_ns < patience_ends_ns:
            draft.hold_back("slots", until_ns=patience_ends_ns)
            return
        self._start(view, draft, waiting)

    def _start(self, view: ReplicaView, draft: StepDraft, waiting: list[RequestView]) -> None:
        """As many as there are slots for, and memory if all are as long as the longest prompt and answer among them."""
        prompt = answer = hold = 0
        batch: list[RequestView] = []
        if len(waiting) > view.max_num_seqs:
            draft.hold_back("slots")
        for request in waiting[: view.max_num_seqs]:
            longest = max(prompt, request.prompt_tokens), max(answer, request.max_tokens)
            row = min(sum(longest), view.max_model_len)
            free_blocks = view.free_blocks - (view.watermark_blocks if batch else 0)
            if batch and (len(batch) + 1) * view.blocks_for(row) > free_blocks:
                draft.hold_back("kv")
                break
            (prompt, answer), hold = longest, row
            batch.append(request)
        for request in batch:
            if not draft.admit(request, hold_tokens=hold, padding_tokens=prompt - request.prompt_tokens):
                break
