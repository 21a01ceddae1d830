"""What a `config.json` leaves to its family's class, and sizes that it gives layer by layer.

A file holds what differs from its class, so a nested `text_config` may lack whole dimensions, and the rhythm of windowed
layers may stand nowhere. Values: transformers' configuration classes, from memory. A file that is no nested one and
lacks a dimension is not completed: there it is more likely cut or misspelt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]

NESTED_SIZES: dict[str, dict[str, int]] = {
    "gemma3_text": {
        "vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131_072,
    },
    "llama": {
        "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "max_position_embeddings": 2048,
    },
    "mistral": {
        "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131_072,
    },
}  # fmt: skip
"""model_type to what a nested configuration may leave out"""
FULL_EVERY = {"cohere2": 4, "exaone4": 4, "gemma3_text": 6, "gemma3n_text": 5, "gpt_oss": 2, "olmo3": 4}
"""families in which one layer in so many attends to everything, where the file does not say which"""
RHYTHM = "sliding_window_pattern"
BY_LAYER = (
    "hidden_size", "intermediate_size", "moe_intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok", "moe_topk", "moe_k", "moe_top_k",
    "n_shared_experts", "num_shared_experts", "num_shared_expert",
)  # fmt: skip
"""sizes that some files list for each layer"""
OTHER_HEADS = {
    "num_attention_heads": "swa_num_attention_heads", "num_attention_groups": "swa_num_key_value_heads", "head_dim": "swa_head_dim",
}  # fmt: skip
"""keys of Step's attention_other_setting, and the keys by which others say it"""
SHOWN = 4
"""sizes of layers that a fault names"""


def completed(config: Config, kind: str, nested: bool) -> tuple[dict[str, Any], tuple[str, ...], list[str]]:
    """The keys with what the class adds; the sizes that were taken from there; faults.

    A list of the same size for each layer becomes that size; one of several sizes is a fault.
    """
    found, faults = dict(config), []
    for key in BY_LAYER:
        value = config.get(key)
        if not isinstance(value, (list, tuple)) or not value or not all(type(one) is int for one in value):
            continue
        if len(sizes := sorted(set(value))) == 1:
            found[key] = sizes[0]
        else:
            told = ", ".join(f"{size:,}" for size in sizes[:SHOWN])
            faults.append(f"{key}: must be the same in all layers; layers of several sizes are not modelled (got {told})")
    if found.get(RHYTHM) is None and (own := found.get(f"_{RHYTHM}")) is not None:
        found[RHYTHM] = own  # as newer transformers write it
    listed = any(isinstance(found.get(key), (list, tuple)) for key in ("layer_types", "layers_block_type"))
    if kind in FULL_EVERY and found.get("sliding_window") and not listed and not found.get(RHYTHM):
        found[RHYTHM] = FULL_EVERY[kind]
    other = config.get("attention_other_setting")  # Step: heads of windowed layers
    if isinstance(other, Mapping) and other.get("attention_type") == "sliding_attention":
        found |= {key: other[own] for own, key in OTHER_HEADS.items() if other.get(own) and found.get(key) is None}
    missing = NESTED_SIZES.get(kind, {}) if nested else {}
    taken = {key: value for key, value in missing.items() if found.get(key) is None}
    return found | taken, tuple(f"{key} {value:,}" for key, value in taken.items()), faults
