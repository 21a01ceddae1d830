"""Layers of a `config.json` that a plain transformer lacks, as mixers: states, heads by kind of layer, shared KV.

`mixers` is given what the plain reading made of the file and writes `mixers`, and the counts of layers that follow, only
where plain attention in every layer would be wrong. State sizes: mechanisms of vLLM's state cache, checked against the
block sizes that servers print; matrices: the models' published code, from memory, checked against parameter counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqsim.hardware import mixers as made
from llmqsim.hardware.hf_layers import STATES, Layers, listed_layers
from llmqsim.hardware.hf_parts import WINDOWS
from llmqsim.hardware.mixers import Mixer

Config = Mapping[str, Any]

GATED = frozenset({"qwen3_next"})
"""families whose attention has an output gate without saying so"""
OWN_HEADS = (
    "global_head_dim",
    "num_global_key_value_heads",
    "swa_head_dim",
    "swa_num_key_value_heads",
    "swa_num_attention_heads",
)
"""keys by which windowed and full layers differ in their heads"""
WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
LFM_MULTIPLE = 256


def mixers(config: Config, kind: str, values: dict, keys: dict, faults: list[str]) -> None:
    """Fill in `mixers`, `layers` (those that mix), `bare_layers` and `dense_layers` where layers are not all alike."""
    layers = listed_layers(config, kind, values["layers"], faults)
    if layers is not None and not values["layers"]:
        values["layers"], keys["layers"] = len(layers.kinds), layers.key
    gated = kind in GATED or bool(config.get("attn_output_gate") or config.get("attention_output_gate"))
    shares = _shares(config, values["layers"])
    special = gated or shares or any(config.get(key) for key in OWN_HEADS) or config.get("attention_k_eq_v")
    if config.get("v_head_dim") and not values.get("kv_lora_rank"):
        special = special or config["v_head_dim"] != values["head_dim"]
    states = layers is not None and layers.count(*STATES, "both", "moe", "mlp") > 0
    if faults or not (special or states):
        return
    if layers is None and _window(config) and any(config.get(key) for key in OWN_HEADS):
        told = "layer_types: missing from the config.json, whose windowed layers have heads of their own"
        faults.append(told)
        return
    listed = layers or Layers(("full",) * values["layers"], "num_hidden_layers")
    before = len(faults)
    found = [*_attention(config, kind, values, listed, gated, shares), *_states(config, kind, values, listed, faults)]
    if len(faults) > before:
        return
    if not any(one.kind != "state" for one in found):
        faults.append(
            f"{listed.key}: no layer keeps keys and values (got {len(listed.kinds)} layers of states alone); pure "
            "state-space models are not modelled, a hybrid such as nemotron_h is"
        )
        return
    values["mixers"] = tuple(one for one in found if one.layers)
    keys["mixers"] = listed.key
    values.pop("sliding_window", None)
    values.pop("windowed_layers", None)
    _mlps(values, keys, listed)


def _mlps(values: dict, keys: dict, layers: Layers) -> None:
    """Counts where layers that mix and layers with an MLP are listed apart (Nemotron)."""
    mixing, experts, plain = layers.mixing, layers.count("moe"), layers.count("mlp")
    if not experts + plain:
        return
    values["layers"], values["bare_layers"] = mixing, mixing - experts - plain
    keys["layers"] = keys["bare_layers"] = layers.key
    if values.get("experts"):
        values["dense_layers"] = mixing - experts
        keys["dense_layers"] = layers.key


def _shares(config: Config, layers: int) -> int:
    """Layers, from the last one back, or one of so many, that use the KV of others."""
    shared = config.get("num_kv_shared_layers")
    if isinstance(shared, int) and 0 < shared < layers:
        return shared
    factor = config.get("cla_share_factor") or 2
    return layers - layers // factor if config.get("use_cla") and isinstance(factor, int) and factor > 1 else 0


def _attention(config: Config, kind: str, values: dict, layers: Layers, gated: bool, shares: int) -> list[Mixer]:
    """Layers of attention: by kind, and whether they keep KV of their own."""
    if values.get("kv_lora_rank"):
        ranks = (values.get("q_lora_rank", 0), values["kv_lora_rank"])
        dims = (values["qk_nope_head_dim"], values["qk_rope_head_dim"], values["v_head_dim"])
        return [made.latent_attention(layers.count("full"), values["hidden"], values["heads"], ranks, dims)]
    kinds = list(layers.kinds)
    if config.get("use_cla"):
        factor = config.get("cla_share_factor") or 2
        own = {i for i in range(len(kinds)) if i % factor == 0}
    else:
        own = set(range(len(kinds) - shares))
    found = []
    for name in ("full", "window", "chunked", "both"):
        for shared in (False, True):
            count = sum(word == name and (i not in own) == shared for i, word in enumerate(kinds))
            if count:
                found.append(_one(config, kind, values, name, count, gated, shared))
    return found


def _one(config: Config, kind: str, values: dict, name: str, count: int, gated: bool, shared: bool) -> Mixer:
    """Attention of one kind with its own heads, where the file gives them."""
    heads, kv_heads, size = values["heads"], values["kv_heads"], values["head_dim"]
    value = 0 if values.get("kv_lora_rank") else config.get("v_head_dim") or 0
    one_matrix = False
    if name in ("full", "both") and (config.get("global_head_dim") or config.get("num_global_key_value_heads")):
        size, kv_heads = config.get("global_head_dim") or size, config.get("num_global_key_value_heads") or kv_heads
        one_matrix = bool(config.get("attention_k_eq_v"))
    if name == "window":
        heads = config.get("swa_num_attention_heads") or heads
        kv_heads = config.get("swa_num_key_value_heads") or kv_heads
        size = config.get("swa_head_dim") or size
        value = config.get("swa_v_head_dim") or value
    window = 0 if name in ("full", "both") else _window(config)
    vectors = 2 * size
    if config.get("attention_bias"):
        vectors += (heads + 2 * kv_heads) * size
    return made.attention(
        count, values["hidden"], heads, kv_heads, size, value, kind="full" if name == "both" else name, window=window,
        gated=gated, one_matrix=one_matrix, shared=shared, vectors=vectors,
    )  # fmt: skip


def _window(config: Config) -> int:
    for key in WINDOWS:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def _states(config: Config, kind: str, values: dict, layers: Layers, faults: list[str]) -> list[Mixer]:
    """Layers with a state of fixed size."""
    found = []
    if count := layers.count("linear"):
        found.append(_linear(config, values, count, faults))
    if count := layers.count("mamba", "both"):
        found.append(_mamba(config, values, count, faults))
    if count := layers.count("conv"):
        wide, kernel = config.get("conv_dim") or values["hidden"], config.get("conv_L_cache")
        if not isinstance(kernel, int):
            faults.append("conv_L_cache: missing from the config.json, whose layer_types name convolutions")
        else:
            found.append(made.short_convolution(count, values["hidden"], wide, kernel))
    return [one for one in found if one is not None]


def _linear(config: Config, values: dict, count: int, faults: list[str]) -> Mixer | None:
    """Linear attention, of the family whose keys the file has."""
    hidden = values["hidden"]
    delta = config.get("linear_attn_config")
    if isinstance(delta, Mapping):
        sizes = _whole(delta, ("num_heads", "head_dim", "short_conv_kernel_size"), faults, "linear_attn_config.")
        return made.kimi_delta(count, hidden, *sizes) if sizes else None
    if config.get("linear_num_value_heads"):
        names = ("linear_num_key_heads", "linear_key_head_dim", "linear_num_value_heads", "linear_value_head_dim")
        sizes = _whole(config, (*names, "linear_conv_kernel_dim"), faults)
        if not sizes:
            return None
        width = _state_width(config, ("mamba_ssm_dtype", "mamba_ssm_cache_dtype"), 2)
        key_heads, key_size, value_heads, value_size, kernel = sizes
        return made.gated_delta_net(count, hidden, (key_heads, key_size), (value_heads, value_size), kernel, width)
    if config.get("attn_type_list") or str(config.get("model_type", "")).startswith("minimax"):
        return made.lightning(count, hidden, values["heads"], values["head_dim"])
    faults.append(
        "layer_types: linear attention without the sizes of its state (linear_num_value_heads, linear_attn_config or "
        "attn_type_list); which kind it is can't be told"
    )
    return None


def _mamba(config: Config, values: dict, count: int, faults: list[str]) -> Mixer | None:
    """Mamba-2 where the file gives its heads, else Mamba."""
    hidden = values["hidden"]
    kernel = config.get("mamba_d_conv") or config.get("conv_kernel") or 4
    state = config.get("ssm_state_size") or config.get("mamba_d_state") or config.get("state_size")
    if not isinstance(state, int):
        faults.append("ssm_state_size: missing from the config.json, whose layers are state spaces")
        return None
    heads = config.get("mamba_num_heads") or config.get("mamba_n_heads")
    expand = config.get("mamba_expand") or config.get("expand") or 2
    if heads:
        size = config.get("mamba_head_dim") or config.get("mamba_d_head")
        size = size if isinstance(size, int) else expand * hidden // heads
        groups = config.get("mamba_n_groups") or config.get("n_groups") or 1
        width = _state_width(config, ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"), 2)
        return made.mamba2(count, hidden, (heads, size), groups, state, kernel, width)
    rank = config.get("mamba_dt_rank") or config.get("time_step_rank") or -(-hidden // 16)
    rank = rank if isinstance(rank, int) else -(-hidden // 16)
    inner = expand * hidden
    return made.mamba1(count, hidden, inner, state, rank, kernel, _state_width(config, ("mamba_ssm_cache_dtype",), 2))


def _state_width(config: Config, names: tuple[str, ...], otherwise: int) -> int:
    return next((WIDTHS[str(config[key])] for key in names if str(config.get(key)) in WIDTHS), otherwise)


def _whole(config: Config, names: tuple[str, ...], faults: list[str], place: str = "") -> tuple[int, ...]:
    """Whole numbers under these keys; () and a fault where one is missing."""
    bad = [key for key in names if not isinstance(config.get(key), int) or isinstance(config.get(key), bool)]
    faults.extend(f"{place}{key}: must be a whole number from 1 on (got {config.get(key)!r})" for key in bad)
    return () if bad else tuple(int(config[key]) for key in names)


def adjusted_width(config: Config, width: int) -> int:
    """Columns of LFM2's MLP, which its own rule cuts to two thirds, in multiples."""
    if not config.get("block_auto_adjust_ff_dim"):
        return width
    multiple, factor = config.get("block_multiple_of"), config.get("block_ffn_dim_multiplier")
    multiple = multiple if isinstance(multiple, int) and multiple > 0 else LFM_MULTIPLE
    cut = int((factor if isinstance(factor, (int, float)) and 0 < factor < 1e3 else 1.0) * (2 * width // 3))
    return -(-cut // multiple) * multiple
