"""From a checked scenario to what a run needs: servers (with presets merged, memory and costs worked out) and requests.

What can only be judged with presets at hand is judged here: does the model fit, does the engine accept its options?
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llmqsim import policies, registry, rng
from llmqsim.cluster.fleet import Fleet
from llmqsim.cost import lower
from llmqsim.cost.host import mixed_step_s, step_base_s
from llmqsim.cost.stations import Stations
from llmqsim.engine.deployment import Deployment
from llmqsim.errors import ScenarioError
from llmqsim.hardware import serving
from llmqsim.hardware.gpu import Gpu, gpu, linked, own_gpu
from llmqsim.hardware.model import Model, model
from llmqsim.kv.capacity import KvCapacity, kv_capacity
from llmqsim.kv.measured import MeasuredMemory
from llmqsim.options import EngineOptions, HostCost
from llmqsim.requests import RequestTable
from llmqsim.scenario import fitting
from llmqsim.scenario.build_checks import (
    batching_of,
    check_fit,
    check_front,
    check_offload,
    check_options,
    check_parallel,
    check_servable,
    check_swap,
    over_reserved,
    preemption_of,
)
from llmqsim.scenario.deployment import QUANTIZATIONS
from llmqsim.scenario.load import Scenario
from llmqsim.scenario.schema import WarmupRequests
from llmqsim.units import to_ns
from llmqsim.workload import build as workload
from llmqsim.workload import deadlines

if TYPE_CHECKING:
    from llmqsim.scenario.build_fleet import Plant

assert policies, "imported to register the built-in policies"

OVER_RESERVED = 2
"""a policy that holds the maximum is worth a note when it holds this many times what requests use"""


@dataclass(frozen=True)
class Servers:
    """The deployment of a scenario, with what it was made from and where each engine option comes from."""

    model: Model | None
    gpu: Gpu | None
    tensor_parallel_size: int
    deployment: Deployment
    origins: dict[str, str]

    @property
    def everything(self) -> Deployment:
        """What a cluster is made of."""
        return self.deployment

    def check_visits(self, scenario: Scenario, table: RequestTable) -> None:
        """Everybody comes here."""

    @property
    def longest_request_tokens(self) -> int | None:
        """Tokens of the longest request that the servers take, prompt and answer; None: no limit."""
        limits = [self.deployment.options.max_model_len]
        if self.deployment.capacity is not None:
            limits.append(self.deployment.capacity.usable_tokens)
        known = [limit for limit in limits if limit is not None]
        return min(known) if known else None


def resolve(
    scenario: Scenario,
) -> tuple[Model | None, Gpu | None, int, EngineOptions, HostCost, dict[str, str]]:
    """(model, GPU, tensor-parallel GPUs, options, host time, origins of the options), before memory is looked at."""
    spec = scenario.spec
    card = located(scenario, lambda: _gpu(scenario)) if spec.gpu is not None else None
    network = located(scenario, lambda: _model(scenario)) if spec.model is not None else None
    tp = spec.tensor_parallel_size
    check_parallel(scenario, network)
    ideal = spec.cost.model != "calibrated"
    chosen = not ideal or scenario.origins["engine.preset"] != "default"
    options, host, origins = located(
        scenario,
        lambda: serving.engine_options(
            spec.engine.preset, card, network, tp, _overrides(scenario), ideal=ideal, check_version=chosen
        ),
    )
    return network, card, tp, options, host, origins


def measured_memory(scenario: Scenario) -> MeasuredMemory:
    """What the scenario states of memory on each GPU."""
    return MeasuredMemory(**scenario.spec.engine.memory.model_dump())


def build_servers(scenario: Scenario) -> Servers:
    """Resolve presets, memory and step costs. Raises ScenarioError naming file, line and key."""
    spec = scenario.spec
    network, card, tp, options, host, origins = resolve(scenario)
    batching = _policy(scenario, "engine.batching", "batching", batching_of(scenario))
    check_options(scenario, options, network, batching.has_token_budget)
    if not batching.has_token_budget:
        origins["max_num_batched_tokens"] += "; plays no part: this batching has no token budget"
    options, capacity = located(scenario, lambda: _memory(scenario, network, card, tp, options))
    cost = located(scenario, lambda: _cost(scenario, network, card, tp, options, host))
    deployment = Deployment(
        replicas=spec.replicas,
        options=options,
        host=host,
        cost=cost,
        capacity=capacity,
        routing=_policy(scenario, "routing", "routing", spec.routing),
        batching=batching,
        ordering=_policy(scenario, "engine.ordering", "ordering", spec.engine.ordering),
        preemption=_policy(scenario, "engine.preemption", "preemption", preemption_of(scenario)[0]),
        admission=_policy(scenario, "admission", "admission", spec.admission),
        signal_age_ns=to_ns(spec.routing.signal_age or 0.0),
        late_binding=spec.routing.late_binding,
    )
    check_fit(scenario, fitting.of_servers(deployment))
    check_swap(scenario, deployment)
    check_offload(scenario, deployment)
    return Servers(network, card, tp, deployment, origins)


def build_workload(
    scenario: Scenario, servers: Servers | Plant, seed: int, replication: int, streamed: bool = False
) -> workload.Workload:
    """Draw or read the requests. streamed : see requests.RequestTable. Raises ScenarioError or DataError."""
    made = located(
        scenario,
        lambda: workload.build(
            _traffic(scenario),
            seed=seed,
            replication=replication,
            base_folder=scenario.folder,
            max_model_len=servers.longest_request_tokens,
            block_size=servers.deployment.options.block_size,
            streamed=streamed,
        ),
    )
    promise_to(scenario, made.table)
    check_fit(scenario, fitting.of_traffic(servers.deployment, made.table))
    servers.check_visits(scenario, made.table)
    check_servable(scenario, made, servers)
    fleet = Fleet.of(servers.everything)
    check_front(scenario, made, fleet)
    if draws := fleet.draws:
        made.table.draws = rng.stream(seed, replication, "routing").random((len(made.table), draws))
    return replace(made, notes=(*made.notes, *over_reserved(made.table, servers.deployment)))


def promise_to(scenario: Scenario, table: RequestTable) -> None:
    """Each class's targets into the table: its own slo, or else the scenario's."""
    classes = scenario.spec.workload.classes or {}
    own = {name: spec.slo.model_dump() for name, spec in classes.items() if spec.slo is not None}
    shared = scenario.spec.slo.model_dump() if scenario.spec.slo is not None else {}
    deadlines.fill(table, shared, own)


def _traffic(scenario: Scenario) -> dict[str, Any]:
    """`workload` as plain values; a warm-up that is drained is something that the loop does."""
    traffic = scenario.spec.workload.model_dump()
    warmup = scenario.spec.run.warmup
    if isinstance(warmup, WarmupRequests) and warmup.drain:
        traffic["arrivals"]["drain_after"] = warmup.requests
    return traffic


def located(scenario: Scenario, make: Callable[[], Any]) -> Any:
    """Run `make`; put file and line before each fault that begins with a scenario key."""
    try:
        return make()
    except ScenarioError as error:
        raise error.told(*(_place(scenario, fault) for fault in error.faults)) from None


def _place(scenario: Scenario, fault: str) -> str:
    key, said = fault.split(":", 1)
    return f"{scenario.where(key)}: {scenario.key(key)}:{said}"


def _model(scenario: Scenario) -> Model:
    spec, quantization = scenario.spec.model, scenario.spec.engine.quantization
    made = model(spec) if isinstance(spec, str) else _own_model(scenario, spec.config, spec.architecture)
    return made if quantization is None else made.quantized(QUANTIZATIONS[quantization])


def _own_model(scenario: Scenario, config: str, architecture: str | None) -> Model:
    """The model of a config.json, whose faults say where the scenario names it."""
    from llmqsim.hardware.hf_config import model_from_config

    try:
        return model_from_config(scenario.folder / config, architecture)
    except ScenarioError as error:
        raise ScenarioError(*(f"model.config: {fault}" for fault in error.faults)) from None


def _gpu(scenario: Scenario) -> Gpu:
    """The GPU, behind the link that the scenario names."""
    spec, link = scenario.spec.gpu, scenario.spec.interconnect
    card = gpu(spec) if isinstance(spec, str) else own_gpu(spec.model_dump())
    if link is None:
        return card
    return linked(card, link if isinstance(link, str) else link.model_dump())


def _overrides(scenario: Scenario) -> dict[str, Any]:
    """What the user set, by the names of serving.engine_options."""
    spec = scenario.spec
    host = spec.engine.host.model_dump(exclude_none=True)
    stages = {"pipeline_parallel_size": spec.pipeline_parallel_size} if spec.pipeline_parallel_size > 1 else {}
    given = {**spec.engine.overrides(), **stages, "host": host}
    if spec.engine.async_scheduling is not None:
        given["async_scheduling"] = spec.engine.async_scheduling  # so that faults name the key that was written
        del given["in_flight"]
    return given


def _policy(scenario: Scenario, key: str, kind: str, spec: Any) -> Any:
    try:
        return registry.make(kind, spec.policy, spec.parameters)
    except ScenarioError as error:
        raise ScenarioError(*(scenario.fault(key, fault) for fault in error.faults)) from None


def _memory(
    scenario: Scenario, network: Model | None, card: Gpu | None, tp: int, options: EngineOptions
) -> tuple[EngineOptions, KvCapacity | None]:
    """The KV pool; and max_model_len cut to it where nobody asked for that length (vLLM's `auto`)."""
    stated = options.num_gpu_blocks_override is not None or options.kv_cache_memory_bytes is not None
    if not stated and (network is None or card is None):
        return options, None
    asked = isinstance(scenario.spec.engine.max_model_len, int)
    stated_memory = measured_memory(scenario)
    release = scenario.spec.engine.preset
    capacity = kv_capacity(
        network, card, tp, options, check_max_model_len=asked, release=release, measured=stated_memory
    )
    longest = options.max_model_len or (network.max_position_embeddings if network is not None else None)
    if longest is not None and not asked:
        most = capacity.usable_tokens
        if network is not None and network.mixers and capacity.hybrid is not None:
            most = max(most, capacity.hybrid.longest())  # what the engine's own pool holds
        options = replace(options, max_model_len=min(longest, most))
    return options, capacity


def _cost(
    scenario: Scenario, network: Model | None, card: Gpu | None, tp: int, options: EngineOptions, host: HostCost
) -> lower.StepCost | Stations:
    spec = scenario.spec.cost
    if spec.model == "stations":
        return Stations(**{f"{term}_s": seconds for term, seconds in spec.model_dump(exclude={"model"}).items()})
    if spec.model == "calibrated":
        store = None
        if spec.coefficients:
            from llmqsim.cost.store import Store

            store = Store(scenario.folder / spec.coefficients)
        return lower.lower(network, card, tp, options, host, options.max_model_len, store)
    own = {"base": spec.step} if spec.model == "constant" else spec.model_dump(exclude={"model"})
    own["base"] += step_base_s(host, tp)  # nothing unless the scenario sets engine.host itself
    return lower.affine(
        **{f"{term}_s": seconds for term, seconds in own.items()},
        per_running_s=host.per_running_s,
        per_mixed_step_s=mixed_step_s(host, network.layers if network else 0),
        provenance=f"{spec.model} step cost, from the scenario",
    )


