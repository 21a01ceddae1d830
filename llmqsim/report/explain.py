"""`llmqsim explain`: every resolved value with its origin, the KV account, what typical steps cost, as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any

from llmqsim.hardware import serving
from llmqsim.hardware.data import read_preset
from llmqsim.hardware.gpu import WRITTEN, Gpu
from llmqsim.report.explain_handoff import handoff
from llmqsim.report.explain_pool import kinds_of_layers, pool_told
from llmqsim.report.explain_steps import typical_steps
from llmqsim.report.explain_workload import workload
from llmqsim.scenario.build import Servers, build_workload
from llmqsim.scenario.build_checks import preemption_of
from llmqsim.scenario.build_fleet import Plant, build_plant
from llmqsim.scenario.build_idle import idle_keys
from llmqsim.scenario.build_warnings import caveats
from llmqsim.scenario.load import Scenario
from llmqsim.version import __version__

DEFAULT = "default"
OWN_COST = "own cost model"
POOL_ITEMS = ("KV pool", "states in a run")
"""items of the memory account that a run's blocks are cut from"""
POLICIES = ("batching", "ordering", "preemption")
TOP_LEVEL = ("pipeline_parallel_size",)
"""engine options that stand beside `engine`, not under it"""
SPELLINGS = {
    "in_flight": "async_scheduling",
    "cudagraph_capture_sizes": "enforce_eager",
    "swap_space_bytes": "swap_space",
    "kv_offloading_bytes": "kv_offloading_size",
    "host_link_bytes_per_s": "host_link.bandwidth",
    "swap_block_s": "host_link.per_block",
}
"""engine options that a scenario may set by another key of vLLM's"""
FAMILY_RULE = "a rule of its model_type"
NO_FIGURES = ("name", "sources", "unmodelled", "mixers", "towers", "extra")
"""fields of a model that are no single figure"""
MODEL_RULES = {
    "gated": "model_type and hidden_act",
    "tied_embeddings": "tie_word_embeddings",
    "dtype_bytes": "activations, and weights that are not quantised, are served in 16 bits",
    "weight_dtype": "no quantization_config",
    "top_p_sampling": "published generation defaults",
    "vision_bytes": "presets/models.yaml",
}
"""model figures that no single dimension of config.json states, and what they follow from; others: FAMILY_RULE"""


def explain(scenario: Scenario) -> dict[str, Any]:
    """What a run of this scenario rests on, for JSON and for `explain_text`. Nothing is simulated.

    Every resolved value is {value, origin, source}: SI units; where it was set ("x.yaml:12", "--set", "preset
    vllm-0.19"); and the text of the preset's source, None where the origin says it all. Sections that don't apply (no
    model, no GPU, unlimited KV) are None. Raises UserError for what can't be run as written.
    """
    plant = build_plant(scenario)
    run = scenario.spec.run
    made = build_workload(scenario, plant, run.seed, run.replication)
    pools = {}
    if isinstance(plant, Plant):
        pools = {name: _servers(scenario.pool(name), its) for name, its in plant.pools.items()}
    servers = plant.answering if pools else plant
    first = next((pools[name] for name in pools if plant.pools[name] is servers), None) or _servers(scenario, servers)
    return {
        "version": __version__,
        "file": scenario.path,
        "no_effect": [one.to_json() for one in idle_keys(scenario, plant)],
        "warnings": [one.to_json() for one in caveats(scenario, plant, lambda: made)],
        "variants": list(scenario.variants),
        "known_variants": list(scenario.known_variants),
        "values": _values(scenario),
        **{key: first[key] for key in ("engine", "host")},
        "model": _model(scenario, servers),
        **{key: first[key] for key in ("gpu", "kv", "cost", "steps")},
        "workload": workload(scenario, made),
        **({"pools": pools, "handoff": handoff(scenario, plant)} if pools else {}),
    }


def _servers(scenario: Scenario, servers: Servers) -> dict[str, Any]:
    """What servers of one kind rest on."""
    return {
        "engine": _engine(scenario, servers),
        "host": _host(scenario, servers),
        "gpu": _gpu(scenario, servers),
        "kv": _kv(servers),
        "cost": _cost(scenario, servers),
        "steps": typical_steps(scenario.spec.cost, servers),
    }


def _value(value: Any, origin: str, source: str | None = None) -> dict[str, Any]:
    return {"value": list(value) if isinstance(value, tuple) else value, "origin": origin, "source": source}


def _values(scenario: Scenario) -> dict[str, Any]:
    """All values of the scenario but the engine's, which presets complete. Unset ones have the value None."""
    found = {}
    for key, value in _leaves(_without_engines(scenario.spec.model_dump(exclude={"engine"})), ""):
        origin = scenario.origins.get(key, DEFAULT)
        if key == "name" and origin == DEFAULT and value is not None:
            origin = "default: the file's name"
        found[key] = _value(value, origin)
    return found


def _without_engines(values: dict[str, Any]) -> dict[str, Any]:
    """Pools have engines of their own; what a scenario without pools does not say of them is not worth a line."""
    if values["pools"] is None:
        return {key: value for key, value in values.items() if key not in ("pools", "placement", "handoff")}
    pools = {name: {k: v for k, v in pool.items() if k != "engine"} for name, pool in values["pools"].items()}
    return values | {"pools": pools}


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict) or not value:
        yield key, value
        return
    for part, inner in value.items():
        yield from _leaves(inner, f"{key}.{part}" if key else part)


def _engine(scenario: Scenario, servers: Servers) -> dict[str, Any]:
    """EngineOptions as resolved; the policies as the scenario names them."""
    spec, options = scenario.spec.engine, servers.deployment.options
    found = {"preset": _value(options.preset, scenario.origins["engine.preset"])}
    for name in (f.name for f in fields(options)):
        if name != "preset":
            found[name] = _value(getattr(options, name), *_engine_origin(scenario, servers, name))
    for name in POLICIES:
        policy, origin = getattr(spec, name), scenario.origins.get(f"engine.{name}.policy", DEFAULT)
        if name == "preemption":
            policy, origin = preemption_of(scenario)
        if policy is None:
            default, source = serving.batching_policy(options.preset)
            found[name] = _value(default, f"preset {options.preset}", source)
            continue
        said = ", ".join(f"{key} {value}" for key, value in policy.parameters.items())
        found[name] = _value(f"{policy.policy} ({said})" if said else policy.policy, origin)
    return found


def _engine_origin(scenario: Scenario, servers: Servers, name: str) -> tuple[str, str | None]:
    """(origin, source) of one engine option: the user's own line, else the preset or what it was derived from."""
    spec, text = scenario.spec.engine, servers.origins[name]
    other = SPELLINGS.get(name)
    if name in TOP_LEVEL:
        return scenario.origins.get(name, DEFAULT), None
    if getattr(spec, name, None) is not None:
        auto = getattr(spec, name) == "auto" and name == "max_model_len"
        return scenario.origins[f"engine.{name}"] + (f" ({text})" if auto else ""), None
    said = attrgetter(other)(spec) if other else None
    if said or (said is False and other == "async_scheduling"):
        return f"{scenario.origins[f'engine.{other}']} ({other}: {str(said).lower()})", None
    if name == "max_model_len":
        limit, model = servers.deployment.options.max_model_len, servers.model
        if model is not None and limit is not None and limit < model.max_position_embeddings:
            text += f", {model.max_position_embeddings:,}, cut to what the KV pool holds"
    if name == "max_model_len" or name in serving.NO_DEFAULT:
        return text, None
    return _from_preset(servers, text)


def _from_preset(servers: Servers, text: str) -> tuple[str, str]:
    """(origin, source) of what the user left to the engine preset, or to the rules of an own cost model."""
    return OWN_COST if text == serving.IDEAL else f"preset {servers.deployment.options.preset}", text


def _host(scenario: Scenario, servers: Servers) -> dict[str, Any]:
    """Host times, seconds, by their keys under `engine.host`."""
    found = {}
    for key, field in serving.HOST_KEYS.items():
        text, written = servers.origins[f"host.{key}"], getattr(scenario.spec.engine.host, key) is not None
        if written:
            origin, source = scenario.origins[f"engine.host.{key}"], None
        else:
            origin, source = _from_preset(servers, text)
        found[key] = _value(getattr(servers.deployment.host, field), origin, source)
    return found


def _model(scenario: Scenario, servers: Servers) -> dict[str, Any] | None:
    model = servers.model
    if model is None:
        return None
    figures, source = {}, None
    for field in (f.name for f in fields(model) if f.name not in NO_FIGURES):
        if field in model.sources:
            source, _, key = model.sources[field].rpartition(": ")
        else:
            key = MODEL_RULES.get(field, FAMILY_RULE)
            if not getattr(model, field):
                continue  # what the model does not have
        figures[field] = _value(getattr(model, field), key, source)
    return {
        "name": _value(model.name, scenario.origins.get("model") or scenario.origins["model.config"]),
        "figures": figures,
        **kinds_of_layers(model),
        "parameters": model.parameters,
        "weight_bytes": model.weight_bytes(),
        "weight_bytes_per_gpu": model.weight_bytes(
            servers.tensor_parallel_size,
            servers.deployment.options.pipeline_parallel_size,
            servers.deployment.options.data_parallel_size,
        ),
    }


def _gpu(scenario: Scenario, servers: Servers) -> dict[str, Any] | None:
    gpu = servers.gpu
    if gpu is None:
        return None
    figures = {}
    for key, source in gpu.sources.items():
        name, _, dtype = key.partition(".")
        value = getattr(gpu, name)
        figures[key] = _value(value[dtype] if dtype else value, _gpu_origin(scenario, gpu, key), source)
    named = scenario.origins.get("gpu") or scenario.origins.get("gpu.name") or scenario.origins["gpu.like"]
    return {"name": _value(gpu.name, named), "figures": figures}


def _gpu_origin(scenario: Scenario, gpu: Gpu, key: str) -> str:
    """Where a figure of the GPU or its link was set."""
    if key.startswith("interconnect") and scenario.spec.interconnect is not None:
        return scenario.origins.get("interconnect") or scenario.origins["interconnect.bandwidth"]
    if gpu.sources[key] == WRITTEN:
        return scenario.where("gpu")
    return f"preset {gpu.name}" if isinstance(scenario.spec.gpu, str) else "its relative"


def _kv(servers: Servers) -> dict[str, Any] | None:
    """The KV pool of one replica, with each formula's numbers filled in; None where it never binds."""
    capacity = servers.deployment.capacity
    if capacity is None:
        return None
    blocks, size = capacity.blocks, capacity.block_size
    longest, per_block = servers.deployment.options.max_model_len, capacity.bytes_per_block_per_gpu
    told = {
        "source": capacity.source,
        "items": [{"name": i.name, "bytes": i.bytes, "formula": i.formula} for i in capacity.items],
        "bytes_per_token": capacity.bytes_per_token,
        "bytes_per_token_formula": capacity.formula or None,
        "bytes_per_block_per_gpu": per_block,
        "bytes_per_block_per_gpu_formula": None if per_block is None else _block_formula(servers, per_block),
        "blocks": blocks,
        "blocks_formula": None,
        "block_size": size,
        "tokens": capacity.tokens,
        "tokens_formula": f"{blocks:,} blocks x {size} = {capacity.tokens:,} tokens",
        "usable_tokens": capacity.usable_tokens,
        "max_model_len": longest,
        "guaranteed_concurrency": None,
        "guaranteed_concurrency_formula": None,
        "hybrid_concurrency": None,
        "hybrid_concurrency_formula": None,
    }
    if capacity.items:
        left = sum(i.bytes for i in capacity.items if i.name in POOL_ITEMS)
        told["blocks_formula"] = f"{left:,} // {per_block:,} bytes = {blocks:,} blocks"
    if longest is not None:
        floor = capacity.guaranteed_concurrency(longest)
        told["guaranteed_concurrency"] = floor
        told["guaranteed_concurrency_formula"] = f"{capacity.tokens:,} / {longest:,} = {floor:.2f} requests"
        if capacity.hybrid is not None:
            told["hybrid_concurrency"] = capacity.hybrid_concurrency(longest)
            told["hybrid_concurrency_formula"] = capacity.hybrid.formula(longest)
    return told | ({} if capacity.hybrid is None else {"pool": pool_told(capacity.hybrid, longest)})


def _block_formula(servers: Servers, per_block: int) -> str:
    options = servers.deployment.options
    model, tp, size = servers.model, servers.tensor_parallel_size, options.block_size
    width, layers = model.kv_dtype_bytes(options.kv_cache_dtype), model.layers // options.pipeline_parallel_size
    if model.mixers or model.index_layers:
        each = per_block // size
        return f"{each:,} bytes a token on each GPU x {size} tokens = {per_block:,} bytes"
    if model.kv_lora_rank:
        latent = f"{layers} layers x ({model.kv_lora_rank} latent + {model.qk_rope_head_dim} rotary) x {width} bytes"
        return f"{latent} x {size} tokens = {per_block:,} bytes"
    return (
        f"2 x {layers} layers x {model.kv_heads_per_gpu(tp)} KV heads x {model.head_dim} head size x {width} "
        f"bytes x {size} tokens = {per_block:,} bytes"
    )


def _cost(scenario: Scenario, servers: Servers) -> dict[str, Any]:
    """Where step costs come from, how far they were measured, and their error on shapes that no fit saw."""
    cost = servers.deployment.cost
    told = {
        "model": scenario.spec.cost.model,
        "provenance": list(cost.provenance),
        "box": {axis: None if value == float("inf") else value for axis, value in cost.box.items()},
        "families": {},
        "sources": {},
    }
    if scenario.spec.cost.model == "calibrated":
        data = read_preset(f"coefficients/{servers.gpu.coefficients}.yaml")
        told["sources"] = dict(data["sources"])
        told["families"] = {name: {"fitted": True, **errors} for name, errors in cost.errors.items()}
        told["families"]["elementwise"] = _family_error(data["families"]["elementwise"])
    return told


def _family_error(family: dict[str, Any]) -> dict[str, Any]:
    """Timings and errors in per cent of one kernel family; fitted: False where its constants come from elsewhere."""
    fitted = "held_out" in family
    found = {"rows": family.get("rows"), **(family["held_out"] if fitted else family.get("check", {}))}
    return {"fitted": fitted, **found}
