"""Parts of a Hugging Face `config.json` that only some families have: latent attention, index keys, experts, windows.

Each function reads its keys, writes fields of Model into `values` and the keys they came from into `keys`, and adds a
sentence to `faults` for what is impossible or not modelled. Meanings: transformers' configuration classes, from memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqsim.hardware.hf_layers import listed_layers

Config = Mapping[str, Any]

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
PER_TOKEN = (
    "num_experts_per_tok", "experts_per_token", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k", "moe_k",
)  # fmt: skip
SHARED_WIDTH = ("moe_shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim")
SHARED_COUNT = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
LATENT = ("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
WINDOWS = ("sliding_window", "sliding_window_size", "window_size", "attention_chunk_size")
MOE_LISTS = ("moe_layer_freq", "is_moe_layer", "mlp_layer_types")
"""lists of which layers have experts, one entry a layer"""
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


def index_keys(config: Config, kind: str, values: dict, keys: dict, faults: list[str]) -> None:
    """Index keys of sparse attention, which every token keeps beside its KV: DeepSeek's in all layers, MiniMax's in some."""
    sparse = config.get("sparse_attention_config")
    if isinstance(sparse, Mapping) and sparse.get("use_sparse_attention", True):
        width, listed = sparse.get("sparse_index_dim"), sparse.get("sparse_attention_freq")
        heads = sparse.get("sparse_num_index_heads") or 1
        count = sum(bool(one) for one in listed) if isinstance(listed, (list, tuple)) else values["layers"]
        key = "sparse_attention_config"
    elif config.get("index_topk"):
        width, heads, count, key = config.get("index_head_dim"), config.get("index_n_heads") or 1, values["layers"], "index_topk"
    else:
        return
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        faults.append(f"{key}: sparse attention without the width of its index keys (index_head_dim)")
        return
    values |= {"index_width": width, "index_heads": heads, "index_layers": count}
    keys |= {"index_width": key, "index_layers": key}


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
    keys["moe_intermediate"], width = whole(
        config, ("moe_intermediate_size", "expert_intermediate_size"), faults, values["intermediate"]
    )
    values["moe_intermediate"], keys["moe_intermediate"] = width, keys["moe_intermediate"] or keys["intermediate"]
    key, latent = whole(config, "moe_latent_size", faults)
    if latent:
        values["expert_hidden"], keys["expert_hidden"] = latent, key
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
    if kind.startswith("gemma4"):  # a dense MLP beside the experts of every layer
        values["shared_intermediate"], keys["shared_intermediate"] = values["intermediate"], "enable_moe_block"
        return
    key, width = whole(config, "shared_expert_intermediate_size", faults)
    if width:
        values["shared_gate"] = True
    else:
        key, width = whole(config, SHARED_WIDTH, faults)
    if not width:
        key, count = whole(config, SHARED_COUNT, faults)
        width = count * values["moe_intermediate"]
    if width:
        values["shared_intermediate"], keys["shared_intermediate"] = width, key


def _dense_layers(config: Config, layers: int, faults: list[str]) -> int:
    """Layers whose MLP is dense: the first k, those listed, and those that a stride leaves out."""
    for key in MOE_LISTS:
        if not isinstance(listed := config.get(key), (list, tuple)):
            continue
        if len(listed) != layers:
            faults.append(f"{key}: must name {layers} layers (got {len(listed)})")
        return sum(one in (0, False, "dense") for one in listed)
    if isinstance(named := config.get("moe_layers_enum"), str):  # "3,4,5": Step
        numbers = {int(one) for one in named.split(",") if one.strip().isdecimal()}
        return sum(i not in numbers for i in range(layers))
    _, first = whole(config, ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"), faults)
    _, step = whole(config, ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", "moe_layer_freq"), faults, 1)
    listed = config.get("mlp_only_layers") or ()
    if not isinstance(listed, (list, tuple)):
        faults.append(f"mlp_only_layers: must be a list of layers (got {short(listed)})")
        listed = ()
    sparse = [i for i in range(first, layers) if i not in listed and (i + 1) % step == 0]
    if (period := whole(config, "expert_layer_period", faults)[1]) > 1:  # Jamba
        offset = whole(config, "expert_layer_offset", faults)[1]
        sparse = [i for i in sparse if i % period == offset]
    if layers and not sparse:
        faults.append(f"first_k_dense_replace: leaves no layer with experts (got {first} of {layers})")
    return layers - len(sparse)


def windows(config: Config, kind: str, values: dict, keys: dict, faults: list[str]) -> None:
    """Sliding or chunked windows, in all layers or in those of a pattern."""
    key, window = whole(config, WINDOWS, faults)
    if not window or config.get("use_sliding_window") is False or window >= values["max_position_embeddings"]:
        return
    windowed, why = _windowed_layers(config, kind, values["layers"], faults)
    if windowed:
        values["sliding_window"], keys["sliding_window"] = window, key
        values["windowed_layers"], keys["windowed_layers"] = windowed, why


def _windowed_layers(config: Config, kind: str, layers: int, faults: list[str]) -> tuple[int, str]:
    """Layers with a window and the key that says so."""
    listed = listed_layers(config, kind, layers, faults)
    if listed is not None:
        return listed.count("window", "chunked"), listed.key
    if isinstance(config.get("layer_types"), (list, tuple)):
        return 0, "layer_types"  # the fault is told
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
