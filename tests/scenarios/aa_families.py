"""Traffic families, and pairs of variants on them that differ by chance alone (A/A), or by a planted slowdown as well.

Two variants are the same in distribution and not byte for byte where they draw other replicas (routing `random`), or
other places in the queue (ordering `random`), for the same requests, or where they serve others of the same kind.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from llmqsim import from_mapping, registry, rng
from llmqsim.result import Result
from llmqsim.simulation import Prepared, prepare

CHAT = {"prompt": {"lognormal": {"mean": 600, "cv": 0.8}}, "output": {"lognormal": {"mean": 60, "cv": 0.8}}}
LIGHT = {"prompt": {"lognormal": {"mean": 600, "cv": 0.3}}, "output": {"lognormal": {"mean": 60, "cv": 0.3}}}
HEAVY = {"prompt": {"lognormal": {"mean": 600, "cv": 3}}, "output": {"lognormal": {"mean": 60, "cv": 2.5}}}
LOOP = {"process": "closed_loop", "clients": 40, "think_time": "1 s"}
COST = {"model": "affine", "base": 8e-3, "per_prefill_token": 0.1e-3, "per_decode_request": 0.3e-3}
"""about that of an 8-billion model on one GPU; plain numbers, so that a slowdown is one factor"""
OTHER_DRAWS = 1_000_003
"""what is added to a seed for draws of one's own"""


@dataclass(frozen=True)
class Family:
    """A scenario; what its two variants differ by: "routing", "ordering" (draws on the same requests) or "traffic"."""

    name: str
    scenario: dict[str, Any]
    by: str


def _service(arrivals: dict[str, Any], lengths: dict[str, Any], replicas: int, **more: Any) -> dict[str, Any]:
    return {
        "workload": {"requests": 4000, "arrivals": arrivals, "lengths": lengths},
        "cost": COST,
        "engine": {"max_num_seqs": 16, "max_num_batched_tokens": 2048},
        "replicas": replicas,
        "slo": {"ttft": 0.5, "tpot": 0.03},
        **more,
    }


def _classes() -> dict[str, Any]:
    service = _service({"process": "poisson", "rate": 17}, CHAT, 2, routing="random")
    chat = {"share": 0.7, "lengths": LIGHT}
    batch = {"share": 0.3, "lengths": CHAT, "slo": {"e2e": "10 s"}}
    service["workload"] |= {"classes": {"chat": chat, "batch": batch}}
    del service["workload"]["lengths"]
    return service


RANDOM = {"max_num_seqs": 16, "max_num_batched_tokens": 2048, "ordering": "random"}
FAMILIES = (
    Family("light", _service({"process": "poisson", "rate": 16}, LIGHT, 4, routing="random"), "routing"),
    Family("bursty", _service({"process": "gamma", "rate": 22, "cv": 3}, CHAT, 4, routing="random"), "routing"),
    Family("heavy lengths", _service({"process": "poisson", "rate": 20}, HEAVY, 4, routing="random"), "routing"),
    Family("two classes", _classes(), "routing"),
    Family("near saturation", _service({"process": "poisson", "rate": 9.3}, CHAT, 1, engine=RANDOM), "ordering"),
    Family("closed loop", _service(LOOP, CHAT, 2, routing="random"), "routing"),
    Family("other requests", _service({"process": "poisson", "rate": 16}, CHAT, 2), "traffic"),
)


@dataclass(frozen=True)
class Redrawn(Prepared):
    """The same with draws of its own. by : of Family. number : 1 or 2, the first variant or the second."""

    by: str = "routing"
    number: int = 2

    def run(self, seed: int, replication: int, keep_steps: bool = False, keep: str = "requests") -> Result:
        """As of Prepared."""
        if self.by == "traffic":
            return super().run(seed + OTHER_DRAWS, replication, keep_steps, keep)
        if self.by == "ordering":  # one seed is one order of rows, whatever the replication: here each has another
            own = {"seed": OTHER_DRAWS * self.number + 1000 * seed + replication}
            deployment = replace(self.servers.deployment, ordering=registry.make("ordering", "random", own))
            return Prepared(self.scenario, replace(self.servers, deployment=deployment)).run(seed, replication)
        plain = rng.stream

        def stream(seed: int, replication: int, name: str):
            return plain(seed + (OTHER_DRAWS if name == "routing" else 0), replication, name)

        with mock.patch.object(rng, "stream", stream):
            return super().run(seed, replication, keep_steps, keep)


def pair(family: Family, requests: int, slower: float = 0.0) -> dict[str, Prepared]:
    """Variants "a" and "b", alike but for chance. slower : the share by which every step of b takes longer."""
    scenario = deepcopy(family.scenario)
    scenario["workload"]["requests"] = requests
    other = deepcopy(scenario)
    other["cost"] = {k: v if k == "model" else v * (1 + slower) for k, v in COST.items()}
    first, second = prepare(from_mapping(scenario)), prepare(from_mapping(other))
    if family.by == "ordering":
        first = Redrawn(first.scenario, first.servers, family.by, 1)
    return {"a": first, "b": Redrawn(second.scenario, second.servers, family.by, 2)}
