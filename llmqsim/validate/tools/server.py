"""The user's description of a server: `config`, and where a tool's file does not say it, `workload`, of a case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmqsim.errors import DataError
from llmqsim.validate.document import Document

NEEDED = ("engine", "gpu")
WHERE = (
    "give --server SERVER.yaml with config: {engine: vllm, engine_version: 0.15.1, gpu: H100-SXM-80GB, model: …, tp: 1}"
)


@dataclass(frozen=True)
class Server:
    """config, workload : as in a case; what is in `workload` wins over what a tool's file says."""

    config: Mapping[str, Any] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)


def read_server(path: str | Path) -> Server:
    """Raises DataError for a file that is no such description, naming every key that is missing."""
    document = Document(path)
    content = document.content
    if not isinstance(content, Mapping) or not isinstance(content.get("config"), Mapping):
        raise DataError(f"{path}: config: missing; {WHERE}")
    config, workload = content["config"], content.get("workload") or {}
    if not isinstance(workload, Mapping):
        raise DataError(f"{document.place('workload')}: workload: must be a mapping (got {workload!r:.60})")
    if absent := [key for key in NEEDED if not config.get(key)]:
        place = document.place("config")
        raise DataError(*(f"{place}: config.{key}: missing; {WHERE}" for key in absent))
    return Server(dict(config), dict(workload))
