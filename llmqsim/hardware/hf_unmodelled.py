"""What a Hugging Face `config.json` says and this simulator does not model, each with its consequence.

A key that is known and not modelled has a sentence of its own, with the factor where the file gives it. A key that is
not known, but whose name is about attention, state or cache, and a family that is not known, are said, too: such a
model is read as a plain transformer. Meanings: transformers' and the models' own configuration classes, from memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Config = Mapping[str, Any]

FAMILY, TOWER = "model_type", "vision_config"
ATTENDING = ("full_attention", "sliding_attention", "chunked_attention")
"""entries of `layer_types` that keep keys and values"""
KNOWN_TYPES = frozenset({
    "apertus", "arcee", "baichuan", "bloom", "cohere", "cohere2", "deepseek_v2", "deepseek_v3", "ernie4_5",
    "ernie4_5_moe", "exaone4", "gemma", "gemma2", "gemma3", "gemma3_text", "glm", "glm4", "glm4_moe", "gpt2",
    "gpt_neox", "gpt_oss", "gptj", "granite", "granitemoe", "internlm2", "internlm3", "kimi_k2", "llama", "llama4",
    "llama4_text", "minimax_m2", "ministral3", "mistral", "mistral3", "mixtral", "olmo", "olmo2", "olmo3", "olmoe",
    "opt", "phi", "phi3", "qwen2", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen3",
    "qwen3_moe", "qwen3_vl", "qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_vl_text", "seed_oss", "smollm3", "stablelm",
    "starcoder2",
})  # fmt: skip
"""families whose attention and MLP are what the dimensions of the file say, as far as they are read here"""
ENCODERS = frozenset({
    "albert", "bart", "bert", "bigbird_pegasus", "blenderbot", "camembert", "clip", "deberta", "deberta-v2",
    "distilbert", "electra", "ernie", "esm", "hubert", "jina_bert", "layoutlm", "longformer", "longt5", "luke",
    "marian", "mbart", "modernbert", "mpnet", "mt5", "nomic_bert", "pegasus", "roberta", "seamless_m4t", "siglip",
    "speech_to_text", "t5", "umt5", "vit", "wav2vec2", "whisper", "xlm-roberta", "xlnet",
})  # fmt: skip
"""families without a decoder, or with an encoder before it"""
MASKED = ("ForMaskedLM", "ForPreTraining")
"""ends of `architectures` of models that fill gaps and generate nothing"""

_TELLING = re.compile(
    r"attn|attention|ssm|mamba|rwkv|retention|recurren|conv_|linear_|_linear|state_size|window|sparse|sparsity|^index|"
    r"hybrid|head_dim|key_value|(?:^|_)kv(?:_|$)|latent|compress|layer_types|block_type|shared_layers|(?:^|_)swa(?:_|$)"
)
"""names of keys that are about how tokens attend and what of them is kept"""
_HARMLESS = re.compile(
    r"dropout|pdrop|implementation|softcap|multiplier|scal(?:e|ing|ar)|bias|fp32|dtype|temperature|bidirectional|rope|"
    r"^num_attention_heads$|^decoder_sparse_step$|^num_key_value_heads$|^head_dim$|^kv_lora_rank$|"
    r"^sliding_window$|^sliding_window_pattern$|^sliding_window_size$|"
    r"^use_sliding_window$|^max_window_layers$|^attention_chunk_size$|^layer_types$|^v_head_dim$|^qk_\w*head_dim$|"
    r"^kv_cache|_id$|^quantization|^rms_|layer_norm|^vision|^audio|^initializer"
)
"""those of them that are read, or change neither bytes nor work"""


@dataclass(frozen=True)
class Unmodelled:
    """A key of a config.json and what follows from not modelling it: one clause, with its direction."""

    key: str
    effect: str


def encoder(config: Config) -> str | None:
    """The key and value that say that the model has no decoder, or an encoder before it; None for a decoder."""
    kind = str(config.get("model_type", ""))
    if kind in ENCODERS:
        return f"model_type: encoders are not modelled (got '{kind}')"
    if config.get("is_encoder_decoder"):
        return "is_encoder_decoder: encoders are not modelled (got true)"
    named = config.get("architectures")
    for name in named if isinstance(named, (list, tuple)) else ():
        if str(name).endswith(MASKED):
            return f"architectures: models that fill masks generate nothing (got '{name}')"
    return None


def unmodelled(config: Config, outer: Config, layers: int) -> tuple[Unmodelled, ...]:
    """What of the model is not modelled, gravest first. config : keys of the language model; outer : of the file."""
    found: dict[str, Unmodelled] = {}
    for key, (says, effect) in _KNOWN.items():
        value = config.get(key)
        if value and says(value, config):
            text = effect if isinstance(effect, str) else effect(value, config, layers)
            if text and not any(one.effect == text for one in found.values()):
                found[key] = Unmodelled(key, text)
    return (*found.values(), *_unknown(config), *_family(config, outer), *_towers(outer))


def _unknown(config: Config) -> tuple[Unmodelled, ...]:
    """Keys that nobody here knows and whose names are about attention, state or cache, together."""
    keys = [
        key
        for key, value in config.items()
        if isinstance(key, str) and key not in _KNOWN and value and _TELLING.search(key) and not _HARMLESS.search(key)
    ]
    if not keys:
        return ()
    told = "unknown here; attention is taken as plain, which may err either way"
    return (Unmodelled(", ".join(keys), told),)


def _family(config: Config, outer: Config) -> tuple[Unmodelled, ...]:
    kind = config.get("model_type") or outer.get("model_type")
    if kind in KNOWN_TYPES:
        return ()
    told = f"'{kind}' is not known here" if kind else "the file has none"
    return (Unmodelled(FAMILY, f"{told}; the model is read as a plain transformer, which may err either way"),)


def _towers(outer: Config) -> tuple[Unmodelled, ...]:
    towers = [key for key in (TOWER, "audio_config") if outer.get(key)]
    if not towers:
        return ()
    told = "the tower is left out: its memory goes to KV, so too many requests fit, and encoding takes no time"
    return (Unmodelled(TOWER if TOWER in towers else towers[0], told),)


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
    return (
        f"sparse attention reads {some}; dense here, so long contexts are too slow, and the indexer's KV is not counted"
    )


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
