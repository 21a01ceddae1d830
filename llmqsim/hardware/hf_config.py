"""Reading a Hugging Face `config.json` of a decoder-only transformer. The names are those of that file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmqsim.errors import ScenarioError, did_you_mean
from llmqsim.hardware.hf_parts import attention, experts, short, weight_types, windows
from llmqsim.hardware.hf_unmodelled import encoder, unmodelled
from llmqsim.hardware.model import Model

SPELLINGS: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "intermediate": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocab": ("vocab_size",),
    "max_position_embeddings": ("max_position_embeddings", "n_positions", "max_sequence_length"),
}
"""each dimension and the keys that families use for it"""
REQUIRED = ("hidden", "layers", "heads", "intermediate", "vocab", "max_position_embeddings")
OUTER = ("quantization_config", "torch_dtype", "dtype", "tie_word_embeddings", "_name_or_path")
"""keys that a model with a nested `text_config` keeps outside of it"""

LAYER_NORM = frozenset({"opt", "gpt2", "gpt_neox", "gptj", "bloom", "phi", "starcoder2"})
UNGATED = LAYER_NORM
ALL_BIASES = frozenset({"opt", "gpt2", "gpt_neox", "bloom", "phi", "starcoder2"})
QKV_BIAS = frozenset({"qwen2", "qwen2_moe"})
QK_NORM = frozenset({"qwen3", "qwen3_moe"})
TIED_BY_DEFAULT = frozenset({"opt", "gpt2", "bloom", "gemma", "gemma2", "gemma3_text"})
OPT_POSITION_OFFSET = 2
"""OPT's position table has two rows more than positions (transformers, modeling_opt.py, from memory)"""
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}

TYPES: tuple[tuple[tuple[str, ...], type, str], ...] = (
    (("tie_word_embeddings", "attention_bias", "mlp_bias", "use_sliding_window"), bool, "true or false"),
    (("torch_dtype", "dtype", "model_type", "hidden_act"), str, "text"),
    (("sliding_window", "n_embd"), int, "a whole number"),
)


def model_from_config(config: Mapping[str, Any] | str | Path) -> Model:
    """The model that a `config.json` (a mapping or the path of a file) describes.

    A missing num_key_value_heads means one per attention head, a missing head_dim hidden_size / heads, a missing
    tie_word_embeddings the family's default. Of a model with `text_config` only the language model is read. float32
    weights are served as bfloat16, as vLLM's `dtype: auto` does. What the file says and is not modelled is in the
    model's `unmodelled`.
    Raises ScenarioError for an unreadable file, a missing or impossible dimension (all at once), and for what is not
    modelled, naming the key.
    """
    if isinstance(config, Mapping):
        return from_mapping(config, name=_name(config, "model"), source="the given mapping")
    path = Path(config)
    content = _read(path)
    folder = path.parent.name if path.stem == "config" else ""  # the name that tells models apart
    name = _name(content, folder or path.stem)
    return from_mapping(content, name=name, source=str(path), place=f"{path}: ")


def from_mapping(config: Mapping[str, Any], *, name: str, source: str, place: str = "") -> Model:
    """Build a Model from the keys of a config.json. `place` goes in front of every fault."""
    outer, config = config, _language_part(config)
    if (told := encoder(outer) or encoder(config)) is not None:
        raise ScenarioError(f"{place}{told}; give a decoder-only model")
    faults = _refused(config)
    found = {field: _dimension(config, field, faults) for field in SPELLINGS}
    kind = str(config.get("model_type", ""))
    values: dict[str, Any] = {field: value for field, (_, value) in found.items()}
    keys = {field: key for field, (key, _) in found.items()}
    for part in (attention, experts, windows, weight_types):
        part(config, kind, values, keys, faults)
    if faults:
        raise ScenarioError(*(place + fault for fault in faults))
    model = Model(
        name=name,
        gated=kind not in UNGATED and str(config.get("hidden_act", "silu")) in ("silu", "swish", "gelu_pytorch_tanh"),
        tied_embeddings=bool(config.get("tie_word_embeddings", kind in TIED_BY_DEFAULT)),
        norm_vectors=2 if kind in LAYER_NORM else 1,
        qkv_bias=kind in ALL_BIASES | QKV_BIAS or bool(config.get("attention_bias", False)),
        output_bias=kind in ALL_BIASES or bool(config.get("attention_bias", False)),
        mlp_bias=kind in ALL_BIASES | {"gpt_oss"} or bool(config.get("mlp_bias", False)),
        qk_norm=kind in QK_NORM,
        position_rows=_position_rows(kind, values["max_position_embeddings"]),
        sources={field: f"{source}: {key}" if key else f"{source}: derived" for field, key in keys.items()},
        unmodelled=unmodelled(config, outer, values["layers"]),
        **values,
    )
    if not model.kv_lora_rank and model.heads % model.kv_heads:
        raise ScenarioError(
            f"{place}num_key_value_heads: must divide num_attention_heads {model.heads} (got {model.kv_heads})"
        )
    return model


def _language_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys of the language model: a nested `text_config` with what stands outside of it."""
    nested = config.get("text_config")
    if not isinstance(nested, Mapping):
        return config
    outer = {key: config[key] for key in OUTER if config.get(key) is not None}
    return outer | {key: value for key, value in nested.items() if value is not None}


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ScenarioError(f"{path}: no such file; give the path of a Hugging Face config.json") from None
    except IsADirectoryError:
        raise ScenarioError(f"{path}: a directory; give the path of the config.json in it") from None
    except OSError as error:
        raise ScenarioError(f"{path}: can't be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: not a text file; a Hugging Face config.json is JSON in UTF-8") from None
    except json.JSONDecodeError as error:
        raise ScenarioError(f"{path}:{error.lineno}: not JSON ({error.msg}, column {error.colno})") from None
    except ValueError as error:  # a number of thousands of digits
        raise ScenarioError(f"{path}: can't be read as JSON ({error})") from None
    except RecursionError:
        raise ScenarioError(f"{path}: nested too deeply for a config.json") from None
    if not isinstance(content, Mapping):
        kind = type(content).__name__
        raise ScenarioError(f"{path}: must be a JSON object with keys such as hidden_size (got {kind})")
    if faults := _mistyped(content):
        raise ScenarioError(*(f"{path}: {fault}" for fault in faults))
    return content


def _mistyped(content: Mapping[str, Any]) -> list[str]:
    """Sentences about values of a type that their keys never have, and about heads that no width can be split into."""
    faults = [
        f"{key}: must be {words} (got {repr(value)[:60]})"
        for keys, kind, words in TYPES
        for key in keys
        if (value := content.get(key)) is not None
        and (not isinstance(value, kind) or isinstance(value, bool) and kind is not bool)
    ]
    hidden, heads = content.get("hidden_size"), content.get("num_attention_heads")
    if isinstance(hidden, int) and isinstance(heads, int) and 1 <= hidden < heads and not content.get("head_dim"):
        faults.append(f"num_attention_heads: must be at most hidden_size {hidden} (got {heads})")
    return faults


def _name(config: Mapping[str, Any], otherwise: str) -> str:
    return str(config.get("_name_or_path") or otherwise)


def _refused(config: Mapping[str, Any]) -> list[str]:
    """Sentences about what the config asks for and this simulator does not model."""
    faults = []
    dtype = config.get("torch_dtype", config.get("dtype"))
    if dtype is not None and not (isinstance(dtype, str) and dtype in DTYPE_BYTES):
        faults.append(f"torch_dtype: must be one of {', '.join(sorted(DTYPE_BYTES))} (got {short(dtype)})")
    for key in ("ssm_state_size", "mamba_d_state", "linear_num_key_heads"):
        if config.get(key):
            faults.append(f"{key}: state-space and linear attention are not modelled (got {short(config[key])})")
    return faults


def _dimension(config: Mapping[str, Any], field: str, faults: list[str]) -> tuple[str, int]:
    """The key in use and its value; ('', 0) where it is absent, with a fault if it must not be."""
    for key in SPELLINGS[field]:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
            faults.append(f"{key}: must be a whole number from 1 on (got {short(value)})")
            return key, 0
        return key, value
    if field == "intermediate" and config.get("model_type") in ("gpt2", "bloom"):
        return "", 4 * int(config.get("n_embd") or config.get("hidden_size") or 0)
    if field in REQUIRED:
        near = did_you_mean(SPELLINGS[field][0], [k for k in config if isinstance(k, str)])
        faults.append(f"{SPELLINGS[field][0]}: missing from the config.json{near}")
    return "", 0


def _position_rows(kind: str, longest: int) -> int:
    if kind == "opt":
        return longest + OPT_POSITION_OFFSET
    return longest if kind == "gpt2" else 0
