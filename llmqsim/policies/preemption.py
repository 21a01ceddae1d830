"""Preemption: who gives way when the KV pool is full?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmqsim.policies.protocol import Preemption, RequestView
from llmqsim.registry import bound, param, register


@register("preemption", "recompute_newest")
@dataclass(frozen=True)
class RecomputeNewest(Preemption):
    """vLLM V1 under fcfs: the last admitted request gives way and recomputes everything when it returns.

    The oldest is never a victim of a younger one, so somebody always gets on, and no run hangs.
    """

    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """Last of the running list."""
        return running[-1]


@register("preemption", "recompute_least_urgent")
@dataclass(frozen=True)
class RecomputeLeastUrgent(Preemption):
    """vLLM V1 under priority: the least urgent gives way (highest `priority`), of equals the one that arrived last."""

    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """Largest (priority, arrival, row)."""
        return max(running, key=lambda request: (request.priority, request.arrival_ns, request.row))


@register("preemption", "swap_newest")
@dataclass(frozen=True)
class SwapNewest(Preemption):
    """The last admitted request gives way and keeps its KV in the host's memory; with that full, it recomputes.

    vLLM V0 did this for groups of several sequences, or when told to; vLLM V1 has no swap.
    """

    swaps = True

    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """Last of the running list."""
        return running[-1]


KEEPS = ("recompute", "swap", "cheaper")


class Chosen(Preemption):
    """Base of policies that say who; where its KV goes is the parameter `kv`.

    recompute : nowhere. swap : to the host, if it has room. cheaper : to the host where copying its blocks there and back
    takes less time than computing them again alone. Ties: who arrived last.
    """

    kv: str
    costs: Any

    @property
    def swaps(self) -> bool:
        """May KV go to the host?"""
        return self.kv != "recompute"

    def to_host(self, victim: RequestView) -> bool:
        """Always, or where that is cheaper."""
        if self.kv == "swap":
            return True
        return self.costs.copy_ns(2 * victim.kv_blocks) < self.costs.prefill_ns(max(1, victim.computed_tokens))


@register("preemption", "newest")
@dataclass(frozen=True)
class Newest(Chosen):
    """The last admitted gives way (vLLM under fcfs)."""

    kv: str = param("recompute", choices=KEEPS)
    costs: Any = bound()

    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """Last of the running list."""
        return running[-1]


@register("preemption", "least_urgent")
@dataclass(frozen=True)
class LeastUrgent(Chosen):
    """The highest `priority` gives way (vLLM under priority)."""

    kv: str = param("recompute", choices=KEEPS)
    costs: Any = bound()

    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """Largest (priority, arrival, row)."""
        return max(running, key=lambda r: (r.priority, r.arrival_ns, r.row))


@register("preemption", "least_kv")
@dataclass(frozen=True)
class LeastKv(Chosen):
    """Who has the least KV to lose gives way: fewest computed tokens."""

    kv: str = param("recompute", choices=KEEPS)
    costs: Any = bound()

    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """Fewest computed tokens, of equals the last to arrive."""
        return min(running, key=lambda r: (r.computed_tokens, -r.arrival_ns, -r.row))


@register("preemption", "most_slack")
@dataclass(frozen=True)
class MostSlack(Chosen):
    """Who has most time left until its deadline, less the predicted cost still to come, gives way.

    Without a deadline, or with its first token out where the deadline was for that, a request has all the time.
    batch : requests that are taken to decode together.
    """

    batch: int = param(32, least=1, most=65536)
    kv: str = param("recompute", choices=KEEPS)
    costs: Any = bound()

    needs = ("deadline_ns", "predicted_tokens_at_end")

    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """Largest slack; the time that has passed is the same for all."""
        return max(running, key=lambda r: (self._slack(r), r.arrival_ns, r.row))

    def _slack(self, request: RequestView) -> float:
        if request.deadline_ns < 0 or (request.generated_tokens and not request.due_at_end):
            return float("inf")
        cost = self.costs.prefill_ns(request.prompt_tokens)
        if request.due_at_end:
            cost += self.costs.decode_ns(request.prompt_tokens, request.remaining_tokens, self.batch)
        return request.arrival_ns + request.deadline_ns - cost
