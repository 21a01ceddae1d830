"""How an answer moves when step times are off by the error that the costs state, up and down.

Intervals of an answer are those of sampling; that steps are predicted with an error is in none of them. The error taken
is the largest P90 that the costs state of a kernel family (StepCost.error): nine in ten shapes are nearer. It is put on
whole steps, host time included, all in one direction. docs/sizing.md says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from llmqsim.cost.lower import StepCost
from llmqsim.engine.deployment import Deployment
from llmqsim.scenario.build import Servers
from llmqsim.simulation import Prepared


@dataclass(frozen=True)
class Moved:
    """An answer under other step times. factor : on step times. value : the answer, None where there is none, and why."""

    factor: float
    value: Any
    reason: str | None = None


@dataclass(frozen=True)
class StepError:
    """error : relative, of step times. longer, shorter : the answer with step times off by it."""

    error: float
    longer: Moved
    shorter: Moved

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def stated(servers: Servers) -> float | None:
    """The relative error of step times that the costs state; None where they state none."""
    cost = servers.deployment.cost
    return cost.error if isinstance(cost, StepCost) else None


def moved(prepared: Prepared, answer: Callable[[Prepared], tuple[Any, str | None]]) -> StepError | None:
    """Ask again with longer and with shorter steps. answer : gives a value, or None and a reason. None: no error is stated."""
    error = stated(prepared.servers)
    if not error:
        return None
    longer, shorter = (Moved(factor, *answer(with_step_times(prepared, factor))) for factor in (1 + error, 1 - error))
    return StepError(error, longer, shorter)


def with_step_times(prepared: Prepared, factor: float) -> Prepared:
    """The same servers, each step `factor` times as long; nothing is built again."""
    servers = prepared.servers
    assert isinstance(servers, Servers)
    return Prepared(prepared.scenario, replace(servers, deployment=_scaled(servers.deployment, factor)))


def _scaled(deployment: Deployment, factor: float) -> Deployment:
    assert isinstance(deployment.cost, StepCost)
    return replace(deployment, cost=deployment.cost.scaled(factor))
