"""What is refused, or worth a note, only once presets, servers and requests are at hand. Each fault names file, line, key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from llmqsim.cluster.admission import bounded, refusals
from llmqsim.cluster.fits import front_faults
from llmqsim.cluster.fleet import Fleet
from llmqsim.cost.stations import Stations
from llmqsim.engine.deployment import Deployment
from llmqsim.errors import NoRoom, ScenarioError
from llmqsim.hardware import serving
from llmqsim.hardware.model import Model
from llmqsim.options import EngineOptions
from llmqsim.requests import Reason, RequestTable
from llmqsim.scenario.deployment import Batching, Preemption
from llmqsim.scenario.load import Scenario
from llmqsim.workload import build as workload

if TYPE_CHECKING:
    from llmqsim.scenario.build import Servers
    from llmqsim.scenario.build_fleet import Plant

OVER_RESERVED = 2
"""a policy that holds the maximum is worth a note when it holds this many times what requests use"""


def check_fit(scenario: Scenario, findings: Iterable[tuple[str, str]]) -> None:
    """Refuse policies that do not fit."""
    faults = [scenario.fault(key, f"{_policy_at(scenario, key)} {sentence}") for key, sentence in findings]
    if faults:
        raise ScenarioError(*faults)


def _policy_at(scenario: Scenario, key: str) -> str:
    """The policy's name in quotes."""
    kind = key.removeprefix("engine.")
    chosen = {"batching": batching_of(scenario), "preemption": preemption_of(scenario)[0]}
    return f"'{(chosen.get(kind) or scenario.spec.engine.ordering).policy}'"


def check_front(scenario: Scenario, made: workload.Workload, fleet: Fleet) -> None:
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


def over_reserved(table: RequestTable, deployment: Deployment) -> tuple[str, ...]:
    """A note where a batching policy that holds the longest possible answer lets in few, because nobody bounds it."""
    if not deployment.batching.holds_maximum or deployment.capacity is None:
        return ()
    used = float((table.prompt_tokens + table.output_tokens).mean())
    held = float((table.prompt_tokens + bounded(table, deployment.options, table.max_tokens)).mean())
    fit = int(deployment.capacity.usable_tokens / held)
    if held < OVER_RESERVED * used or fit >= deployment.options.max_num_seqs:
        return ()
    return (
        f"memory is held for {held:,.0f} tokens a request, {used:,.0f} are used: {fit} fit; set workload.max_tokens",
    )


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


def check_parallel(scenario: Scenario, network: Model | None) -> None:
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
        return {
            key: f"shares experts only with engine.enable_expert_parallel (got {size}); set it, or use replicas alone"
        }
    if spec.replicas % size:
        return {key: f"replicas must be a multiple of it (got {size} with replicas {spec.replicas})"}
    if network.experts % (spec.tensor_parallel_size * size):
        gpus = spec.tensor_parallel_size * size
        return {
            key: f"{network.experts} experts of {network.name} can't be spread evenly over {gpus} GPUs (got {size})"
        }
    return {}


def _needs_model(scenario: Scenario) -> str | None:
    """A key that means nothing without a model, if one is set."""
    spec = scenario.spec.engine
    given = {"engine.quantization": spec.quantization, "engine.enable_expert_parallel": spec.enable_expert_parallel}
    return next((key for key, value in given.items() if value), None)


def check_swap(scenario: Scenario, deployment: Deployment) -> None:
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


def check_offload(scenario: Scenario, deployment: Deployment) -> None:
    """A host tier that could never hold a block would be a silent nothing."""
    options, key = deployment.options, "engine.kv_offloading_size"
    if not options.kv_offloading_bytes:
        return
    if not options.enable_prefix_caching:
        raise ScenarioError(
            scenario.fault(
                key, "keeps cached blocks, and engine.enable_prefix_caching is off; turn it on or leave this out"
            )
        )
    if deployment.offload_blocks == 0:
        given = options.kv_offloading_bytes
        raise ScenarioError(
            scenario.fault(
                key, f"holds no KV block (got {given:,} bytes); it needs a model, a KV pool and a block's size"
            )
        )


def check_options(scenario: Scenario, options: EngineOptions, network: Model | None, has_budget: bool) -> None:
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


def check_servable(scenario: Scenario, made: workload.Workload, servers: Servers | Plant) -> None:
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
    raise NoRoom(
        scenario.fault(
            "workload",
            f"no request can be served: the shortest has {int(needed[shortest]):,} tokens of prompt and output, and "
            f"{why[Reason(reasons[shortest])]}",
        ),
        reason="no_request_fits",
    )
