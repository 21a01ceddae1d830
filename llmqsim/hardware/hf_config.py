"""Reading a Hugging Face `config.json` of a decoder-only transformer. The names are those of that file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmqsim.errors import ScenarioError, did_you_mean
from llmqsim.hardware.hf_defaults import completed
from llmqsim.hardware.hf_extra import extra_parts
from llmqsim.hardware.hf_families import DENSE, KNOWN_TYPES, encoder, family
from llmqsim.hardware.hf_file import miscounted, read_file, refused
from llmqsim.hardware.hf_layers import LISTED
from llmqsim.hardware.hf_mixers import adjusted_width, mixers
from llmqsim.hardware.hf_parts import attention, experts, index_keys, short, whole, windows
from llmqsim.hardware.hf_quantized import beside, named_type, weight_types
from llmqsim.hardware.hf_towers import read_tower, tower_keys
from llmqsim.hardware.hf_unmodelled import Unmodelled, not_understood, unmodelled
from llmqsim.hardware.model import Model

SPELLINGS: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads", "num_attention_groups"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "intermediate": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocab": ("vocab_size",),
    "max_position_embeddings": (
        "max_position_embeddings", "n_positions", "max_sequence_length", "model_max_length", "max_seq_len", "seq_length",
    ),
}
"""each dimension and the keys that families use for it"""
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
"""keys under which models with towers keep their language model"""
GATED_ACTS = ("silu", "swish", "swiglu", "swigluoai", "gelu_pytorch_tanh")
"""activations of gated MLPs, in families that are not in UNGATED"""
MOST_LAYERS = 100_000
"""layers are looked at one by one"""
REQUIRED = ("hidden", "layers", "heads", "intermediate", "vocab", "max_position_embeddings")
OUTER = ("quantization_config", "torch_dtype", "dtype", "tie_word_embeddings", "_name_or_path")
"""keys that a model with a nested `text_config` keeps outside of it"""

LAYER_NORM = frozenset({"opt", "gpt2", "gpt_neox", "gptj", "bloom", "phi", "starcoder2"})
UNGATED = LAYER_NORM
ALL_BIASES = frozenset({"opt", "gpt2", "gpt_neox", "bloom", "phi", "starcoder2"})
QKV_BIAS = frozenset({"qwen2", "qwen2_moe"})
QK_NORM = frozenset({"qwen3", "qwen3_moe"})
"""families by their own keys; norms of the others are below 0.01 % of the parameters"""
TIED_BY_DEFAULT = frozenset({
    "opt", "gpt2", "bloom", "gemma", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "lfm2", "cohere",
    "cohere2", "ernie4_5", "ernie4_5_moe", "lfm2_moe", "smollm3", "starcoder2",
})
OPT_POSITION_OFFSET = 2
"""OPT's position table has two rows more than positions (transformers, modeling_opt.py, from memory)"""


def model_from_config(config: Mapping[str, Any] | str | Path, architecture: str | None = None) -> Model:
    """The model that a `config.json` (a mapping or the path of a file) describes.

    architecture : read the file as this known family instead of by its model_type, or as "dense", a plain transformer;
    the model's `unmodelled` says so. A missing num_key_value_heads means one per attention head, a missing head_dim
    hidden_size / heads, a missing tie_word_embeddings the family's default. Of a model with `text_config` the language
    model is read; towers count in the weights. float32 weights are served as bfloat16, as vLLM's `dtype: auto` does.
    What the file says and is not modelled is in the model's `unmodelled`.
    Raises ScenarioError for an unreadable file, a missing or impossible dimension (all at once), for a family, an
    attention key or a kind of layer that is not known, and for what is not modelled, naming the key.
    """
    if isinstance(config, Mapping):
        return from_mapping(config, name=_name(config, "model"), source="the given mapping", architecture=architecture)
    path = Path(config)
    content = read_file(path)
    if not content.get("quantization_config") and (told := beside(path)):
        content = {**content, "quantization_config": told}
    folder = path.parent.name if path.stem == "config" else ""  # the name that tells models apart
    name = _name(content, folder or path.stem)
    return from_mapping(content, name=name, source=str(path), place=f"{path}: ", architecture=architecture)


def from_mapping(
    config: Mapping[str, Any],
    *,
    name: str,
    source: str,
    place: str = "",
    architecture: str | None = None,
    settled: bool = False,
) -> Model:
    """Build a Model from the keys of a config.json. `place` goes in front of every fault.

    settled : somebody who knew wrote these keys (a preset), so that the family need not be known.
    """
    outer, config = config, _language_part(config)
    if (told := encoder(outer) or encoder(config)) is not None:
        raise ScenarioError(f"{place}{told}; give a decoder-only model")
    kind, unknown = family(config, outer)
    read_as = kind if kind and not (config.get("model_type") or outer.get("model_type")) else ""
    if architecture is not None:
        kind = read_as = _asked(architecture, place)
    elif unknown and not settled:
        raise ScenarioError(place + unknown)
    dense = read_as == DENSE
    config, taken, uneven = completed(config, kind, nested=config is not outer)
    values, keys, faults = _values(config, kind, dense)
    faults = [*uneven, *(one for one in faults if one.partition(":")[0] not in {told.partition(":")[0] for told in uneven})]
    odd = [] if dense or settled or read_as else not_understood(config)
    if faults or odd:
        raise ScenarioError(*(place + fault for fault in dict.fromkeys([*faults, *odd])))
    missing = _type_by_name(config, name)
    if values.get("weight_dtype") == "mxfp4" and not values.get("experts"):
        told = "mxfp4 is modelled for experts alone, and this model has none: weights count in 16 bits, so they are too large"
        missing += (Unmodelled("quantization_config", told),)
    if taken:
        missing += (Unmodelled("text_config", f"leaves out what its family's class says; taken: {', '.join(taken)}"),)
    built = (read_tower(outer, key, values["hidden"]) for key in tower_keys(outer) if not dense)
    towers = tuple(one for one in built if one is not None)
    model = Model(
        name=name,
        gated=_gated(config, kind),
        tied_embeddings=bool(_tied(config, outer, kind)),
        norm_vectors=2 if kind in LAYER_NORM else 1,
        qkv_bias=kind in ALL_BIASES | QKV_BIAS or bool(config.get("attention_bias", False)),
        output_bias=kind in ALL_BIASES or bool(config.get("attention_bias", False)),
        mlp_bias=kind in ALL_BIASES | {"gpt_oss"} or bool(config.get("mlp_bias", False)),
        qk_norm=kind in QK_NORM,
        position_rows=_position_rows(kind, values["max_position_embeddings"]),
        sources={field: f"{source}: {key}" if key else f"{source}: derived" for field, key in keys.items()},
        unmodelled=(
            *missing,
            *unmodelled(config, outer, values["layers"], values["hidden"], read_as=read_as, dense=dense),
        ),
        towers=towers,
        extra=() if dense else extra_parts(config, kind, values, towers),
        **values,
    )
    if not model.kv_lora_rank and not model.mixers and model.heads % model.kv_heads:
        raise ScenarioError(
            f"{place}num_key_value_heads: must divide num_attention_heads {model.heads} (got {model.kv_heads})"
        )
    return model


def _asked(architecture: str, place: str) -> str:
    if architecture != DENSE and architecture not in KNOWN_TYPES:
        raise ScenarioError(
            f"{place}architecture: not known (got '{architecture}'){did_you_mean(architecture, [DENSE, *KNOWN_TYPES])}; "
            f"'{DENSE}' reads the file as a plain transformer"
        )
    return architecture


def _values(config: Mapping[str, Any], kind: str, dense: bool) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Fields of Model, the keys that they came from, and what is wrong with the file."""
    faults = [*refused(config), *miscounted(config)]
    found = {field: _dimension(config, kind, field, faults) for field in SPELLINGS}
    values: dict[str, Any] = {field: value for field, (_, value) in found.items()}
    keys = {field: key for field, (key, _) in found.items()}
    if kind == "minimax_m3" and (wide := config.get("dense_intermediate_size")):
        values["intermediate"], keys["intermediate"] = wide, "dense_intermediate_size"
    if config.get("use_double_wide_mlp") and isinstance(config.get("num_kv_shared_layers"), int):
        values["wide_layers"], keys["wide_layers"] = config["num_kv_shared_layers"], "use_double_wide_mlp"
    if kind == "lfm2":
        values["intermediate"] = adjusted_width(config, values["intermediate"])
    if kind == "granitemoehybrid" and not config.get("num_local_experts"):
        values["intermediate"] = config.get("shared_intermediate_size") or values["intermediate"]
    parts = (attention, experts, weight_types) if dense else (attention, index_keys, experts, windows, mixers, weight_types)
    for part in parts:
        part(config, kind, values, keys, faults)
    return values, keys, faults


def _gated(config: Mapping[str, Any], kind: str) -> bool:
    if kind.startswith("gemma"):  # whatever its activation is called
        return True
    act = config.get("hidden_act") or config.get("mlp_hidden_act") or "silu"
    return kind not in UNGATED and str(act) in GATED_ACTS


def _tied(config: Mapping[str, Any], outer: Mapping[str, Any], kind: str) -> bool:
    for place in (config, outer):
        for key in ("tie_word_embeddings", "tie_embedding"):
            if place.get(key) is not None:
                return bool(place[key])
    return kind in TIED_BY_DEFAULT


def _type_by_name(config: Mapping[str, Any], name: str) -> tuple[Unmodelled, ...]:
    """A checkpoint whose name states a type that its config.json does not."""
    told = named_type(name)
    if not told or config.get("quantization_config") or config.get("compression_config"):
        return ()
    effect = (
        f"absent, though the name says {told}: weights count in 16 bits, so they are too large and too few requests fit "
        "(engine.quantization states the type)"
    )
    return (Unmodelled("quantization_config", effect),)


def _language_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys of the language model: a nested `text_config` with what stands outside of it."""
    nested = next((config[key] for key in NESTED if isinstance(config.get(key), Mapping)), None)
    if nested is None:
        return config
    if isinstance(inner := nested.get("text_config"), Mapping):
        nested = {**{key: nested[key] for key in OUTER if nested.get(key) is not None}, **inner}
    outer = {key: config[key] for key in OUTER if config.get(key) is not None}
    return outer | {key: value for key, value in nested.items() if value is not None}


def _name(config: Mapping[str, Any], otherwise: str) -> str:
    return str(config.get("_name_or_path") or otherwise)


def _dimension(config: Mapping[str, Any], kind: str, field: str, faults: list[str]) -> tuple[str, int]:
    """The key in use and its value; ('', 0) where it is absent, with a fault if it must not be."""
    for key in SPELLINGS[field]:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
            faults.append(f"{key}: must be a whole number from 1 on (got {short(value)})")
            return key, 0
        if field == "layers" and value > MOST_LAYERS:
            faults.append(f"{key}: must be at most {MOST_LAYERS:,} (got {value:,})")
            return key, 0
        return key, value
    if field == "intermediate" and kind in ("gpt2", "gptj", "bloom"):
        return "", 4 * whole(config, ("n_embd", "hidden_size"), faults)[1]
    if field == "layers" and any(isinstance(config.get(key), (list, tuple)) for key in LISTED):
        return "", 0  # as many as are listed
    if field == "intermediate" and config.get("moe_intermediate_size") and not config.get("first_k_dense_replace"):
        return "moe_intermediate_size", int(whole(config, "moe_intermediate_size", faults)[1])
    if field in REQUIRED:
        near = did_you_mean(SPELLINGS[field][0], [k for k in config if isinstance(k, str)])
        faults.append(f"{SPELLINGS[field][0]}: missing from the config.json{near}")
    return "", 0


def _position_rows(kind: str, longest: int) -> int:
    if kind == "opt":
        return longest + OPT_POSITION_OFFSET
    return longest if kind == "gpt2" else 0
