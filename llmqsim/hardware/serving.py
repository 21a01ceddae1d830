"""From an engine preset, a GPU, a model and the user's overrides to one resolved EngineOptions and its host time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from llmqsim.errors import ScenarioError, did_you_mean
from llmqsim.hardware.data import find, read_preset, sourced
from llmqsim.hardware.engine_rules import (
    capture_sizes,
    defaults_by_gpu,
    lacking,
    memory_share,
    prompt_limits,
)
from llmqsim.hardware.gpu import Gpu
from llmqsim.hardware.model import Model
from llmqsim.options import EngineOptions, HostCost, MemoryRule

HOST_KEYS: dict[str, str] = {
    "per_step": "per_step_s",
    "per_step_tp": "per_step_tp_s",
    "per_running": "per_running_s",
    "per_mixed_layer": "per_mixed_layer_s",
    "per_streamed_token": "per_streamed_token_s",
    "eager_per_layer": "eager_per_layer_s",
    "sampler": "sampler_s",
    "sampler_per_logit": "sampler_per_logit_s",
    "cold_step": "cold_step_s",
    "request_before": "request_before_s",
    "request_after": "request_after_s",
}
"""how a scenario spells the fields of HostCost under `engine.host`"""

PLAIN = (
    "block_size",
    "gpu_memory_utilization",
    "kv_cache_dtype",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "watermark",
    "swap_space_bytes",
    "scheduler_reserve_full_isl",
    "in_flight",
    "cudagraph_mode",
    "unhashed_blocks_first",
)
"""options that a preset states as one value"""
NO_DEFAULT = ("num_gpu_blocks_override", "kv_cache_memory_bytes")
SPECIAL = ("async_scheduling", "enforce_eager", "host")
"""override keys that are not fields of EngineOptions"""
IDEAL = "a cost model of the user's own: no host time, no CUDA graphs, synchronous, no prefix cache unless said"


def engine_names() -> tuple[str, ...]:
    """All engine presets, sorted."""
    return tuple(sorted(read_preset("engines.yaml")["engines"]))


def batching_policy(preset: str) -> tuple[str, str]:
    """Name of the batching policy that does what the engine does, and its source. Raises ScenarioError when unknown."""
    data = read_preset("engines.yaml")
    return sourced(data["engines"][find("engine.preset", preset, data["engines"])]["batching"], data["sources"])


def memory_rule(preset: str) -> MemoryRule:
    """What the engine takes of a GPU's memory beside weights and KV; vLLM's latest for options made by hand."""
    data = read_preset("engines.yaml")
    entry = dict(data["engines"].get(preset, data["engines"]["vllm-0.19"])["memory"])
    source = entry.pop("source")
    return MemoryRule(source=data["sources"].get(source, source), **entry)


def engine_options(
    preset: str,
    gpu: Gpu | None,
    model: Model | None,
    tp: int,
    overrides: Mapping[str, Any],
    *,
    ideal: bool = False,
    check_version: bool = True,
) -> tuple[EngineOptions, HostCost, dict[str, str]]:
    """Merge the preset's defaults for this GPU and model with what the user set.

    tp : GPUs of one tensor-parallel group. overrides : keys of EngineOptions, or `async_scheduling`, `enforce_eager`
    and `host` (a mapping of HOST_KEYS, seconds); `max_model_len` may be 'auto' (whatever the KV pool holds). Keys that
    are absent or None take the default. ideal : the cost model is the user's own (constant, affine), so the
    hardware-like parts default to nothing. check_version : refuse options that the preset's versions don't have; pass
    False when nobody chose the preset. Third result: field to the text of its origin.
    Raises ScenarioError for an unknown preset or key, and for an option that these versions don't have.
    """
    data = read_preset("engines.yaml")
    name = find("engine.preset", preset, data["engines"])
    entry, sources = data["engines"][name], data["sources"]
    given = {key: value for key, value in overrides.items() if value is not None}
    _check_keys(given)
    values, origins = _defaults(entry, sources, gpu, model)
    if check_version and (faults := lacking(name, entry, given, values)):
        raise ScenarioError(*faults)
    _override(values, origins, given, ideal)
    prompt_limits(entry, sources, values, origins, given)
    if "cudagraph_capture_sizes" not in values:
        values["cudagraph_capture_sizes"], origins["cudagraph_capture_sizes"] = capture_sizes(
            entry["cudagraph"], sources, values["max_num_seqs"]
        )
    if gpu is not None and "gpu_memory_utilization" not in given:
        memory_share(entry, values, origins, gpu, tp)
    case = _host_case(values["in_flight"], model, gpu)
    host, host_origins = _host(entry["host"], sources, given.get("host") or {}, case, ideal)
    return EngineOptions(preset=name, **values), host, origins | host_origins


def _check_keys(given: Mapping[str, Any]) -> None:
    known = [f.name for f in fields(EngineOptions) if f.name != "preset"] + list(SPECIAL)
    faults = [
        f"engine.{k}: unknown key (got {v!r}){did_you_mean(k, known)}" for k, v in given.items() if k not in known
    ]
    host = given.get("host") or {}
    faults += [
        f"engine.host.{k}: unknown key (got {v!r}){did_you_mean(k, HOST_KEYS)}"
        for k, v in host.items()
        if k not in HOST_KEYS
    ]
    if faults:
        raise ScenarioError(*faults)


def _defaults(
    entry: Mapping[str, Any], sources: Mapping[str, str], gpu: Gpu | None, model: Model | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The preset's values for this GPU and model, and where each comes from."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for key in PLAIN:
        values[key], origins[key] = sourced(entry[key], sources)
    defaults_by_gpu(entry, sources, values, origins, gpu)
    for key in NO_DEFAULT:
        values[key], origins[key] = None, "not set"
    top_p = model is not None and model.top_p_sampling
    values["sampler"] = "top_p" if top_p else "plain"
    origins["sampler"] = f"published generation defaults of {model.name}" if model else "no model: nothing to sort"
    for option in fields(EngineOptions):
        if option.default is not MISSING:
            values.setdefault(option.name, option.default)
            origins.setdefault(option.name, "off unless set")
    values["max_model_len"] = model.max_position_embeddings if model else None
    origins["max_model_len"] = f"longest sequence of {model.name}" if model else "no model: what the pool holds"
    return values, origins


def _override(values: dict[str, Any], origins: dict[str, str], given: Mapping[str, Any], ideal: bool) -> None:
    if ideal:
        bare = {"in_flight": 1, "cudagraph_capture_sizes": (), "enable_prefix_caching": False, "sampler": "plain"}
        values.update(bare)
        origins.update(dict.fromkeys(bare, IDEAL))
    for key, value in given.items():
        if key == "max_model_len" and value == "auto":
            values[key], origins[key] = None, "auto: what the KV pool holds"
        elif key == "async_scheduling":
            values["in_flight"], origins["in_flight"] = (2 if value else 1), f"async_scheduling: {str(value).lower()}"
        elif key == "enforce_eager":
            if value:
                values["cudagraph_capture_sizes"], origins["cudagraph_capture_sizes"] = (), "enforce_eager"
        elif key == "cudagraph_capture_sizes":
            values[key], origins[key] = tuple(sorted(set(value))), "scenario"
        elif key != "host":
            values[key], origins[key] = value, "scenario"


def _host_case(in_flight: int, model: Model | None, gpu: Gpu | None) -> tuple[str, ...]:
    """Names of the conditions that hold: a value may have another one under each."""
    case = (f"in_flight_{in_flight}",)
    if gpu is not None:
        case += (gpu.architecture,)
    if model is not None and model.experts:
        case += ("experts", "experts_16_bit") if model.weight_dtype == "bfloat16" else ("experts",)
    return case


def _host(
    entry: Mapping[str, Any], sources: Mapping[str, str], given: Mapping[str, float], case: tuple[str, ...], ideal: bool
) -> tuple[HostCost, dict[str, str]]:
    """The preset's host time, by what holds of this deployment, with the user's values put over it."""
    values: dict[str, float] = {}
    origins: dict[str, str] = {}
    for key, field_name in HOST_KEYS.items():
        if given.get(key) is not None:
            values[field_name], origins[f"host.{key}"] = float(given[key]), "scenario"
        elif ideal:
            values[field_name], origins[f"host.{key}"] = 0.0, IDEAL
        else:
            values[field_name], origins[f"host.{key}"] = sourced(_rule(entry[field_name], case), sources)
    cold_steps = 0 if ideal and "cold_step" not in given else int(_rule(entry["cold_steps"], case)["value"])
    large = {} if ideal else _rule(entry.get("large_steps", {}), case)
    if large.get("share"):
        origins["host.large_steps"] = sources.get(large["source"], large["source"])
        values["large_step_share"], values["large_step_tokens"] = large["share"], tuple(large["tokens"])
    return HostCost(**values, cold_steps=cold_steps, source=origins["host.per_step"]), origins


def _rule(rule: Mapping[str, Any], case: tuple[str, ...]) -> Mapping[str, Any]:
    """The value of the first condition that the rule names, or else its own."""
    return next((rule[name] for name in case if name in rule), rule)
