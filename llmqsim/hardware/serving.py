"""From an engine preset, a GPU, a model and the user's overrides to one resolved EngineOptions and its host time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from llmqsim.errors import ScenarioError, did_you_mean
from llmqsim.hardware.data import find, read_preset, sourced
from llmqsim.hardware.gpu import Gpu
from llmqsim.hardware.model import Model
from llmqsim.options import EngineOptions, HostCost

HOST_KEYS: dict[str, str] = {
    "per_step": "per_step_s",
    "per_step_tp": "per_step_tp_s",
    "per_running": "per_running_s",
    "per_mixed_layer": "per_mixed_layer_s",
    "request_before": "request_before_s",
    "request_after": "request_after_s",
}
"""how a scenario spells the fields of HostCost under `engine.host`"""

PLAIN = ("block_size", "gpu_memory_utilization", "kv_cache_dtype", "enable_chunked_prefill")
NO_DEFAULT = ("num_gpu_blocks_override", "kv_cache_memory_bytes")
SPECIAL = ("async_scheduling", "enforce_eager", "host")
"""override keys that are not fields of EngineOptions"""
IDEAL = "a cost model of the user's own: no host time, no CUDA graphs, synchronous unless said"


def engine_names() -> tuple[str, ...]:
    """All engine presets, sorted."""
    return tuple(sorted(read_preset("engines.yaml")["engines"]))


def engine_options(
    preset: str,
    gpu: Gpu | None,
    model: Model | None,
    tp: int,
    overrides: Mapping[str, Any],
    *,
    ideal: bool = False,
) -> tuple[EngineOptions, HostCost, dict[str, str]]:
    """Merge the preset's defaults for this GPU and model with what the user set.

    tp : GPUs of one replica; the defaults read here do not depend on it. overrides : keys of EngineOptions, or
    `async_scheduling`, `enforce_eager` and `host` (a mapping of HOST_KEYS, seconds); `max_model_len` may be 'auto'
    (whatever the KV pool holds). Keys that are absent or None take the default. ideal : the cost model is the user's
    own (constant, affine), so the hardware-like parts default to nothing. Third result: field to the text of its
    origin. Raises ScenarioError for an unknown preset or key.
    """
    data = read_preset("engines.yaml")
    name = find("engine.preset", preset, data["engines"])
    given = {key: value for key, value in overrides.items() if value is not None}
    _check_keys(given)
    values, origins = _defaults(data["engines"][name], data["sources"], gpu, model)
    _override(values, origins, given, ideal)
    if "cudagraph_capture_sizes" not in values:
        values["cudagraph_capture_sizes"], origins["cudagraph_capture_sizes"] = _capture_sizes(
            data["engines"][name]["cudagraph"], data["sources"], values["max_num_seqs"]
        )
    if not values["enable_chunked_prefill"] and "max_num_batched_tokens" not in given and values["max_model_len"]:
        values["max_num_batched_tokens"] = max(values["max_num_batched_tokens"], values["max_model_len"])
        origins["max_num_batched_tokens"] += "; raised to max_model_len, as chunked prefill is off"
    host, host_origins = _host(data["engines"][name]["host"], data["sources"], given.get("host") or {}, ideal)
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
    for key in (*PLAIN, "scheduler_reserve_full_isl", "in_flight"):
        values[key], origins[key] = sourced(entry[key], sources)
    large = gpu is not None and _is_large(gpu, entry["large_gpus"])
    column = "large" if large else "other"
    card = f"{gpu.name} takes the column for {'large cards' if large else 'all others'}" if gpu else "no GPU is named"
    for key in ("max_num_seqs", "max_num_batched_tokens"):
        values[key], source = sourced(entry[key], sources, column)
        origins[key] = f"{source}; {card}"
    for key in NO_DEFAULT:
        values[key], origins[key] = None, "not set"
    for option in fields(EngineOptions):
        if option.default is not MISSING:
            values.setdefault(option.name, option.default)
            origins.setdefault(option.name, "off unless set")
    values["max_model_len"] = model.max_position_embeddings if model else None
    origins["max_model_len"] = f"longest sequence of {model.name}" if model else "no model: what the pool holds"
    return values, origins


def _is_large(gpu: Gpu, rule: Mapping[str, Any]) -> bool:
    return gpu.memory_bytes >= rule["minimum_memory_bytes"] and gpu.architecture in rule["architectures"]


def _override(values: dict[str, Any], origins: dict[str, str], given: Mapping[str, Any], ideal: bool) -> None:
    if ideal:
        values.update(in_flight=1, cudagraph_capture_sizes=())
        origins.update(in_flight=IDEAL, cudagraph_capture_sizes=IDEAL)
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


def _capture_sizes(
    rule: Mapping[str, Any], sources: Mapping[str, str], max_num_seqs: int
) -> tuple[tuple[int, ...], str]:
    """Token counts with a CUDA graph: 1, 2, 4, then every 8 and every 16 up to the preset's limits."""
    largest = rule["step_16_until"]
    if rule["per_max_num_seqs"]:
        largest = min(largest, 2 * max_num_seqs)
    sizes = [1, 2, 4, *range(8, rule["step_8_until"] + 1, 8)]
    sizes += range(rule["step_8_until"] + 16, rule["step_16_until"] + 1, 16)
    kept = tuple(size for size in sizes if size <= largest)
    return kept, f"{sources.get(rule['source'], rule['source'])}; {len(kept)} sizes up to {kept[-1]}"


def _host(
    entry: Mapping[str, Any], sources: Mapping[str, str], given: Mapping[str, float], ideal: bool
) -> tuple[HostCost, dict[str, str]]:
    """The preset's host time with the user's values put over it."""
    values: dict[str, float] = {}
    origins: dict[str, str] = {}
    for key, field_name in HOST_KEYS.items():
        if given.get(key) is not None:
            values[field_name], origins[f"host.{key}"] = float(given[key]), "scenario"
        elif ideal:
            values[field_name], origins[f"host.{key}"] = 0.0, IDEAL
        else:
            values[field_name], origins[f"host.{key}"] = sourced(entry[field_name], sources)
    return HostCost(**values, source=origins["host.per_step"]), origins
