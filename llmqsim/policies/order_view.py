"""What an ordering that looks again may see of its replica, and what any policy may ask about the cost of steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from llmqsim.policies.protocol import RequestView


class Costs(Protocol):
    """Step times as a scheduler could have profiled them: nanoseconds of work alone or in a typical batch.

    Token counts are ints or int64 arrays; the answer has their shape. A policy with a field `costs` (registry.bound)
    gets them before the run.
    """

    def step_ns(self, decodes: int, decode_kv_tokens: int, chunk_tokens: int = 0, context_tokens: int = 0) -> int:
        """A step of so many decodes and one prefill chunk, which attends to context_tokens, itself included."""

    def copy_ns(self, blocks: int) -> int:
        """So many KV blocks over the link to the host's memory."""

    def prefill_ns(self, tokens: Any) -> Any:
        """A prompt alone on the GPU, in chunks of the token budget."""

    def decode_ns(self, prompt_tokens: Any, output_tokens: Any, batch: int) -> Any:
        """From first token to last, when `batch` requests like it decode together."""


class OrderView(Protocol):
    """One replica as an ordering sees it when it gives keys."""

    now_ns: int
    state: Any
    """what the ordering's `start` returned: its memory on this replica"""
    steps: int
    """steps formed here so far"""
    running: Sequence[RequestView]
    """in admission order"""
    swapped: Sequence[RequestView]
    """preempted, with their KV in the host's memory, by arrival; they are not in the waiting queue"""

    def waiting(self) -> Iterable[RequestView]:
        """Everybody in the waiting queue, by the keys of the last look."""

    def hit_tokens(self, request: RequestView) -> int:
        """Leading tokens of a waiting request that are cached now."""
