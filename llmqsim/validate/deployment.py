"""`config` of a case to the scenario's keys of the servers: model, GPU, parallelism, engine options.

What is not stated is left to the engine preset. `notes` say what was taken for something else; such a case is outside
the envelope.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llmqsim.errors import ScenarioError, or_known
from llmqsim.hardware.data import read_preset
from llmqsim.validate import names
from llmqsim.validate.quantized import quantization, weight_types
from llmqsim.validate.split import split_pools

COPIED = {
    "max_num_seqs": "max_num_seqs",
    "max_batch_per_engine": "max_num_seqs",
    "max_batch_size": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_tokens": "max_num_batched_tokens",
    "chunked_prefill": "enable_chunked_prefill",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "prefix_caching": "enable_prefix_caching",
    "enable_prefix_caching": "enable_prefix_caching",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "block_size": "block_size",
    "max_model_len": "max_model_len",
    "kv_blocks": "num_gpu_blocks_override",
    "num_gpu_blocks": "num_gpu_blocks_override",
    "async_scheduling": "async_scheduling",
    "sampler": "sampler",
    "batching": "batching",
}
"""key of a case -> key under `engine`"""
KV_TYPE = ("kv_cache_dtype", "kv_precision", "kv_cache_precision", "kv_dtype")
"""names of one key: the type of the KV cache"""
KV_TYPES = {
    **dict.fromkeys(("auto",), "auto"),
    **dict.fromkeys(("bf16", "fp16", "fp16/bf16", "bfloat16", "float16", "half", "16", "16-bit"), "bfloat16"),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8-e4m3", "fp8-e5m2", "e4m3", "e5m2", "float8"), "fp8"),
}
"""words for it, in lower case -> the scenario's engine.kv_cache_dtype"""
SIXTEEN_BIT = ("", "bf16", "fp16", "fp16/bf16", "bfloat16", "float16", "auto")

SITES: dict[str, dict[str, Any]] = {
    # two A100 where two GPUs are slower than one: no NVLink (docs/engine_presets.md, fidelity study section 5)
    "S10": {"interconnect": "pcie4"},
    # submitted in August 2024 with TensorRT-LLM 0.11 or 0.12 and its maximum-utilisation scheduler, from memory; the
    # slots that were stated (896, 1,024) could not be filled if every answer's longest length were reserved
    "S11": {"engine_version": "0.12", "batching": "trtllm_max_utilization"},
}
"""source of measurements -> what is known of its servers beside what the cases say; a case's own keys win"""


@dataclass
class Servers:
    """Scenario keys of the servers, GPUs they take, what a reader should know. outside : why not in the envelope."""

    keys: dict[str, Any]
    gpus: int
    notes: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    product: str = ""
    sixteen_bit_experts: bool = False

    @property
    def engine(self) -> dict[str, Any]:
        """The keys under `engine`."""
        return self.keys["engine"]


def servers(config: Mapping[str, Any], entry: Mapping[str, Any], source: str = "") -> Servers:
    """The servers of one entry. source : of the measurements. Raises ScenarioError, naming the key, where unknown."""
    config = {**SITES.get(source, {}), **config}
    faults = [f"{key}: missing" for key in ("model", "gpu", "engine") if not config.get(key)]
    if faults:
        raise ScenarioError(*faults)
    tp, pp, dp, shape_notes = _shape(config, entry)
    made = Servers({}, tp * pp * dp, outside=shape_notes)
    card = names.gpu_preset(str(config["gpu"]))
    network = _model(config)
    preset, note = names.engine_preset(
        str(config["engine"]), _version(config), names.version_by_date(str(config["engine"]), config.get("measured_on"))
    )
    made.product = next((stem for word, stem in names.PRODUCTS if word in str(config["engine"]).lower()), "")
    if note:
        made.notes.append(note)
    made.keys = {
        "model": network,
        "gpu": card,
        "replicas": dp,
        "tensor_parallel_size": tp,
        "engine": {"preset": preset},
    }
    if dp > 1:
        made.keys["routing"] = "least_outstanding"
    if pp > 1:
        made.keys["pipeline_parallel_size"] = pp
    if link := config.get("interconnect") or config.get("link"):
        made.keys["interconnect"] = link
    _engine(made, config, network, tp)
    if str(config.get("mode", "agg")).startswith("disagg"):
        keys, made.gpus, assumed = split_pools(config, made.product, _is_moe(network))
        for key in ("replicas", "tensor_parallel_size", "pipeline_parallel_size"):
            made.keys.pop(key, None)
        made.engine.pop("enable_expert_parallel", None)
        if made.product != "vllm":  # a worker that has one role mixes nothing, whatever its engine's batching
            made.engine.update(batching="continuous", enable_chunked_prefill=True)
        made.keys |= keys
        made.outside += assumed
    _known_gpu(made, card)
    return made


def _version(config: Mapping[str, Any]) -> str | None:
    """The engine's version, from its own key or from its name ("NIM 1.8.0 (TensorRT-LLM)" has none of the engine's)."""
    version = config.get("engine_version")
    return None if version is None else str(version)


def _shape(config: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[int, int, int, list[str]]:
    """Tensor, pipeline and data parallel size."""

    def size(*keys: str) -> int | None:
        for source in (entry, config):
            for key in keys:
                value = source.get(key)
                if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 1:
                    return int(value)
        return None

    pp = size("pp", "pipeline_parallel_size") or 1
    dp = size("dp", "data_parallel_size", "replicas") or 1
    tp = size("tp", "tensor_parallel_size")
    notes = []
    attention_dp = size("attention_dp_size") or 1
    if attention_dp > 1:
        tp, dp = max(attention_dp if attention_dp <= 16 else 8, 1), 1
        notes.append("attention in data parallel is taken as tensor parallel")
    elif tp is not None and tp > 16 and size("moe_ep_size", "ep"):
        tp = size("moe_ep_size", "ep")
        notes.append(f"a stated tensor parallel size beyond a node is taken as {tp}")
    gpus = size("n_gpus", "num_gpus", "gpus")
    if tp is None:
        tp = 1 if gpus is None else max(1, gpus // (pp * dp))
    elif gpus is not None and size("dp", "data_parallel_size", "replicas") is None and gpus > tp * pp:
        dp = max(1, gpus // (tp * pp))  # what is left of the instance serves as well
    return tp, pp, dp, notes


def _model(config: Mapping[str, Any]) -> str:
    """The preset, by the model's name or else its path; the one of its 8-bit checkpoint where that is what ran."""
    try:
        found = names.model_preset(str(config["model"]))
    except ScenarioError:
        if not config.get("model_path"):
            raise
        found = names.model_preset(str(config["model_path"]))
    eight_bit = f"{found}-fp8"
    published = eight_bit in read_preset("models.yaml")["models"] and "fp8" in weight_types(config, found)
    return eight_bit if published else found


def _engine(made: Servers, config: Mapping[str, Any], network: str, tp: int) -> None:
    options = made.engine
    for key, ours in COPIED.items():
        if config.get(key) is not None:
            options[ours] = config[key]
    if isinstance(options.get("max_model_len"), int):
        longest = read_preset("models.yaml")["models"][network]["config"]
        longest = longest.get("text_config", longest)["max_position_embeddings"]
        options["max_model_len"] = min(options["max_model_len"], longest)
    if config.get("cuda_graphs") is False or config.get("enforce_eager") is True:
        options["enforce_eager"] = True
    kind, note = quantization(config, network)
    if kind:
        options["quantization"] = kind
    if note:
        made.outside.append(note)
    if kv_type := _kv_type(config):
        options["kv_cache_dtype"] = kv_type
    if made.product == "trtllm" and "kv_cache_dtype" not in options and "fp8" in weight_types(config, network):
        options["kv_cache_dtype"] = "fp8"
        made.notes.append("TensorRT-LLM with fp8 weights keeps an fp8 KV cache")
    _pool(options, config)
    experts = _experts(config)
    if experts and _is_moe(network):
        sharing = experts // tp  # replicas whose GPUs hold one set of experts between them
        if sharing > 1 and made.keys["replicas"] % sharing == 0:
            options["data_parallel_size"] = sharing
            made.notes.append(f"{sharing} replicas share their experts, and are taken to be equally busy")
        options["enable_expert_parallel"] = tp > 1 or "data_parallel_size" in options
    if str(config.get("precision", "")).lower() in SIXTEEN_BIT and _is_moe(network):
        made.sixteen_bit_experts = True
    if not options.get("enable_expert_parallel"):
        options.pop("enable_expert_parallel", None)
    if config.get("in_process"):
        options["host"] = {"request_before": 0.0, "request_after": 0.0}


def _kv_type(config: Mapping[str, Any]) -> str | None:
    """The type of the KV cache, where it is stated. Raises ScenarioError for a type that can't be simulated."""
    found: dict[str, str] = {}
    for key in KV_TYPE:
        if config.get(key) is None:
            continue
        said = str(config[key]).lower().removeprefix("torch.")
        if said not in KV_TYPES:
            raise ScenarioError(f"{key}: unknown type of KV cache (got '{config[key]}'){or_known(said, KV_TYPES)}")
        found[key] = KV_TYPES[said]
    if len(set(found.values())) > 1:
        said = " and ".join(f"{key}: {config[key]}" for key in found)
        raise ScenarioError(f"{said} contradict each other; state one")
    return next(iter(found.values()), None)


def _experts(config: Mapping[str, Any]) -> int:
    """GPUs that the experts are spread over, whole; 0 where they are not."""
    stated = max(int(config.get(key) or 0) for key in ("ep", "moe_ep_size", "expert_parallel_size"))
    return stated if stated > 1 else 0


def _is_moe(network: str) -> bool:
    from llmqsim.hardware.model import model

    return bool(model(network).experts)


def _pool(options: dict[str, Any], config: Mapping[str, Any]) -> None:
    """The KV pool in whatever unit it is stated; blocks win."""
    if "num_gpu_blocks_override" in options:
        return
    if config.get("kv_tokens"):
        options["num_gpu_blocks_override"] = int(config["kv_tokens"]) // int(options.get("block_size", 16))
    elif config.get("kv_gib_per_gpu"):
        options["kv_cache_memory_bytes"] = int(float(config["kv_gib_per_gpu"]) * 2**30)
    elif share := re.search(r"0?\.\d+|1\.0", str(config.get("kv_free_mem_fraction", ""))):
        options["gpu_memory_utilization"] = float(share[0])


def _known_gpu(made: Servers, card: str) -> None:
    """A GPU whose kernels nobody timed is outside the envelope."""
    timed = {name for device in read_preset("devices.yaml")["devices"].values() for name in device["presets"]}
    if card not in timed:
        made.outside.append(f"no kernel timings of {card}: datasheet figures with another GPU's efficiencies")
