"""Orderings by size: the shortest first, by what a predictor or the prompt says. Orderings never see true lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmqsim.policies import rules
from llmqsim.policies.ordering.fixed import Sized
from llmqsim.registry import bound, param, register

BY = ("output", "prompt", "total")


def _tokens(of: Any, by: str) -> Any:
    if by == "prompt":
        return of.prompt_tokens
    return of.predicted_tokens if by == "output" else of.prompt_tokens + of.predicted_tokens


@register("ordering", "sjf")
@dataclass(frozen=True)
class Sjf(Sized):
    """Shortest job first, not preemptive: by predicted output (SSJF), by prompt, or by both. Oracle: predictor: oracle.

    by : output, prompt or total. ageing : tokens that a second of waiting takes off. Source: SSJF (Qiu et al. 2024),
    as described in docs/engine_semantics.md; M/G/1 theory: Phipps 1956.
    """

    by: str = param("output", choices=BY)
    ageing: float = param(0.0, least=0, most=1e9)

    @property
    def needs(self) -> tuple[str, ...]:
        """Predictions, unless it goes by prompts alone."""
        return () if self.by == "prompt" else ("predicted_tokens",)

    def size(self, of: Any) -> Any:
        """Tokens."""
        return _tokens(of, self.by)


@register("ordering", "srpt")
@dataclass(frozen=True)
class Srpt(Sized):
    """Shortest remaining processing time: by the predicted tokens still to come, preempting whoever has more.

    preempt : false lets running requests finish; preempted ones then wait by what is left of them. by : output, or total
    to count the part of the prompt that must still be computed. ageing : as in sjf. Whoever gives way has its KV recomputed
    or swapped (engine.preemption): near saturation that work can cost more than preempting gains over sjf. Source: Schrage and Miller 1966; on
    LLMs TRAIL (Shahout et al. 2024), from memory.
    """

    preempt: bool = True
    by: str = param("output", choices=("output", "total"))
    ageing: float = param(0.0, least=0, most=1e9)

    needs = ("predicted_tokens",)
    preempted_go_first = False

    @property
    def preempts(self) -> bool:
        """As the parameter says."""
        return self.preempt

    def size(self, of: Any) -> Any:
        """Tokens still to come."""
        return rules.remaining_size(of.remaining_tokens, of.known_tokens, of.computed_tokens, self.by == "total")

    def fixed_keys(self, table):
        """A request's size falls while it runs."""
        return None


@register("ordering", "shortest_cost")
@dataclass(frozen=True)
class ShortestCost(Sized):
    """Prompt-aware cost: the time of the prefill, the request's share of decode steps, and of reading its KV.

    The output is the predicted one: with predictor: class_mean, what prompt length and class say. batch : requests that
    are taken to decode together. ageing : seconds of work that a second of waiting takes off.
    """

    batch: int = param(32, least=1, most=65536)
    ageing: float = param(0.0, least=0, most=1e6)
    costs: Any = bound()

    needs = ("predicted_tokens",)

    def size(self, of: Any) -> Any:
        """Nanoseconds of the GPU's time."""
        decode = self.costs.decode_ns(of.prompt_tokens, of.predicted_tokens, self.batch)
        return self.costs.prefill_ns(of.prompt_tokens) + decode // self.batch

    def unit(self) -> int:
        """ns in a second."""
        return 1_000_000_000
