"""Which layer of a Hugging Face `config.json` does what: the many spellings of one list.

Names: full, window, chunked (attention), linear, mamba, conv (states), both (attention and a state space side by side),
moe and mlp (layers that mix nothing). Meanings: transformers' and the models' own configuration classes, from memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Config = Mapping[str, Any]

WORDS = {
    "full_attention": "full", "attention": "full", "global_attention": "full", "global": "full", "full": "full",
    "sliding_attention": "window", "local_attention": "window", "sliding_window": "window", "local": "window",
    "sliding_window_attention": "window", "chunked_attention": "chunked",
    "linear_attention": "linear", "kda": "linear", "gated_delta_net": "linear", "lightning_attention": "linear",
    "mamba": "mamba", "mamba2": "mamba", "conv": "conv", "short_conv": "conv", "moe": "moe", "mlp": "mlp",
    "hybrid": "both",
}  # fmt: skip
"""entries of lists"""
LETTERS = {"M": "mamba", "*": "full", "E": "moe", "-": "mlp"}
"""letters of `hybrid_override_pattern` (Nemotron)"""
LOCAL = {"L": "window", "G": "full"}
"""letters of `sliding_window_pattern` (EXAONE)"""
STATES = ("linear", "mamba", "conv")
LISTED = ("layer_types", "layers_block_type")


@dataclass(frozen=True)
class Layers:
    """What each layer does, and the key that says so."""

    kinds: tuple[str, ...]
    key: str

    def count(self, *names: str) -> int:
        """Layers of these names."""
        return sum(kind in names for kind in self.kinds)

    @property
    def mixing(self) -> int:
        """Layers that look back on earlier tokens."""
        return len(self.kinds) - self.count("moe", "mlp")


def listed_layers(config: Config, kind: str, layers: int, faults: list[str]) -> Layers | None:
    """The layers one by one; None where nothing in the file tells them apart. layers : 0 where the file has no number."""
    if kind == "falcon_h1":
        return Layers(("both",) * layers, "model_type falcon_h1")
    for key in LISTED:
        if isinstance(config.get(key), (list, tuple)):
            return _checked(_without_drafts(config, config[key], layers), WORDS, key, layers, faults)
    if isinstance(config.get("hybrid_override_pattern"), str):
        return _checked(config["hybrid_override_pattern"], LETTERS, "hybrid_override_pattern", layers, faults)
    if isinstance(config.get("attn_type_list"), (list, tuple)):
        return _checked(config["attn_type_list"], {0: "linear", 1: "full"}, "attn_type_list", layers, faults)
    if isinstance(config.get("hybrid_layer_pattern"), (list, tuple)):
        return _checked(
            config["hybrid_layer_pattern"], {0: "full", 1: "window"}, "hybrid_layer_pattern", layers, faults
        )
    return _numbered(config, kind, layers, faults)


def _numbered(config: Config, kind: str, layers: int, faults: list[str]) -> Layers | None:
    """Layers by their numbers, or every so many."""
    if isinstance(linear := config.get("linear_attn_config"), Mapping):
        full = linear.get("full_attn_layers")
        if not isinstance(full, (list, tuple)) or not all(isinstance(i, int) and 1 <= i <= layers for i in full):
            faults.append(
                f"linear_attn_config.full_attn_layers: must list layers from 1 to {layers} (got {str(full)[:60]})"
            )
            return None
        return Layers(tuple("full" if i + 1 in full else "linear" for i in range(layers)), "linear_attn_config")
    every = config.get("full_attention_interval")
    if isinstance(every, int) and not isinstance(every, bool) and every > 1:
        kinds = ("full" if (i + 1) % every == 0 else "linear" for i in range(layers))
        return Layers(tuple(kinds), "full_attention_interval")
    if isinstance(pattern := config.get("sliding_window_pattern"), str) and pattern:
        if set(pattern) - set(LOCAL):
            faults.append(f"sliding_window_pattern: must be a number, or letters L and G (got '{pattern[:60]}')")
            return None
        return Layers(tuple(LOCAL[pattern[i % len(pattern)]] for i in range(layers)), "sliding_window_pattern")
    if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 1 and config.get("sliding_window"):
        kinds = ("full" if (i + 1) % pattern == 0 else "window" for i in range(layers))
        return Layers(tuple(kinds), "sliding_window_pattern")
    attending = config.get("full_attn_idxs")
    if kind.startswith("lfm2") and isinstance(attending, (list, tuple)):
        return Layers(tuple("full" if i in attending else "conv" for i in range(layers)), "full_attn_idxs")
    period = config.get("attn_layer_period")
    if isinstance(period, int) and not isinstance(period, bool) and period > 1:
        offset = config.get("attn_layer_offset") or 0
        return Layers(tuple("full" if i % period == offset else "mamba" for i in range(layers)), "attn_layer_period")
    indices = config.get("attn_layer_indices")
    if isinstance(indices, (list, tuple)) and indices:
        return Layers(tuple("full" if i in indices else "mamba" for i in range(layers)), "attn_layer_indices")
    return None


def _without_drafts(config: Config, listed: Any, layers: int) -> Any:
    """The list without the layers behind the model that only draft tokens."""
    drafting = config.get("num_nextn_predict_layers")
    return listed[:layers] if layers and isinstance(drafting, int) and len(listed) == layers + drafting else listed


def _checked(listed: Any, words: Mapping[Any, str], key: str, layers: int, faults: list[str]) -> Layers | None:
    """The list in our words; a fault for an entry that is none, or a wrong number of them."""
    odd = [one for one in listed if not isinstance(one, (str, int)) or one not in words]
    if odd:
        known = ", ".join(str(word) for word in words)
        faults.append(f"{key}: layers of this kind are not known here (got {repr(odd[0])[:40]}); known: {known}")
        return None
    if layers and len(listed) != layers:
        faults.append(f"{key}: must name {layers} layers (got {len(listed)})")
        return None
    return Layers(tuple(words[one] for one in listed), key)
