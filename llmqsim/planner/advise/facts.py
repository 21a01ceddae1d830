"""What is known of a scenario before its levers are thought of: its servers, its traffic, and one run of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from llmqsim.hardware.prices import price
from llmqsim.metrics import slo
from llmqsim.planner.bounds import Bounds
from llmqsim.planner.demand import arrival_rate
from llmqsim.planner.vary import changed
from llmqsim.requests import RequestTable
from llmqsim.result import Result
from llmqsim.scenario.build import Servers
from llmqsim.scenario.load import Scenario
from llmqsim.simulation import Prepared, promise

HONEST_PREDICTOR = {"policy": "ranker", "tau": 0.6}
"""for orderings by predicted length where the scenario has no predictor, or one that no real server has: a learned
ranker's Kendall's tau of about 0.6 (docs/policies.md)"""


@dataclass(frozen=True)
class Place:
    """Servers of one kind. prefix : what their keys begin with ("" or "pools.NAME."). role : of a pool."""

    prefix: str
    servers: Servers
    role: str

    @property
    def options(self) -> Any:
        """The resolved engine options."""
        return self.servers.deployment.options

    @property
    def replicas(self) -> int:
        """How many of them there are."""
        return self.servers.deployment.replicas

    @property
    def gpus_each(self) -> int:
        """GPUs of a replica."""
        return self.servers.tensor_parallel_size * self.options.pipeline_parallel_size

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        return self.prefix.removeprefix("pools.").rstrip(".") or "replicas"


class Facts:
    """A scenario as it is. prepared : its servers; result : a run of it."""

    def __init__(self, prepared: Prepared, result: Result):
        self.prepared, self.result = prepared, result
        self.scenario: Scenario = prepared.scenario
        self.places = _places(prepared)

    @property
    def table(self) -> RequestTable:
        """The requests of the run."""
        return self.result.table

    @cached_property
    def summary(self) -> dict[str, Any]:
        """All figures of the run."""
        return self.result.summary()

    @cached_property
    def objectives(self) -> list[slo.Objective]:
        """What was promised."""
        return slo.objectives(promise(self.scenario), self.table.classes)

    @cached_property
    def bounds(self) -> Bounds:
        """Arithmetic of a replica that answers."""
        return Bounds(self.prepared.servers.deployment, self.table)

    @cached_property
    def rate_per_s(self) -> float | None:
        """Requests due a second, whatever a cap holds back; None where they depend on the run, or all come at once."""
        return arrival_rate(without_cap(self.scenario), self.bounds.mix)

    @property
    def cap(self) -> int | None:
        """Most requests that the clients have in flight; None without such a cap."""
        clients = self.scenario.spec.workload.clients
        return None if clients is None else clients.max_in_flight

    @cached_property
    def held_s(self) -> float:
        """How long clients held a request back for their cap, on average over those that were sent, seconds."""
        sent = self.table.arrival_ns >= self.table.intended_ns
        held = (self.table.arrival_ns - self.table.intended_ns)[sent]
        return float(held.mean()) / 1e9 if len(held) else 0.0

    @cached_property
    def repeated(self) -> float:
        """Share of the prompt tokens that stand in blocks which another prompt begins with, too."""
        prefixes = self.table.prefixes
        if prefixes is None or not len(prefixes.hashes):
            return 0.0
        again = len(prefixes.hashes) - len(np.unique(prefixes.hashes))
        return again * self.places[0].options.block_size / float(self.table.prompt_tokens.sum())

    @property
    def classed(self) -> bool:
        """Is there more than one class of traffic?"""
        return len(self.table.classes) > 1

    @property
    def prioritised(self) -> bool:
        """Do requests say how urgent they are?"""
        return len(np.unique(self.table.priority)) > 1

    def written(self, place: Place) -> Any:
        """The part of the scenario that says how the servers of a place are: a pool's, or the whole."""
        pools = self.scenario.spec.pools
        return self.scenario.spec if pools is None or not place.prefix else pools[place.name]

    @property
    def pooled(self) -> bool:
        """Are there pools?"""
        return self.scenario.spec.pools is not None

    @property
    def split(self) -> bool:
        """Is there one prefill and one decode pool, of the same GPU and parallelism?"""
        if sorted(place.role for place in self.places) != ["decode", "prefill"]:
            return False
        one, other = self.places
        return one.servers.gpu == other.servers.gpu and one.gpus_each == other.gpus_each

    @property
    def calibrated(self) -> bool:
        """Do steps cost what kernels of a model on a GPU take?"""
        return all(place.servers.model is not None and place.servers.gpu is not None for place in self.places)

    @property
    def gpus(self) -> int:
        """GPUs of the whole deployment; replicas where the scenario names no GPU."""
        return sum(place.replicas * place.gpus_each for place in self.places)

    def usd_per_hour(self, own: Mapping[str, float]) -> float | None:
        """What they cost; None where a price is not known. own : prices that the reader gave."""
        prices = [price(p.servers.gpu.name, own) if p.servers.gpu is not None else None for p in self.places]
        if None in prices:
            return None
        each = zip(prices, self.places, strict=True)
        return sum(one.usd_per_gpu_hour * place.replicas * place.gpus_each for one, place in each)

    @property
    def shares_prefixes(self) -> bool:
        """Do prompts have beginnings in common?"""
        return self.table.prefixes is not None

    def waits(self, cause: str) -> float:
        """Share of all waiting of the run that was for this (metrics/waiting.py)."""
        return self.summary["waiting_for"][cause]["share"] or 0.0

    def prompt_quantile(self, share: float) -> int:
        """Tokens that this share of the prompts does not exceed."""
        return int(np.quantile(self.table.prompt_tokens, share))

    @property
    def predictor(self) -> tuple[dict[str, Any], bool]:
        """What schedulers may know of answers' lengths, and whether the scenario has it already. Never the oracle."""
        own = self.scenario.spec.workload.predictor
        if own is None or own.policy == "oracle":
            return HONEST_PREDICTOR, False
        return {"policy": own.policy, **own.parameters}, True


def without_cap(scenario: Scenario) -> Scenario:
    """The same traffic from clients that hold nothing back."""
    clients = scenario.spec.workload.clients
    if clients is None or clients.max_in_flight is None:
        return scenario
    return changed(scenario, {"workload.clients.max_in_flight": None})


def _places(prepared: Prepared) -> list[Place]:
    servers = prepared.servers
    if isinstance(servers, Servers):
        return [Place("", servers, "both")]
    roles = {pool.name: pool.role for pool in servers.fleet.pools}
    return [Place(f"pools.{name}.", its, roles[name]) for name, its in servers.pools.items()]
