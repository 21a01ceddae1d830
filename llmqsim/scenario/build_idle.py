"""Keys that were written and change nothing in this run: one table of key and condition.

A rule says why a key plays no part, from the scenario, the built servers and, once a run is over, what happened in it
(`Happened`; None before). Under a rule's condition every value of the key gives the same figures
(tests/unit/test_idle_keys.py changes them and compares); a key without a rule is not claimed to matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from llmqsim.caveats import Idle
from llmqsim.cost.stations import Stations
from llmqsim.engine.deployment import Deployment
from llmqsim.records import ReplicaUsage
from llmqsim.requests import UNSET, Outcome, RequestTable
from llmqsim.scenario.build import Servers
from llmqsim.scenario.build_checks import batching_of, preemption_of
from llmqsim.scenario.build_fleet import Plant
from llmqsim.scenario.load import Scenario

DEFAULT = "default"
PRIORITY_BLIND = (("fcfs", "sjf", "lifo", "random"), ("recompute_newest", "swap_newest", "newest", "least_kv"))
"""built-in orderings and preemption policies that do not look at a request's priority"""
PREDICTION_BLIND = ("fcfs", "priority", "lifo", "random")
"""built-in orderings that do not look at predicted lengths"""
PREDICTION_BLIND_VICTIMS = (*PRIORITY_BLIND[1], "recompute_least_urgent", "least_urgent")
PREDICTION_BLIND_BATCHING = ("continuous", "vllm_v0", "sarathi", "sglang", "orca", "static", "multi_step")
PREDICTION_BLIND_ROUTING = ("round_robin", "random", "least_outstanding", "power_of_two", "by_class", "session_sticky")


@dataclass(frozen=True)
class Happened:
    """What a run did with memory, summed over the replicas of one kind, and with its requests."""

    preemptions: int
    loaded_tokens: int
    """tokens that came back from the host's memory"""
    table: RequestTable

    @classmethod
    def of(cls, usage: Iterable[ReplicaUsage], table: RequestTable) -> Happened:
        """From what the replicas wrote down. table : its requests, looked at where a rule asks."""
        known = list(usage)
        return cls(sum(u.preemptions for u in known), sum(u.loaded_tokens for u in known), table)


@dataclass(frozen=True)
class Case:
    """What a rule may look at."""

    scenario: Scenario
    servers: Servers
    happened: Happened | None

    @property
    def its(self) -> Deployment:
        """The servers as they run."""
        return self.servers.deployment

    @property
    def own_cost(self) -> bool:
        """Are step times the scenario's own?"""
        return self.scenario.spec.cost.model != "calibrated"

    @property
    def stated(self) -> str:
        """What states the pool, so that no memory is counted; empty where it is worked out."""
        engine = self.scenario.spec.engine
        if engine.num_gpu_blocks_override is not None:
            return "engine.num_gpu_blocks_override states the pool"
        if engine.kv_cache_memory_bytes is not None:
            return "engine.kv_cache_memory_bytes states the pool"
        return "memory is not limited" if self.its.capacity is None else ""


Why = Callable[[Case], str]
"""why the key changes nothing; empty where it may matter"""


def idle_keys(scenario: Scenario, servers: Servers | Plant, happened: Happened | None = None) -> tuple[Idle, ...]:
    """The keys that were written and change nothing. happened : of a run that is over, for servers of one kind."""
    if isinstance(servers, Plant):
        found = [one for name, its in servers.pools.items() for one in idle_keys(scenario.pool(name), its)]
        return tuple(dict.fromkeys(found))
    case = Case(scenario, servers, happened)
    found = []
    for keys, rule in RULES:
        written = [key for key in _written(scenario) if any(key == k or key.startswith(f"{k}.") for k in keys)]
        if written and (why := rule(case)):
            found += [Idle(scenario.key(key), why) for key in _short(written)]
    for name, rule in CLASS_RULES:
        keys = [key for key in _written(scenario) if key.startswith("workload.classes.") and key.endswith(f".{name}")]
        if keys and (why := rule(case)):
            found += [Idle(key, why) for key in keys]
    return tuple(found)


def _written(scenario: Scenario) -> list[str]:
    return [key for key, origin in scenario.origins.items() if origin != DEFAULT]


def _short(keys: list[str]) -> list[str]:
    """`routing.policy` is written as `routing: NAME`."""
    return list(dict.fromkeys(key.removesuffix(".policy") for key in keys))


def _routing(case: Case) -> str:
    alone = case.its.replicas == 1 and case.its.late_binding is None
    return "one replica: there is nothing to choose" if alone and case.scenario.spec.admission.policy == "all" else ""


def _interconnect(case: Case) -> str:
    if case.own_cost:
        return "step times are the scenario's own"
    alone = case.servers.tensor_parallel_size == 1 and case.its.options.data_parallel_size == 1
    return "tensor_parallel_size 1: no GPU talks to another" if alone else ""


def _host_link(case: Case) -> str:
    policies = (case.its.batching, case.its.ordering, case.its.preemption)
    if any(hasattr(policy, "costs") for policy in policies) or case.its.options.kv_offloading_bytes:
        return ""
    return _swap(case)


def _swap(case: Case) -> str:
    return "" if case.its.preemption.swaps else f"preemption {preemption_of(case.scenario)[0].policy} swaps nothing"


def _offload(case: Case) -> str:
    if case.happened is None or case.happened.loaded_tokens or case.its.preemption.swaps:
        return ""
    return "no block came back from the host"


def _cold_start(case: Case) -> str:
    if isinstance(case.its.cost, Stations):
        return "cost.model stations has no steps"
    slower = case.its.host.cold_steps and case.its.host.cold_step_s
    return "" if slower else "no step is slower after a start (engine.host.cold_step)"


def _cold_step(case: Case) -> str:
    return "" if case.its.options.cold_start else "engine.cold_start is off"


def _sampler(case: Case) -> str:
    if case.own_cost:
        return "step times are the scenario's own"
    host = case.its.host
    return "" if host.sampler_s or host.sampler_per_logit_s else "this engine preset gives sampling no time"


def _sampler_time(case: Case) -> str:
    if case.own_cost:
        return "step times are the scenario's own"
    return "" if case.its.options.sampler == "top_p" else f"engine.sampler is {case.its.options.sampler}"


def _own_cost(case: Case) -> str:
    return "step times are the scenario's own" if case.own_cost else ""


def _graphs(case: Case) -> str:
    return "step times are the scenario's own" if case.own_cost and case.stated else ""


def _per_step_tp(case: Case) -> str:
    return "tensor_parallel_size 1" if case.servers.tensor_parallel_size == 1 else ""


def _mixed_layer(case: Case) -> str:
    return "layers are not known without a model" if case.servers.model is None else ""


def _share(case: Case) -> str:
    return case.stated


def _unlimited(case: Case) -> str:
    return "memory is not limited" if case.its.capacity is None else ""


def _preemption(case: Case) -> str:
    if case.its.capacity is None:
        return "memory is not limited"
    if case.happened is None or case.happened.preemptions:
        return ""
    return "" if _reads_costs(case) else "nobody was preempted"


def _reads_costs(case: Case) -> bool:
    """Does the policy do something besides choosing a victim?"""
    return hasattr(case.its.preemption, "costs") and case.its.ordering.preempts


def _budget(case: Case) -> str:
    counted = case.its.batching.has_token_budget or not case.own_cost or not case.stated
    return "" if counted else "this batching has no token budget"


def _predictor(case: Case) -> str:
    spec = case.scenario.spec
    batching, victims = batching_of(case.scenario).policy, preemption_of(case.scenario)[0].policy
    blind = spec.engine.ordering.policy in PREDICTION_BLIND and batching in PREDICTION_BLIND_BATCHING
    blind = blind and victims in PREDICTION_BLIND_VICTIMS and spec.routing.policy in PREDICTION_BLIND_ROUTING
    if not blind or spec.admission.policy != "all":
        return ""
    return f"ordering {spec.engine.ordering.policy} and the other policies look at no predicted length"


def _priority(case: Case) -> str:
    spec, (orderings, victims) = case.scenario.spec, PRIORITY_BLIND
    victim = preemption_of(case.scenario)[0].policy in victims or case.its.capacity is None
    blind = spec.engine.ordering.policy in orderings and victim and spec.engine.batching is None
    return f"ordering {spec.engine.ordering.policy} does not look at it" if blind else ""


def _one_level(case: Case) -> str:
    """Who was preempted goes elsewhere in line than with fcfs."""
    policy, happened = case.scenario.spec.engine.ordering.policy, case.happened
    if happened is None or policy != "priority" or happened.preemptions or len(np.unique(happened.table.priority)) > 1:
        return ""
    return "every request has the same priority: it orders as fcfs"


def _patience(case: Case) -> str:
    if case.happened is None:
        return ""
    gave_up = (case.happened.table.gave_up_ns != UNSET).any() or (case.happened.table.retries > 0).any()
    return "" if gave_up else "no answer took that long"


def _cap(case: Case) -> str:
    """Where loops are closed, the cap also decides who sends next."""
    if case.happened is None or (case.happened.table.client != UNSET).any():
        return ""
    held = (case.happened.table.arrival_ns != case.happened.table.intended_ns).any()
    return "" if held else "there never were more in flight"


def _retries(case: Case) -> str:
    if case.happened is None or (case.happened.table.retries > 0).any():
        return ""
    lost = np.isin(case.happened.table.outcome, (Outcome.REJECTED, Outcome.TIMED_OUT)).any()
    return "" if lost else "nobody was refused or gave up"


RULES: tuple[tuple[tuple[str, ...], Why], ...] = (
    (("routing",), _routing),
    (("interconnect",), _interconnect),
    (("engine.swap_space",), _swap),
    (("engine.host_link",), _host_link),
    (("engine.kv_offloading_size",), _offload),
    (("engine.cold_start",), _cold_start),
    (("engine.host.cold_step",), _cold_step),
    (("engine.sampler",), _sampler),
    (("engine.host.sampler", "engine.host.sampler_per_logit"), _sampler_time),
    (("engine.host.per_streamed_token", "engine.host.eager_per_layer"), _own_cost),
    (("engine.cudagraph_capture_sizes", "engine.enforce_eager", "engine.cudagraph_mode"), _graphs),
    (("engine.quantization",), _graphs),
    (("engine.host.per_step_tp",), _per_step_tp),
    (("engine.host.per_mixed_layer",), _mixed_layer),
    (("engine.gpu_memory_utilization", "engine.memory"), _share),
    (("engine.watermark", "engine.scheduler_reserve_full_isl", "engine.enable_prefix_caching"), _unlimited),
    (("engine.preemption",), _preemption),
    (("engine.max_num_batched_tokens", "engine.long_prefill_token_threshold"), _budget),
    (("workload.predictor",), _predictor),
    (("engine.ordering",), _one_level),
    (("workload.clients.timeout",), _patience),
    (("workload.clients.max_in_flight",), _cap),
    (("workload.clients.retries",), _retries),
)
"""keys (and what stands below them) -> why they change nothing here"""
CLASS_RULES: tuple[tuple[str, Why], ...] = (("priority", _priority),)
"""the same of keys that each class of the traffic has"""
