"""SGLang."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.policies import rules
from llmqsim.policies.protocol import Batching, ReplicaView, RequestView, StepDraft
from llmqsim.registry import register


@dataclass
class _Memory:
    """What the scheduler remembers between steps."""

    ratio: float
    """share of the remaining output that is reserved for each running request"""
    full_since: int = -1
    """requests that had left when an admission last failed; -1: the batch is not marked full"""


@register("batching", "sglang")
@dataclass(frozen=True)
class Sglang(Batching):
    """Prefill first, not mixed; admission reserves expected output; retraction when the next decode does not fit.

    Each step tries a prefill batch (a half-prefilled request goes on first); only if there is none, a decode step. An
    admission must leave room for `ratio` of what the running requests may still produce (at most `clip_tokens` each),
    and for all of its own. The ratio starts at `conservativeness` x `start_ratio` and falls over `decay_steps` decode
    steps to `floor` of that. After an admission that slots or memory refused nobody is tried until some request leaves.

    max_num_batched_tokens is SGLang's chunked_prefill_size. Values: SGLang 0.5 (docs/engine_semantics.md).
    """

    conservativeness: float = 1.0
    start_ratio: float = 0.7
    floor: float = 0.14
    decay_steps: int = 600
    clip_tokens: int = 4096
    retract_decode_steps: int = 20

    def start(self) -> _Memory:
        """The ratio at its start."""
        return _Memory(self.start_ratio * self.conservativeness)

    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """A prefill step if there is one, else a decode step."""
        if not self._prefill(view, draft):
            self._decode(view, draft)

    def _prefill(self, view: ReplicaView, draft: StepDraft) -> bool:
        memory: _Memory = view.state
        began = False
        for request in view.running:
            if rules.lags(request.known_tokens, request.computed_tokens):
                began |= draft.grow(request)
        if memory.full_since == view.left and view.running:
            draft.hold_back("kv")
            return began
        memory.full_since = -1
        reserved = 0.0
        for request in view.running:  # not sum(), which rounds in another way since Python 3.12
            reserved += self._expected(request) * memory.ratio
        for request in view.waiting():
            own = request.known_tokens - view.hit_tokens(request) + self._expected(request)
            free = view.free_blocks * view.block_size
            alone = not view.running and not began
            if not alone and free - reserved < own:
                draft.hold_back("kv")
            elif draft.admit(request):
                reserved += self._expected(request) * memory.ratio
                began = True
                continue
            if not self._out_of_tokens(view, draft, request):
                memory.full_since = view.left
            break
        return began

    def _out_of_tokens(self, view: ReplicaView, draft: StepDraft, request: RequestView) -> bool:
        """Is it only this step's tokens that are spent? That does not make the batch full."""
        missing = 1 if view.chunked_prefill else request.known_tokens - view.hit_tokens(request)
        return draft.budget < missing

    def _decode(self, view: ReplicaView, draft: StepDraft) -> None:
        memory: _Memory = view.state
        staying = [r for r in view.running if r.kv_blocks]  # not who gave way to a prompt just now
        if not staying:
            return
        retracted = self._retract(view, draft, staying)
        if retracted:
            memory.full_since = -1
            made = sum(r.generated_tokens for r in staying)
            allowed = sum(min(r.max_tokens, self.clip_tokens) for r in staying)
            memory.ratio = rules.ratio_after_retraction(made, allowed, len(staying), self.retract_decode_steps)
        else:
            start = self.start_ratio * self.conservativeness
            memory.ratio = rules.ratio_after_decode(memory.ratio, start, self.floor, self.decay_steps)
        for request in staying:
            draft.grow(request)

    def _retract(self, view: ReplicaView, draft: StepDraft, staying: list[RequestView]) -> bool:
        """Send back whoever has the fewest output tokens, then the longest prompt, until a decode step fits."""
        retracted = False
        while len(staying) > 1 and self._next_blocks(view, staying) > view.free_blocks:
            victim = min(staying, key=lambda r: (r.generated_tokens, -r.prompt_tokens, r.row))
            staying.remove(victim)
            draft.preempt(victim, last=True)
            retracted = True
        return retracted

    def _next_blocks(self, view: ReplicaView, requests: list[RequestView]) -> int:
        return sum(max(0, view.blocks_for(r.computed_tokens + 1) - r.kv_blocks) for r in requests)

    def _expected(self, request: RequestView) -> int:
        return rules.expected_tokens(request.max_tokens, request.generated_tokens, self.clip_tokens)
