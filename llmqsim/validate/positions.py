"""Runs that are longer than their model was made for: benchmarks ask for them, and time does not care about sense."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from llmqsim.hardware.data import read_preset
from llmqsim.validate.deployment import Servers

CONFIG = "config.json"


def longer_positions(machine: Servers, longest_tokens: int) -> Mapping[str, str]:
    """Files of a model with more positions, where a run needs them; the scenario's model then names that file."""
    entry = read_preset("models.yaml")["models"][machine.keys["model"]]
    config: dict[str, Any] = entry["config"]
    inner = config.get("text_config", config)
    if longest_tokens <= inner["max_position_embeddings"] or entry.get("vision_bytes"):
        return {}
    longer = {**inner, "max_position_embeddings": longest_tokens}
    whole = {**config, "text_config": longer} if "text_config" in config else longer
    machine.notes.append(
        f"{longest_tokens:,} tokens are more than {machine.keys['model']} was made for; positions are extended"
    )
    name, machine.keys["model"] = machine.keys["model"], {"config": CONFIG}
    machine.engine.pop("max_model_len", None)
    machine.engine.setdefault("sampler", "top_p" if entry.get("top_p_sampling") else "plain")
    return {CONFIG: json.dumps({**whole, "_name_or_path": name})}
