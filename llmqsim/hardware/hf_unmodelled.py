"""What a Hugging Face `config.json` says and this simulator does not model, each with its consequence.

A key that is known and not modelled has a sentence of its own, with the factor where the file gives it. A key that is
not known, but whose name is about attention, state or cache, is refused where it says which tokens layers see or keep,
and said otherwise. With `architecture: dense` all of them are said: then every layer is plain attention. Meanings: transformers' and the models' own configuration classes, from memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llmqsim.hardware.hf_families import DENSE
from llmqsim.hardware.hf_towers import read_tower, tower_keys

Config = Mapping[str, Any]

FAMILY, TOWER = "model_type", "vision_config"
REMAINING = (
    "index_topk", "index_n_heads", "index_head_dim", "sparse_attention_config", "altup_num_inputs", "hc_mult", "compress_ratios",
)  # fmt: skip
"""keys that stay unmodelled in the families that are known"""
UNDERSTOOD = frozenset({
    "conv_L_cache", "conv_dim", "conv_dim_out", "conv_kernel", "attn_layer_period", "attn_layer_offset", "layer_group_size",
    "linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads", "linear_num_value_heads",
    "linear_value_head_dim", "mamba_chunk_size", "mamba_d_conv", "mamba_d_head", "mamba_d_state", "mamba_expand",
    "mamba_n_groups", "mamba_n_heads", "mamba_head_dim", "mamba_num_heads", "mamba_hidden_act", "mamba_norm_before_gate",
    "mamba_rms_norm", "mamba_use_mlp", "mamba_dt_rank", "mamba_d_ssm", "ssm_state_size", "state_size", "use_conv_bias",
    "mtp_hybrid_override_pattern", "mtp_layers_block_type", "indexer_rope_interleave", "swa_v_head_dim", "no_rope_layer_interval",
    "attention_head_dim", "attn_type_list", "mla_use_nope", "use_mla", "window_size", "_sliding_window_pattern",
    "no_rope_layers", "sliding_window_size", "full_attn_idxs", "attn_rotary_emb", "full_attn_mod", "mlp_layer_types", "attention_other_setting", "num_attention_groups", "use_head_wise_attn_gate", "attn_temperature_tuning",
    "use_mamba_kernels", "mamba_inner_layernorms", "activation_sparsity_pattern", "conv_use_xavier_init", "mtp_layer_types",
})  # fmt: skip
"""keys that are read where they matter"""
ATTENDING = ("full_attention", "sliding_attention", "chunked_attention")
"""entries of `layer_types` that keep keys and values"""
_TELLING = re.compile(
    r"attn|attention|ssm|mamba|rwkv|retention|recurren|conv_|linear_|_linear|state_size|window|sparse|sparsity|^index|"
    r"hybrid|head_dim|key_value|(?:^|_)kv(?:_|$)|latent|compress|layer_types|block_type|shared_layers|(?:^|_)swa(?:_|$)"
)
"""names of keys that are about how tokens attend and what of them is kept"""
_GRAVE = re.compile(r"window|sparse|^index|layer_types|block_type|hybrid|shared_layers|compress|latent|(?:^|_)swa(?:_|$)|every_n|per_layer")
"""of these, names about which tokens a layer sees and which it keeps"""
_HARMLESS = re.compile(
    r"dropout|pdrop|implementation|softcap|multiplier|scal(?:e|ing|ar)|bias|fp32|dtype|temperature|bidirectional|rope|"
    r"^num_attention_heads$|^decoder_sparse_step$|^num_key_value_heads$|^head_dim$|^kv_lora_rank$|"
    r"^sliding_window$|^sliding_window_pattern$|^sliding_window_size$|"
    r"^use_sliding_window$|^max_window_layers$|^attention_chunk_size$|^layer_types$|^v_head_dim$|^qk_\w*head_dim$|"
    r"^kv_cache|_id$|^quantization|^compression_config|layernorm|(?:alpha|beta)_factor|^rms_|layer_norm|^vision|^audio|^initializer"
)
"""those of them that are read, or change neither bytes nor work"""


@dataclass(frozen=True)
class Unmodelled:
    """A key of a config.json and what follows from not modelling it: one clause, with its direction."""

    key: str
    effect: str


def unmodelled(
    config: Config, outer: Config, layers: int, hidden: int, *, read_as: str = "", dense: bool = False
) -> tuple[Unmodelled, ...]:
    """What of the model is not modelled, gravest first. config : keys of the language model; outer : of the file.

    read_as : the architecture that a user named, or that the keys told where the file names none; dense : that is the
    plain transformer, of which no other key holds.
    """
    found: dict[str, Unmodelled] = {}
    for key, (says, effect) in _KNOWN.items():
        value = config.get(key)
        if value and (dense or key in REMAINING) and says(value, config):
            text = effect if isinstance(effect, str) else effect(value, config, layers)
            text += "" if not text or dense or effect is not _sparse else " (its index keys count in KV)"
            if text and not any(one.effect == text for one in found.values()):
                found[key] = Unmodelled(key, text)
    return (*found.values(), *_unknown(config), *_family(config, outer, read_as), *_towers(outer, hidden, dense))


def not_understood(config: Config) -> list[str]:
    """Faults: keys about windows, indices, kinds of layers or what is kept of tokens that nobody here knows."""
    return [
        f"{key}: not understood, and by its name it changes which tokens layers see or keep (got {repr(config[key])[:40]}); "
        "`architecture: dense` reads the file as a plain transformer, with a warning"
        for key in _odd_keys(config)
        if _GRAVE.search(key) and not (key.startswith("index") and config.get("index_topk"))
    ]


def _odd_keys(config: Config) -> list[str]:
    return [
        key
        for key, value in config.items()
        if isinstance(key, str)
        and value
        and key not in _KNOWN
        and key not in UNDERSTOOD
        and _TELLING.search(key)
        and not _HARMLESS.search(key)
    ]


def _unknown(config: Config) -> tuple[Unmodelled, ...]:
    """Keys that nobody here knows and whose names are about attention, state or cache, together."""
    if not (keys := _odd_keys(config)):
        return ()
    told = "unknown here; attention is taken as plain, which may err either way"
    return (Unmodelled(", ".join(keys), told),)


def _family(config: Config, outer: Config, read_as: str) -> tuple[Unmodelled, ...]:
    kind = config.get("model_type") or outer.get("model_type")
    if read_as:
        was = f"'{kind}' is" if kind else "the file has none; it is"
        plain = "a plain transformer" if read_as == DENSE else f"one of the family {read_as}"
        return (Unmodelled(FAMILY, f"{was} read as {plain}, which may err either way"),)
    if kind:
        return ()
    return (Unmodelled(FAMILY, "the file has none; the model is read as a plain transformer, which may err either way"),)


def _towers(outer: Config, hidden: int, dense: bool) -> tuple[Unmodelled, ...]:
    found = []
    for key in tower_keys(outer):
        tower = read_tower(outer, key, hidden)
        if tower is None or dense:
            why = "" if dense else ", as the file lacks its sizes"
            told = f"the tower is left out{why}: its memory goes to KV, so too many requests fit"
        else:
            told = f"the tower's {tower.parameters / 1e9:.2g} billion parameters count in the weights"
        found.append(Unmodelled(key, f"{told}; encoding takes no time here, and its tokens are prompt tokens"))
    return tuple(found)


def _always(value: Any, config: Config) -> bool:
    return True


def _other_layers(value: Any, config: Config) -> bool:
    """Does `layer_types` name a layer that is no attention?"""
    return isinstance(value, (list, tuple)) and any(kind not in ATTENDING for kind in value)


def _attending(value: Any, config: Config, layers: int) -> str:
    """All layers are taken to keep keys and values; how many do, where the pattern says so."""
    count = _count(value)
    start = "layers without a KV cache are counted as attention"
    if not count or not layers or count >= layers:
        return f"{start}: KV is too large, so too few requests run at once"
    too_large = f"KV is {layers / count:.3g} times too large, so too few requests run at once"
    return f"{start} ({count} of {layers} attend): {too_large}"


def _count(value: Any) -> int:
    """Attention layers of a pattern: '*' in "MEM*", full_attention or 1 in a list, a list under linear_attn_config."""
    if isinstance(value, str):
        return value.count("*")
    if isinstance(value, Mapping):
        value = value.get("full_attn_layers") or ()
        return len(value) if isinstance(value, (list, tuple)) else 0
    if isinstance(value, (list, tuple)):
        return sum(kind in (1, "attention", "full_attention", "sliding_attention") for kind in value)
    return 0


def _every(value: Any, config: Config, layers: int) -> str:
    """`full_attention_interval`: one layer in so many attends."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 2:
        return ""
    return _attending([1] * (layers // value), config, layers)


def _shared(value: Any, config: Config, layers: int) -> str:
    if not isinstance(value, int) or not 0 < value < layers:
        return ""
    too_large = f"KV is {layers / (layers - value):.3g} times too large, so too few requests run at once"
    return f"{value} of {layers} layers use the KV of others: {too_large}"


def _cross_layer(value: Any, config: Config, layers: int) -> str:
    factor = config.get("cla_share_factor") or 2
    return f"groups of {factor} layers share KV: KV is {factor} times too large, so too few requests run at once"


def _sparse(value: Any, config: Config, layers: int) -> str:
    keys = config.get("index_topk")
    some = f"{keys:,} keys of a context" if isinstance(keys, int) else "some keys of a context"
    return f"sparse attention reads {some}; it is priced as dense, so long contexts are too slow"


def _full_heads(value: Any, config: Config, layers: int) -> str:
    """Layers of full attention with heads of their own: is their KV wider or narrower than what is counted?"""
    counted = (config.get("num_key_value_heads") or 0) * (config.get("head_dim") or 0)
    heads = config.get("num_global_key_value_heads") or config.get("num_key_value_heads") or 0
    own = heads * (config.get("global_head_dim") or config.get("head_dim") or 0)
    start = "full-attention layers have heads of their own, and are taken to be as the windowed ones"
    if not counted or not own or own == counted:
        return f"{start}: their attention takes another time"
    side = "small, so too many" if own > counted else "large, so too few"
    return f"{start} ({own:,} columns of KV, counted {counted:,}): KV is too {side} requests run at once"


_KNOWN: dict[str, tuple[Callable[[Any, Config], bool], str | Callable[[Any, Config, int], str]]] = {
    "hybrid_override_pattern": (_always, _attending),
    "layers_block_type": (_always, _attending),
    "linear_attn_config": (_always, _attending),
    "attn_type_list": (_always, _attending),
    "layer_types": (_other_layers, _attending),
    "full_attention_interval": (_always, _every),
    "attn_layer_indices": (_always, _attending),
    "hybrid_layer_pattern": (
        _always,
        "which layers are windowed is not read: KV may be too large, so that too few run",
    ),
    "num_kv_shared_layers": (_always, _shared),
    "use_cla": (_always, _cross_layer),
    "cla_share_factor": (lambda value, config: not config.get("use_cla") and value != 1, _cross_layer),
    "index_topk": (_always, _sparse),
    "index_n_heads": (_always, _sparse),
    "index_head_dim": (_always, _sparse),
    "sparse_attention_config": (_always, _sparse),
    "compress_ratios": (
        _always,
        "the cache of older tokens is compressed: KV is too large, so too few requests run at once",
    ),
    "global_head_dim": (_always, _full_heads),
    "num_global_key_value_heads": (_always, _full_heads),
    "attention_k_eq_v": (_always, _full_heads),
    "swa_head_dim": (_always, "windowed layers have heads of their own: KV and attention are those of the full ones"),
    "swa_num_key_value_heads": (
        _always,
        "windowed layers have heads of their own: KV and attention are those of the full ones",
    ),
    "swa_num_attention_heads": (
        _always,
        "windowed layers have heads of their own: KV and attention are those of the full ones",
    ),
    "hidden_size_per_layer_input": (
        _always,
        "embeddings of each layer are left out: weights are too small, steps too short",
    ),
    "altup_num_inputs": (_always, "its extra streams are left out: weights are too small, steps too short"),
    "laurel_rank": (_always, "its extra projections are left out: weights are too small, steps too short"),
    "hc_mult": (_always, "its extra residual streams are left out: steps are too short"),
    "moe_latent_size": (_always, "experts work in a narrower latent: weights are too large, steps too long"),
    "attn_output_gate": (_always, "the gate's projection is left out: weights are too small, steps too short"),
    "attention_output_gate": (_always, "the gate's projection is left out: weights are too small, steps too short"),
}
"""key -> (does its value mean anything?, the consequence), gravest first"""
