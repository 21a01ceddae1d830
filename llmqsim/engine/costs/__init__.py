"""Costs: step times as a scheduler could have profiled them, for policies that ask (policies.order_view.Costs)."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmqsim.cost.lower import StepCost
from llmqsim.engine.costs.kernels import FINE, decode_span_ns, profiled_step_ns
from llmqsim.kv.transfer import HostLink

LONG_CONTEXT = 4096
"""tokens; decode steps are taken as linear in the context, between none and this one"""


class ProfiledCosts:
    """Of one deployment. Answers are kept, so that asking again is cheap; ints and arrays get the same figures."""

    def __init__(self, cost: StepCost, link: HostLink, token_budget: int):
        self._cost, self._link, self._budget = cost, link, token_budget
        self._prefill: dict[int, int] = {}
        self._decode: dict[int, tuple[int, int]] = {}

    def step_ns(self, decodes: int, decode_kv_tokens: int, chunk_tokens: int = 0, context_tokens: int = 0) -> int:
        """A step of so many decodes and one prefill chunk, which attends to context_tokens, itself included."""
        cost = self._cost
        tokens = decodes, decode_kv_tokens, chunk_tokens, context_tokens
        return profiled_step_ns(cost.costs, cost.params, cost.cached_read_percent, *tokens)

    def copy_ns(self, blocks: int) -> int:
        """So many KV blocks over the link to the host's memory."""
        return self._link.copy_ns(blocks)

    def prefill_ns(self, tokens: Any) -> Any:
        """A prompt alone on the GPU, in chunks of the token budget."""
        if isinstance(tokens, np.ndarray):
            lengths, place = np.unique(tokens, return_inverse=True)
            return np.array([self.prefill_ns(length) for length in lengths.tolist()], dtype=np.int64)[place]
        if tokens not in self._prefill:
            ends = [*range(self._budget, tokens, self._budget), tokens]
            starts = [0, *ends[:-1]]
            self._prefill[tokens] = sum(self.step_ns(0, 0, end - start, end) for start, end in zip(starts, ends))
        return self._prefill[tokens]

    def decode_ns(self, prompt_tokens: Any, output_tokens: Any, batch: int) -> Any:
        """From first token to last, when `batch` requests like it decode together."""
        base, per_token = self.decode_step_ns(batch)
        steps = np.maximum(output_tokens - 1, 0) if isinstance(output_tokens, np.ndarray) else max(output_tokens - 1, 0)
        return decode_span_ns(base, per_token, prompt_tokens, steps)

    def decode_step_ns(self, batch: int) -> tuple[int, int]:
        """Of a step of `batch` decodes: ns without context, and for each token of context of each, in 1 / FINE ns."""
        if batch not in self._decode:
            base = self.step_ns(batch, batch)
            per_token = (self.step_ns(batch, batch * LONG_CONTEXT) - base) * FINE // LONG_CONTEXT
            self._decode[batch] = base, per_token
        return self._decode[batch]
