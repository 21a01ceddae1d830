"""How near saturation a run is: g, by which errors of a step's time grow.

A slower step keeps requests longer, more of them run, and steps become slower still. To first order an error of a
step's time becomes 1 / (1 - g) times as large in TPOT, with g = arrivals/s × answer's tokens × d(step) / d(running).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqsim.cost import kernels
from llmqsim.cost.lower import StepCost
from llmqsim.metrics.latency import completed
from llmqsim.result import Result
from llmqsim.scenario.build import build_servers
from llmqsim.scenario.load import Scenario
from llmqsim.units import NS_PER_S

OPEN = ("poisson", "constant", "gamma", "weibull")


def gain(scenario: Scenario, result: Result) -> float | None:
    """g of one replica at its mean batch; None for loops and bursts, whose load answers to the servers."""
    if not _open(result.scenario.get("workload") or {}):
        return None
    cost = build_servers(scenario).deployment.cost
    busy = sum(usage.busy_ns for usage in result.usage)
    done = completed(result.table)
    if not isinstance(cost, StepCost) or not busy or not done.any():
        return None
    running = sum(usage.running_ns for usage in result.usage) / busy
    table = result.table
    context = float((table.prompt_tokens[done] + table.generated_tokens[done] / 2).mean())
    step = max(1, round(0.1 * running))
    low, high = max(1, round(running) - step), round(running) + step
    slope_s = (_step_s(cost, high, context) - _step_s(cost, low, context)) / (high - low)
    sent = table.arrival_ns[result.arrived]
    span_s = max(1, int(sent.max() - sent.min())) / NS_PER_S
    rate = len(sent) / span_s / len(result.usage)
    return max(0.0, rate * float(table.output_tokens[done].mean()) * slope_s)


def _open(workload: Mapping[str, Any]) -> bool:
    if workload.get("trace"):
        return True
    return (workload.get("arrivals") or {}).get("process") in OPEN


def _step_s(cost: StepCost, batch: int, context: float) -> float:
    tokens = round(batch * context)
    return kernels.step_ns(cost.costs, cost.params, batch, tokens, 0, 0, 0.0, batch, batch) / NS_PER_S
