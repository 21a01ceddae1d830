"""The text of a `config.json`: read, and checked for values that its keys never have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmqsim.errors import ScenarioError
from llmqsim.hardware.hf_parts import short

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
TYPES: tuple[tuple[tuple[str, ...], type, str], ...] = (
    (("tie_word_embeddings", "attention_bias", "mlp_bias", "use_sliding_window"), bool, "true or false"),
    (("torch_dtype", "dtype", "model_type", "hidden_act"), str, "text"),
    (("sliding_window", "n_embd"), int, "a whole number"),
)
COUNTS = (
    "altup_num_inputs", "block_multiple_of", "cla_share_factor", "conv_dim", "conv_kernel", "dense_intermediate_size",
    "expand", "global_head_dim", "hidden_size_per_layer_input", "index_head_dim", "index_n_heads", "laurel_rank",
    "mamba_d_conv", "mamba_d_state", "mamba_expand", "mamba_n_groups", "mamba_n_heads", "mamba_num_heads", "n_groups",
    "num_global_key_value_heads", "num_kv_shared_layers", "shared_intermediate_size", "ssm_state_size", "state_size",
    "swa_head_dim", "swa_num_attention_heads", "swa_num_key_value_heads", "swa_v_head_dim", "v_head_dim",
    "vocab_size_per_layer_input", "attn_layer_offset", "attn_layer_period",
)  # fmt: skip
"""keys that only some families have and that are counts; 0, null and false mean that there is none"""


def read_file(path: Path) -> Mapping[str, Any]:
    """The keys of a file. Raises ScenarioError for one that can't be read, is no JSON object, or has odd types."""
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


def refused(config: Mapping[str, Any]) -> list[str]:
    """Sentences about what the config asks for and this simulator does not model."""
    faults = []
    dtype = config.get("torch_dtype", config.get("dtype"))
    if dtype is not None and not (isinstance(dtype, str) and dtype in DTYPE_BYTES):
        faults.append(f"torch_dtype: must be one of {', '.join(sorted(DTYPE_BYTES))} (got {short(dtype)})")
    return faults


def miscounted(config: Mapping[str, Any]) -> list[str]:
    """Sentences about counts of some families that are none."""
    return [
        f"{key}: must be a whole number from 0 on (got {short(value)})"
        for key in COUNTS
        if (value := config.get(key)) is not None
        and value is not False
        and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31)
    ]
