"""Parameters of what stands beside the language model in a `config.json`: vision and audio towers, their projectors.

A tower is counted as a plain encoder of its layers (attention and an MLP), its patch embedding and positions, and the
matrices that bring its output to the language model's width. That is within a few per cent of a tower, which is a few
per cent of a model. Checked against published counts in tests/unit/test_published_models.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]

TOWERS = ("vision_config", "audio_config", "visual", "vision_tower_config", "sound_config")
HIDDEN = ("hidden_size", "embed_dim", "vt_hidden_size", "d_model", "width")
LAYERS = ("num_hidden_layers", "depth", "vt_num_hidden_layers", "encoder_layers", "layers")
INTERMEDIATE = ("intermediate_size", "vt_intermediate_size", "encoder_ffn_dim", "mlp_dim")
GATED = frozenset({"pixtral", "qwen2_5_vl", "gemma4_vision"})
"""towers whose MLP has a gate"""
RGB = 3


def towers(config: Config) -> tuple[str, ...]:
    """Keys of the towers that the file has."""
    return tuple(key for key in TOWERS if isinstance(config.get(key), Mapping) and config[key])


def tower_parameters(config: Config, key: str, hidden: int) -> int | None:
    """Parameters of one tower with its projector; None where the file lacks its sizes. hidden : of the language model."""
    tower = config[key]
    wide, layers = _first(tower, HIDDEN), _first(tower, LAYERS)
    inner = _first(tower, INTERMEDIATE) or (int(wide * tower["mlp_ratio"]) if wide and tower.get("mlp_ratio") else 0)
    if not (wide and layers and inner):
        return None
    kind = str(tower.get("model_type") or config.get("model_type") or "")
    matrices = 3 if kind in GATED else 2
    each = 4 * wide * wide + matrices * wide * inner
    patch = _first(tower, ("patch_size", "spatial_patch_size")) or 1
    embedding = RGB * patch * patch * wide * (_first(tower, ("temporal_patch_size",)) or 1) if "vision" in key else 0
    return layers * each + embedding + _positions(tower) * wide + _projector(config, tower, wide, hidden)


def _positions(tower: Config) -> int:
    """Rows of learned positions."""
    rows = _first(tower, ("num_position_embeddings", "position_embedding_size"))
    if rows:
        return rows
    size, patch = _first(tower, ("image_size",)), _first(tower, ("patch_size",))
    return (size // patch) ** 2 if size and patch and str(tower.get("model_type")) != "pixtral" else 0


def _projector(config: Config, tower: Config, wide: int, hidden: int) -> int:
    """From the tower's width to the language model's, where neighbouring patches are merged first."""
    out = _first(tower, ("out_hidden_size",)) or hidden
    merge = _first(tower, ("spatial_merge_size",))
    merge = merge or (_first(config, ("spatial_merge_size", "downsample_factor")) or 1)
    joined = wide * merge * merge
    if _first(tower, ("spatial_merge_size",)):  # Qwen: a merger, and one for each deep-stacked layer
        mergers = 1 + len(tower.get("deepstack_visual_indexes") or ())
        return mergers * (joined * joined + joined * out)
    if config.get("projector_hidden_act"):  # two matrices
        middle = _first(config, ("projector_hidden_size",)) or hidden
        return joined * (wide if merge > 1 and not config.get("downsample_factor") else 0) + (
            (wide if merge > 1 and not config.get("downsample_factor") else joined) * middle + middle * hidden
        )
    return joined * hidden


def _first(config: Config, names: tuple[str, ...]) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
