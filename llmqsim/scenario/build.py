"""From a checked scenario to what a run needs: servers (with presets merged, memory and costs worked out) and requests.

What can only be judged with presets at hand is judged here: does the model fit, does the engine accept its options?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llmqsim import policies, registry, rng
from llmqsim.cluster.admission import refusals
from llmqsim.cluster.fits import front_faults
from llmqsim.cluster.fleet import Fleet
from llmqsim.cost import lower
from llmqsim.cost.host import mixed_step_s, step_base_s
from llmqsim.cost.stations import Stations
from llmqsim.cost.store import Store
from llmqsim.engine.deployment import Deployment
from llmqsim.errors import ScenarioError
from llmqsim.hardware import serving
from llmqsim.hardware.gpu import Gpu, gpu, linked, own_gpu
from llmqsim.hardware.hf_config import model_from_config
from llmqsim.hardware.model import Model, model
from llmqsim.kv.capacity import KvCapacity, kv_capacity
from llmqsim.options import EngineOptions, HostCost
from llmqsim.requests import Reason, RequestTable
from llmqsim.scenario import fitting
from llmqsim.scenario.deployment import QUANTIZATIONS, Batching, Preemption
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


def build_servers(scenario: Scenario) -> Servers:
    """Resolve presets, memory and step costs. Raises ScenarioError naming file, line and key."""
    spec = scenario.spec
    card = located(scenario, lambda: _gpu(scenario)) if spec.gpu is not None else None
    network = located(scenario, lambda: _model(scenario)) if spec.model is not None else None
    tp = spec.tensor_parallel_size
    _check_parallel(scenario, network)
    ideal = spec.cost.model != "calibrated"
    chosen = not ideal or scenario.origins["engine.preset"] != "default"
    options, host, origins = located(
        scenario,
        lambda: serving.engine_options(
            spec.engine.preset, card, network, tp, _overrides(scenario), ideal=ideal, check_version=chosen
        ),
    )
    batching = _policy(scenario, "engine.batching", "batching", batching_of(scenario))
    _check_options(scenario, options, network, batching.has_token_budget)
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
    _check_fit(scenario, fitting.of_servers(deployment))
    _check_swap(scenario, deployment)
    _check_offload(scenario, deployment)
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
    _promise(scenario, made.table)
    _check_fit(scenario, fitting.of_traffic(servers.deployment, made.table))
    servers.check_visits(scenario, made.table)
    _check_any_servable(scenario, made, servers)
    fleet = Fleet.of(servers.everything)
    _check_front(scenario, made, fleet)
    if draws := fleet.draws:
        made.table.draws = rng.stream(seed, replication, "routing").random((len(made.table), draws))
    return replace(made, notes=(*made.notes, *_over_reserved(made.table, servers.deployment)))


def _check_fit(scenario: Scenario, findings: Iterable[tuple[str, str]]) -> None:
    """Refuse policies that do not fit."""
    faults = [scenario.fault(key, f"{_policy_at(scenario, key)} {sentence}") for key, sentence in findings]
    if faults:
        raise ScenarioError(*faults)


def _policy_at(scenario: Scenario, key: str) -> str:
    """The policy's name in quotes."""
    kind = key.removeprefix("engine.")
    chosen = {"batching": batching_of(scenario), "preemption": preemption_of(scenario)[0]}
    return f"'{(chosen.get(kind) or scenario.spec.engine.ordering).policy}'"


def _promise(scenario: Scenario, table: RequestTable) -> None:
    """Each class's targets into the table: its own slo, or else the scenario's."""
    classes = scenario.spec.workload.classes or {}
    own = {name: spec.slo.model_dump() for name, spec in classes.items() if spec.slo is not None}
    shared = scenario.spec.slo.model_dump() if scenario.spec.slo is not None else {}
    deadlines.fill(table, shared, own)


def _check_front(scenario: Scenario, made: workload.Workload, fleet: Fleet) -> None:
    """Routers and admission, with the requests and replicas of this run."""
    faults = []
    for pool in fleet.pools:
        before = "" if fleet.only is not None else f"pools.{pool.name}."
        for key, told in front_faults(made.table, pool.deployment, alone=fleet.only is not None):
            faults.append(scenario.fault(key if key == "admission" else before + key, told))
        if made.clients.retries is not None and isinstance(pool.deployment.cost, Stations):
            faults.append(scenario.fault("workload.clients.retries", "are not modelled with cost.model stations"))
    faults = list(dict.fromkeys(faults))
    if faults:
        raise ScenarioError(*faults)


def _over_reserved(table: RequestTable, deployment: Deployment) -> tuple[str, ...]:
    """A note where a batching policy that holds the longest possible answer lets in few, because nobody bounds it."""
    if not deployment.batching.holds_maximum or deployment.capacity is None:
        return ()
    used = float((table.prompt_tokens + table.output_tokens).mean())
    held = float((table.prompt_tokens + table.max_tokens).mean())
    fit = int(deployment.capacity.usable_tokens / held)
    if held < OVER_RESERVED * used or fit >= deployment.options.max_num_seqs:
        return ()
    return (f"memory is held for {held:,.0f} tokens a request, {used:,.0f} are used: {fit} fit; set workload.max_tokens",)


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
        raise ScenarioError(*(_place(scenario, fault) for fault in error.faults)) from None


def _place(scenario: Scenario, fault: str) -> str:
    key, said = fault.split(":", 1)
    return f"{scenario.where(key)}: {scenario.key(key)}:{said}"


def _model(scenario: Scenario) -> Model:
    spec, quantization = scenario.spec.model, scenario.spec.engine.quantization
    made = model(spec) if isinstance(spec, str) else _own_model(scenario, spec.config)
    return made if quantization is None else made.quantized(QUANTIZATIONS[quantization])


def _own_model(scenario: Scenario, config: str) -> Model:
    """The model of a config.json, whose faults say where the scenario names it."""
    try:
        return model_from_config(scenario.folder / config)
    except ScenarioError as error:
        raise ScenarioError(*(f"model.config: {fault}" for fault in error.faults)) from None


def _gpu(scenario: Scenario) -> Gpu:
    """The GPU, behind the link that the scenario names."""
    spec, link = scenario.spec.gpu, scenario.spec.interconnect
    card = gpu(spec) if isinstance(spec, str) else own_gpu(spec.model_dump())
    if link is None:
        return card
    return linked(card, link if isinstance(link, str) else link.model_dump())


def batching_of(scenario: Scenario) -> Batching:
    """The batching policy that the scenario names, or else the one of its engine preset."""
    spec = scenario.spec.engine
    return spec.batching or Batching(policy=serving.batching_policy(spec.preset)[0])


def preemption_of(scenario: Scenario) -> tuple[Preemption, str]:
    """The preemption policy and where it was set: vLLM's priority scheduling takes the least urgent, unless told else."""
    spec, origin = scenario.spec.engine, scenario.origins["engine.preemption.policy"]
    if origin == "default" and spec.ordering.policy == "priority":
        return Preemption(policy="recompute_least_urgent"), "default with ordering: priority"
    return spec.preemption, origin


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


def _check_parallel(scenario: Scenario, network: Model | None) -> None:
    """Can the model be spread over these GPUs, and does this simulator know what that costs?"""
    spec = scenario.spec
    tp, pp, experts = spec.tensor_parallel_size, spec.pipeline_parallel_size, bool(spec.engine.enable_expert_parallel)
    faults = {} if network is None else network.parallel_faults(tp, pp, experts)
    faults |= _shared_experts(spec, network)
    if pp > 1 and spec.cost.model != "calibrated":
        faults["pipeline_parallel_size"] = (
            f"stages are not modelled with a {spec.cost.model} step cost (got {pp}); put them into the cost"
        )
    if spec.interconnect is not None and spec.gpu is None:
        faults["interconnect"] = "links GPUs, and the scenario names none; give gpu, or leave it out"
    if network is None and (key := _needs_model(scenario)):
        faults[key] = "needs a model, and the scenario names none; give model, or leave it out"
    if faults:
        raise ScenarioError(*(scenario.fault(key, sentence) for key, sentence in faults.items()))


def _shared_experts(spec: Any, network: Model | None) -> dict[str, str]:
    """Scenario key to why replicas can't share their experts as asked (a sentence)."""
    size, key = spec.engine.data_parallel_size or 1, "engine.data_parallel_size"
    if size == 1:
        return {}
    if network is None or not network.experts:
        return {key: f"shares experts, and the model has none (got {size}); use replicas alone"}
    if not spec.engine.enable_expert_parallel:
        return {key: f"shares experts only with engine.enable_expert_parallel (got {size}); set it, or use replicas alone"}
    if spec.replicas % size:
        return {key: f"replicas must be a multiple of it (got {size} with replicas {spec.replicas})"}
    if network.experts % (spec.tensor_parallel_size * size):
        gpus = spec.tensor_parallel_size * size
        return {key: f"{network.experts} experts of {network.name} can't be spread evenly over {gpus} GPUs (got {size})"}
    return {}


def _needs_model(scenario: Scenario) -> str | None:
    """A key that means nothing without a model, if one is set."""
    spec = scenario.spec.engine
    given = {"engine.quantization": spec.quantization, "engine.enable_expert_parallel": spec.enable_expert_parallel}
    return next((key for key, value in given.items() if value), None)


def _policy(scenario: Scenario, key: str, kind: str, spec: Any) -> Any:
    try:
        return registry.make(kind, spec.policy, spec.parameters)
    except ScenarioError as error:
        raise ScenarioError(*(scenario.fault(key, fault) for fault in error.faults)) from None


def _check_swap(scenario: Scenario, deployment: Deployment) -> None:
    """Preemption by swap needs somewhere to swap to, and a batching policy that brings requests back."""
    if not deployment.preemption.swaps:
        return
    key = "engine.preemption"
    name = batching_of(scenario).policy
    if not deployment.batching.takes_swapped:
        raise ScenarioError(
            scenario.fault(key, f"swaps, and engine.batching '{name}' never brings requests back; use recompute")
        )
    if deployment.swap_blocks == 0:
        given = deployment.options.swap_space_bytes
        raise ScenarioError(
            scenario.fault(key, f"swaps, and engine.swap_space ({given:,} bytes) holds no block; raise it")
        )


def _check_offload(scenario: Scenario, deployment: Deployment) -> None:
    """A host tier that could never hold a block would be a silent nothing."""
    options, key = deployment.options, "engine.kv_offloading_size"
    if not options.kv_offloading_bytes:
        return
    if not options.enable_prefix_caching:
        raise ScenarioError(
            scenario.fault(key, "keeps cached blocks, and engine.enable_prefix_caching is off; turn it on or leave this out")
        )
    if deployment.offload_blocks == 0:
        given = options.kv_offloading_bytes
        raise ScenarioError(
            scenario.fault(key, f"holds no KV block (got {given:,} bytes); it needs a model, a KV pool and a block's size")
        )


def _check_options(scenario: Scenario, options: EngineOptions, network: Model | None, has_budget: bool) -> None:
    """What vLLM refuses at start-up, whichever of the two values is a default."""
    faults = []
    budget, limit = options.max_num_batched_tokens, options.max_model_len

    def fault(key: str, sentence: str) -> None:
        faults.append(scenario.fault(key, sentence))

    if has_budget and budget < options.max_num_seqs:
        fault(
            "engine.max_num_batched_tokens",
            f"must be at least engine.max_num_seqs, {options.max_num_seqs:,} (got {budget:,}); vLLM refuses it, since "
            "so many decodes would not fit in a step",
        )
    if has_budget and not options.enable_chunked_prefill and limit is not None and budget < limit:
        fault(
            "engine.max_num_batched_tokens",
            f"must be at least engine.max_model_len, {limit:,}, when enable_chunked_prefill is false (got {budget:,})",
        )
    if network is not None and limit is not None and limit > network.max_position_embeddings:
        fault(
            "engine.max_model_len",
            f"must be at most {network.max_position_embeddings:,}, the longest sequence of {network.name} "
            f"(got {limit:,})",
        )
    if faults:
        raise ScenarioError(*faults)


def _memory(
    scenario: Scenario, network: Model | None, card: Gpu | None, tp: int, options: EngineOptions
) -> tuple[EngineOptions, KvCapacity | None]:
    """The KV pool; and max_model_len cut to it where nobody asked for that length (vLLM's `auto`)."""
    stated = options.num_gpu_blocks_override is not None or options.kv_cache_memory_bytes is not None
    if not stated and (network is None or card is None):
        return options, None
    asked = isinstance(scenario.spec.engine.max_model_len, int)
    capacity = kv_capacity(network, card, tp, options, check_max_model_len=asked)
    longest = options.max_model_len or (network.max_position_embeddings if network is not None else None)
    if longest is not None and not asked:
        options = replace(options, max_model_len=min(longest, capacity.usable_tokens))
    return options, capacity


def _cost(
    scenario: Scenario, network: Model | None, card: Gpu | None, tp: int, options: EngineOptions, host: HostCost
) -> lower.StepCost | Stations:
    spec = scenario.spec.cost
    if spec.model == "stations":
        return Stations(**{f"{term}_s": seconds for term, seconds in spec.model_dump(exclude={"model"}).items()})
    if spec.model == "calibrated":
        store = Store(scenario.folder / spec.coefficients) if spec.coefficients else None
        return lower.lower(network, card, tp, options, host, options.max_model_len, store)
    own = {"base": spec.step} if spec.model == "constant" else spec.model_dump(exclude={"model"})
    own["base"] += step_base_s(host, tp)  # nothing unless the scenario sets engine.host itself
    return lower.affine(
        **{f"{term}_s": seconds for term, seconds in own.items()},
        per_running_s=host.per_running_s,
        per_mixed_step_s=mixed_step_s(host, network.layers if network else 0),
        provenance=f"{spec.model} step cost, from the scenario",
    )


def _check_any_servable(scenario: Scenario, made: workload.Workload, servers: Servers | Plant) -> None:
    """A workload of which not one request can be served is an error before the run; some are refused and counted."""
    reasons = refusals(made.table, servers.everything)
    if (reasons == Reason.NONE).any():
        return
    needed = made.table.prompt_tokens + made.table.output_tokens
    shortest = int(needed.argmin())
    options, capacity = servers.deployment.options, servers.deployment.capacity
    why = {
        Reason.EXCEEDS_MAX_MODEL_LEN: f"engine.max_model_len is {options.max_model_len or 0:,}",
        Reason.EXCEEDS_KV_POOL: f"the KV pool holds {capacity.usable_tokens if capacity else 0:,}",
        Reason.EXCEEDS_TOKEN_BUDGET: f"engine.max_num_batched_tokens is {options.max_num_batched_tokens:,} and prompts "
        "are not chunked (engine.enable_chunked_prefill)",
    }
    raise ScenarioError(
        scenario.fault(
            "workload",
            f"no request can be served: the shortest has {int(needed[shortest]):,} tokens of prompt and output, and "
            f"{why[Reason(reasons[shortest])]}",
        )
    )
