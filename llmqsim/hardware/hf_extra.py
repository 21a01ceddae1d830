"""Weights beside embedding, layers and head: towers, embeddings of each layer, indexers, projections to a latent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqsim.hardware.towers import Tower
from llmqsim.hardware.weights import Part

Config = Mapping[str, Any]


def extra_parts(config: Config, kind: str, values: Mapping[str, Any], towers: tuple[Tower, ...]) -> tuple[Part, ...]:
    """Every part that the dimensions alone do not give. Meanings: the models' published code, from memory."""
    hidden, layers = values["hidden"], values["layers"]
    found = []
    if width := values.get("index_width"):
        rank = values.get("q_lora_rank") or hidden
        each = rank * values["index_heads"] * width + hidden * (width + values["index_heads"])
        shapes = ((values["index_heads"] * width, rank), (width + values["index_heads"], hidden))
        matrices = tuple((n, k, values["index_layers"]) for n, k in shapes)
        found.append(Part("indexer", values["index_layers"] * each, "bfloat16", "whole", matrices=matrices))
    if latent := values.get("expert_hidden"):
        experts = layers - values.get("dense_layers", 0)
        matrices = ((latent, hidden, experts), (hidden, latent, experts))
        name = "projections to the experts' latent"
        found.append(Part(name, experts * 2 * hidden * latent, "bfloat16", "whole", matrices=matrices))
    found += _per_layer(config, kind, hidden, layers)
    if kind in ("gemma3n", "gemma3n_text"):
        found += _altup(config, hidden, layers)
    found += [Part(one.name, one.parameters, "bfloat16", "tp", inside=False) for one in towers]
    return tuple(found)


def _per_layer(config: Config, kind: str, hidden: int, layers: int) -> list[Part]:
    """Gemma's embeddings of each layer: a table of all layers, and a gate and a projection in each."""
    width, rows = config.get("hidden_size_per_layer_input"), config.get("vocab_size_per_layer_input")
    if not (isinstance(width, int) and width and isinstance(rows, int)):
        return []
    return [
        Part("embeddings of each layer", rows * layers * width, "bfloat16", "tp", inside=False),
        Part(
            "projections of embeddings", layers * 3 * hidden * width, "bfloat16", "whole",
            matrices=((width, hidden, 2 * layers), (hidden, width, layers)),
        ),
    ]  # fmt: skip


def _altup(config: Config, hidden: int, layers: int) -> list[Part]:
    """Gemma-3n's extra streams and low-rank projections."""
    streams, rank = config.get("altup_num_inputs") or 4, config.get("laurel_rank") or 64
    return [
        Part("projections of streams", 2 * (streams - 1) * hidden * hidden, "bfloat16", "tp", inside=False),
        Part(
            "low-rank projections", layers * 2 * hidden * rank, "bfloat16", "whole",
            matrices=((rank, hidden, layers), (hidden, rank, layers)),
        ),
    ]  # fmt: skip
