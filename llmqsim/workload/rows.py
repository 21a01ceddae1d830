"""The rows of a workload on their way to the request table, and the lengths that are drawn for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from llmqsim.clients import Loop
from llmqsim.errors import ScenarioError
from llmqsim.workload import lengths as distributions
from llmqsim.workload.table_file import load_preset, load_table


@dataclass
class Rows:
    """Requests as columns, int64[n] each. arrival_ns is UNSET where a closed loop sends them."""

    arrival_ns: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    rate: float
    source: str
    class_id: np.ndarray | int = 0
    tenant_id: np.ndarray | int = 0
    priority: np.ndarray | int = 0
    think_ns: np.ndarray | int = 0
    classes: tuple[str, ...] = ("all",)
    tenants: tuple[str, ...] = ("all",)
    loops: tuple[Loop, ...] = field(default=())
    prefix_ids: list[list[int]] | None = None
    """block ids of each prompt, from a trace that has them"""
    hash_tokens: int = 0
    """tokens of such a block, where the trace's format says so"""
    max_tokens: np.ndarray | None = None
    """most tokens that each client allowed, 0 where it set no limit; None: nobody said"""
    doubt: str = ""
    """why a trace's times may be in another unit than the one in which they were read"""


def draw_lengths(
    spec: Any, u_prompt: np.ndarray, u_output: np.ndarray, folder: Path, notes: list[str], key: str = "workload.lengths"
) -> tuple[np.ndarray, np.ndarray, str]:
    """Prompt and output tokens, int64[n] each, and where they come from. Raises ScenarioError, DataError."""
    if isinstance(spec, str):
        return *load_preset(spec).draw(u_prompt, u_output), f"lengths {spec}"
    if isinstance(spec, dict) and "file" in spec:
        return *load_table(folder / spec["file"]).draw(u_prompt, u_output), f"lengths from {Path(spec['file']).name}"
    if not isinstance(spec, dict) or set(spec) != {"prompt", "output"}:
        raise ScenarioError(f"{key}: needs a preset name, {{file: ...}}, or prompt and output (got {spec!r})")
    columns, words = [], []
    for name, u in (("prompt", u_prompt), ("output", u_output)):
        law = distributions.parse(spec[name], f"{key}.{name}")
        columns.append(law.quantile(u))
        words.append(f"{name} {law.describe()}")
        if isinstance(law, distributions.Clipped):
            _note_clipped(law, columns[-1], u, name, notes)
    return *columns, "; ".join(words)


def _note_clipped(law: distributions.Clipped, drawn: np.ndarray, u: np.ndarray, name: str, notes: list[str]) -> None:
    free = law.inner.quantile(u)
    changed = int(np.count_nonzero(free != drawn))
    if changed:
        notes.append(
            f"{changed:,} of {len(drawn):,} {name} lengths were set to min or max: "
            f"mean {drawn.mean():,.0f} tokens, {free.mean():,.0f} without the limits"
        )
