"""Orderings by deadline: when a request is due is a target of its class (TTFT, or else E2E) after its arrival."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmqsim.policies import rules
from llmqsim.policies.order_view import OrderView
from llmqsim.policies.ordering.fixed import Fixed, choose
from llmqsim.policies.protocol import Ordering, RequestView
from llmqsim.registry import bound, param, register


def _due_ns(of: Any) -> Any:
    """After arrival; FAR_NS without a deadline."""
    return choose(of.deadline_ns < 0, rules.FAR_NS, of.deadline_ns)


@register("ordering", "edf")
@dataclass(frozen=True)
class Edf(Fixed):
    """Earliest deadline first; requests without a deadline come last. preempt : may it take a running one's place?

    Source: Jackson 1955; Liu and Layland 1973.
    """

    preempt: bool = False

    needs = ("deadline_ns",)
    preempted_go_first = False
    slope = 1

    @property
    def preempts(self) -> bool:
        """As the parameter says."""
        return self.preempt

    def base_ns(self, of: Any) -> Any:
        """From arrival to the deadline."""
        return _due_ns(of)


@register("ordering", "least_slack")
@dataclass(frozen=True)
class LeastSlack(Fixed):
    """Least slack first: deadline - now - predicted cost still to come. Who waits loses slack at the same pace as all.

    The cost is that of the prefill, where the deadline is for the first token; where it is for the last one, also that of
    decoding the predicted output in a batch of `batch`. Preempted requests go first. Needs predictions for E2E deadlines.
    """

    batch: int = param(32, least=1, most=65536)
    costs: Any = bound()

    needs = ("deadline_ns", "predicted_tokens_at_end")
    slope = 1

    def base_ns(self, of: Any) -> Any:
        """Slack at its arrival; the deadline is for the first token where the class has a TTFT target."""
        decode = self.costs.decode_ns(of.prompt_tokens, of.predicted_tokens, self.batch)
        cost = self.costs.prefill_ns(of.prompt_tokens) + choose(of.due_at_end != 0, decode, 0)
        return choose(of.deadline_ns < 0, rules.FAR_NS, of.deadline_ns - cost)


@register("ordering", "goodput_first")
@dataclass(frozen=True)
class GoodputFirst(Ordering):
    """Who can still meet its SLO goes first, most value for the time it takes; who can't any more goes last.

    Each request that meets its SLO is worth 1, so value density is 1 / cost: of those that can, the one with the least
    predicted cost first. Then those without a target, then the lost ones, both as they came. Judged again every
    `review_steps` steps. Sources of the idea: Tempo, SLOs-Serve
    (docs/engine_semantics.md); this is neither.
    """

    review_steps: int = param(8, least=1, most=1_000_000)
    batch: int = param(32, least=1, most=65536)
    costs: Any = bound()

    needs = ("deadline_ns", "predicted_tokens")
    reviews = True

    def start(self) -> list[int]:
        """Steps at the last review."""
        return [0]

    def review(self, view: OrderView) -> bool:
        """Every so many steps."""
        due = view.steps - view.state[0] >= self.review_steps
        if due:
            view.state[0] = view.steps
        return due

    def key_at(self, request: RequestView, view: OrderView) -> tuple[int, int]:
        """(can it, no target, can't; cost, or arrival)."""
        ttft_ns, e2e_ns = (
            -1 if limit is None else limit for limit in (request.targets.ttft_ns, request.targets.e2e_ns)
        )
        prefill = self.costs.prefill_ns(request.known_tokens)
        cost = prefill + self.costs.decode_ns(request.prompt_tokens, request.remaining_tokens, self.batch)
        made = request.generated_tokens
        return rules.goodput_key(request.arrival_ns, view.now_ns, made, prefill, cost, ttft_ns, e2e_ns)

    def late_key(self, request: RequestView, now_ns: int) -> tuple[int, int]:
        """Behind everybody."""
        return 3, now_ns
