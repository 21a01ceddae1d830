"""What stands beside the language model in a `config.json`: vision and audio towers, their projectors.

A tower is counted as a plain encoder of its layers (attention and an MLP), its patch embedding and positions, and the
matrices that bring its output to the language model's width. That is within a few per cent of a tower, which is a few
per cent of a model. Checked against published counts in tests/unit/test_published_models.py, and what it takes at
start-up against start-up logs (tests/unit/test_startup_logs.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqsim.hardware.towers import Tower

Config = Mapping[str, Any]

TOWERS = ("vision_config", "audio_config", "visual", "vision_tower_config", "sound_config")
HIDDEN = ("embed_dim", "hidden_size", "vt_hidden_size", "d_model", "width")
LAYERS = ("num_hidden_layers", "depth", "vt_num_hidden_layers", "encoder_layers", "layers")
INTERMEDIATE = ("intermediate_size", "vt_intermediate_size", "encoder_ffn_dim", "mlp_dim")
MERGE = ("spatial_merge_size", "downsample_factor")
ITEM = ("mm_tokens_per_image", "vision_soft_tokens_per_image", "image_seq_length", "max_image_tokens")
MLP_AS_WIDE_AS_OUTPUT = frozenset({"glm4v", "glm4v_moe", "glm4v_vision", "glm4v_moe_vision"})
"""towers whose intermediate_size is that of the gated MLP behind them (their published code, from memory)"""
GATED = MLP_AS_WIDE_AS_OUTPUT | frozenset({"pixtral", "qwen2_5_vl", "gemma4_vision"})
"""towers whose MLP has a gate"""
MERGED = 4
"""patches that such a tower joins into one"""
RGB, WIDE_ROWS = 3, 4
"""colours; rows of the tower's width that a layer has at once beside its MLP (input, queries, keys, values)"""
LARGEST_IMAGE = 16_384
"""tokens of the largest image of models that merge patches and state no size (Qwen-VL, from memory)"""


def tower_keys(config: Config) -> tuple[str, ...]:
    """Keys of the towers that the file has."""
    return tuple(key for key in TOWERS if isinstance(config.get(key), Mapping) and config[key])


def read_tower(config: Config, key: str, hidden: int) -> Tower | None:
    """One tower with its projector; None where the file lacks its sizes. hidden : of the language model."""
    tower = config[key]
    wide, layers = first(tower, HIDDEN), first(tower, LAYERS)
    inner = first(tower, INTERMEDIATE) or (int(wide * tower["mlp_ratio"]) if wide and isinstance(tower.get("mlp_ratio"), (int, float)) else 0)
    if not (wide and layers and inner):
        return None
    kind = str(tower.get("model_type") or config.get("model_type") or "")
    behind, out = 0, first(tower, ("out_hidden_size",))
    if kind in MLP_AS_WIDE_AS_OUTPUT and out:
        behind, inner = 3 * out * inner, out
    matrices = 3 if kind in GATED else 2
    each = 4 * wide * wide + matrices * wide * inner
    patch = first(tower, ("patch_size", "spatial_patch_size")) or 1
    sees = "audio" not in key and "sound" not in key
    embedding = RGB * patch * patch * wide * (first(tower, ("temporal_patch_size",)) or 1) if sees else 0
    count = layers * each + embedding + _positions(tower) * wide
    count += behind + (wide * MERGED * out + out * out if behind else _projector(config, tower, wide, hidden))
    name = f"{'vision' if sees else 'audio'} tower"
    if not sees:
        return Tower(name, count)
    bytes_ = 2 * (WIDE_ROWS * wide + (matrices - 1) * inner)
    item = first(config, ITEM) or first(tower, ITEM)
    side = first(tower, ("image_size",)) // patch
    merge = first(tower, MERGE) or first(config, MERGE) or 1
    per_token = float(merge * merge)
    if item and side and not first(tower, ("pooling_kernel_size",)):
        per_token = side * side / item
    elif pooled := first(tower, ("pooling_kernel_size",)):
        per_token = float(pooled * pooled)
    item = item or (round(side * side / per_token) if side else LARGEST_IMAGE)
    return Tower(name, count, bytes_, per_token, item)


def _positions(tower: Config) -> int:
    """Rows of learned positions."""
    rows = first(tower, ("num_position_embeddings", "position_embedding_size"))
    if rows:
        return rows
    size, patch = first(tower, ("image_size",)), first(tower, ("patch_size",))
    return (size // patch) ** 2 if size and patch and str(tower.get("model_type")) != "pixtral" else 0


def _projector(config: Config, tower: Config, wide: int, hidden: int) -> int:
    """From the tower's width to the language model's, where neighbouring patches are merged first."""
    out = first(tower, ("out_hidden_size",)) or hidden
    merge = first(tower, ("spatial_merge_size",)) or first(config, MERGE) or 1
    joined = wide * merge * merge
    if first(tower, ("spatial_merge_size",)):  # Qwen: a merger, and one for each deep-stacked layer
        stacked = tower.get("deepstack_visual_indexes")
        mergers = 1 + (len(stacked) if isinstance(stacked, (list, tuple)) else 0)
        return mergers * (joined * joined + joined * out)
    if not config.get("projector_hidden_act"):
        return joined * hidden
    middle = first(config, ("projector_hidden_size",)) or hidden
    if config.get("downsample_factor") or merge == 1:  # LFM2: two matrices on joined patches
        return joined * middle + middle * hidden
    return joined * wide + wide * middle + middle * hidden  # Mistral: a merger before them


def first(config: Config, names: tuple[str, ...]) -> int:
    """The first of these keys that is a whole number above 0; 0 without one."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
