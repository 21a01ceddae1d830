"""Parts of a Hugging Face `config.json` that only some families have: latent attention, experts, windows, quantisation.

Each function reads its keys, writes fields of Model into `values` and the keys they came from into `keys`, and adds a
sentence to `faults` for what is impossible or not modelled. Meanings: transformers' configuration classes, from memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
PER_TOKEN = ("num_experts_per_tok", "experts_per_token", "moe_top_k")
LATENT = ("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
WINDOWED = ("sliding_attention", "chunked_attention")
GEMMA2_PATTERN, LLAMA4_PATTERN = 2, 4
"""one layer in so many attends to everything, where the file names no pattern"""


def short(value: Any) -> str:
    """A value as a fault shows it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def whole(config: Config, names: tuple[str, ...] | str, faults: list[str], default: int = 0) -> tuple[str, int]:
    """(key, value) of the first of `names` that is set and not 0; ('', default) without one."""
    for key in (names,) if isinstance(names, str) else names:
        value = config.get(key)
        if value is None or value == 0 or value is False:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
            faults.append(f"{key}: must be a whole number from 1 on (got {short(value)})")
            return key, default
        return key, value
    return "", default


def attention(config: Config, kind: str, values: dict, keys: dict, faults: list[str]) -> None:
    """Head sizes, and DeepSeek's multi-head latent attention."""
    values["kv_heads"] = values["kv_heads"] or values["heads"]
    values["head_dim"] = values["head_dim"] or (values["hidden"] // values["heads"] if values["heads"] else 0)
    values["attention_sinks"] = kind == "gpt_oss"
    keys["kv_lora_rank"], values["kv_lora_rank"] = whole(config, "kv_lora_rank", faults)
    if not values["kv_lora_rank"]:
        del keys["kv_lora_rank"]
        return
    for name in LATENT:
        keys[name], values[name] = whole(config, name, faults)
        if not values[name] and name != "q_lora_rank":
            faults.append(f"{name}: missing from the config.json, which has kv_lora_rank")
    values["head_dim"] = values["qk_nope_head_dim"] + values["qk_rope_head_dim"]
    keys["head_dim"] = "qk_nope_head_dim + qk_rope_head_dim"


def experts(config: Config, kind: str, values: dict, keys: dict, faults: list[str]) -> None:
    """Routed and shared experts, and which layers have them."""
    keys["experts"], count = whole(config, EXPERTS, faults)
    if not count:
        del keys["experts"]
        return
    values["experts"] = count
    keys["experts_per_token"], chosen = whole(config, PER_TOKEN, faults)
    values["experts_per_token"] = chosen
    if not 1 <= chosen <= count:
        faults.append(f"num_experts_per_tok: must be from 1 to {keys['experts']} {count} (got {chosen or 'nothing'})")
    keys["moe_intermediate"], width = whole(config, "moe_intermediate_size", faults, values["intermediate"])
    values["moe_intermediate"], keys["moe_intermediate"] = width, keys["moe_intermediate"] or keys["intermediate"]
    values["router_bias"] = kind == "gpt_oss" or config.get("topk_method") == "noaux_tc"
    _shared_experts(config, kind, values, keys, faults)
    values["dense_layers"] = _dense_layers(config, values["layers"], faults)
    keys["dense_layers"] = "layer pattern"


def _shared_experts(config: Config, kind: str, values: dict, keys: dict, faults: list[str]) -> None:
    if kind == "llama4_text":
        # one shared expert as wide as a routed one; the dense layers have a width of their own
        values["shared_intermediate"] = values["moe_intermediate"]
        keys["shared_intermediate"] = "model_type llama4_text"
        keys["intermediate"], dense = whole(config, "intermediate_size_mlp", faults, values["intermediate"])
        values["intermediate"] = dense
        return
    key, width = whole(config, "shared_expert_intermediate_size", faults)
    if width:
        values["shared_gate"] = True
    else:
        key, count = whole(config, ("n_shared_experts", "num_shared_experts"), faults)
        width = count * values["moe_intermediate"]
    if width:
        values["shared_intermediate"], keys["shared_intermediate"] = width, key


def _dense_layers(config: Config, layers: int, faults: list[str]) -> int:
    """Layers whose MLP is dense: the first k, those listed, and those that a stride leaves out."""
    _, first = whole(config, "first_k_dense_replace", faults)
    _, step = whole(config, ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq"), faults, 1)
    listed = config.get("mlp_only_layers") or ()
    if not isinstance(listed, (list, tuple)):
        faults.append(f"mlp_only_layers: must be a list of layers (got {short(listed)})")
        listed = ()
    sparse = [i for i in range(first, layers) if i not in listed and (i + 1) % step == 0]
    if layers and not sparse:
        faults.append(f"first_k_dense_replace: leaves no layer with experts (got {first} of {layers})")
    return layers - len(sparse)


def windows(config: Config, kind: str, values: dict, keys: dict, faults: list[str]) -> None:
    """Sliding or chunked windows, in all layers or in those of a pattern."""
    key, window = whole(config, ("sliding_window", "attention_chunk_size"), faults)
    if not window or config.get("use_sliding_window") is False or window >= values["max_position_embeddings"]:
        return
    windowed, why = _windowed_layers(config, kind, values["layers"], faults)
    if windowed:
        values["sliding_window"], keys["sliding_window"] = window, key
        values["windowed_layers"], keys["windowed_layers"] = windowed, why


def _windowed_layers(config: Config, kind: str, layers: int, faults: list[str]) -> tuple[int, str]:
    """Layers with a window and the key that says so."""
    types = config.get("layer_types")
    if isinstance(types, (list, tuple)):
        if len(types) != layers:
            faults.append(f"layer_types: must name {layers} layers (got {len(types)})")
        return sum(name in WINDOWED for name in types), "layer_types"
    if kind == "gemma2":
        return layers - layers // GEMMA2_PATTERN, "every other layer of gemma2"
    if kind == "llama4_text":
        key, step = whole(config, "no_rope_layer_interval", faults, LLAMA4_PATTERN)
        return layers - layers // step, key or "model_type llama4_text"
    key, step = whole(config, "sliding_window_pattern", faults)
    if step:
        return layers - layers // step, key
    if kind.startswith("qwen"):
        key, full = whole(config, "max_window_layers", faults, layers)
        return max(0, layers - full), key or "max_window_layers"
    return layers, "sliding_window"


def weight_types(config: Config, kind: str, values: dict, keys: dict, faults: list[str]) -> None:
    """`quantization_config`: which of the modelled types the weights are stored in."""
    rule = config.get("quantization_config")
    if not rule:
        return
    dtype = _weight_dtype(rule) if isinstance(rule, Mapping) else None
    if dtype is None:
        faults.append(
            f"quantization_config: these quantised weights are not modelled (got {short(rule)}); modelled: fp8 (per "
            "tensor, per channel or 128 x 128 blocks), 4-bit awq or gptq, mxfp4"
        )
        return
    values["weight_dtype"], keys["weight_dtype"] = dtype, "quantization_config"
    left = rule.get("ignore") or rule.get("modules_to_not_convert") or ()
    if dtype != "mxfp4" and any("self_attn" in str(name) for name in left):
        values["attention_dtype"], keys["attention_dtype"] = "bfloat16", "quantization_config: modules left out"


def _weight_dtype(rule: Mapping[str, Any]) -> str | None:
    method = str(rule.get("quant_method", "")).lower()
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8_block" if rule.get("weight_block_size") else "fp8"
    if method in ("awq", "gptq", "gptq_marlin", "awq_marlin"):
        return "int4" if rule.get("bits", rule.get("w_bit", 4)) == 4 else None
    if method == "mxfp4":
        return "mxfp4"
    if method == "modelopt":
        algorithm = str(rule.get("quant_algo") or (rule.get("quantization") or {}).get("quant_algo") or "").upper()
        return {"FP8": "fp8", "W4A16_AWQ": "int4"}.get(algorithm)
    if method == "compressed-tensors":
        return _compressed(rule)
    return None


def _compressed(rule: Mapping[str, Any]) -> str | None:
    groups = rule.get("config_groups") or {}
    weights = next((g.get("weights") or {} for g in groups.values() if isinstance(g, Mapping)), {})
    bits, kind = weights.get("num_bits"), weights.get("type", "int")
    if (bits, kind) == (8, "float"):
        return "fp8_block" if weights.get("strategy") == "block" else "fp8"
    return "int4" if (bits, kind) == (4, "int") else None
