"""What the readers of tools share: figures of samples, cases, numbers that may be text or missing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from llmqsim.errors import DataError
from llmqsim.validate.cases import Case
from llmqsim.validate.sent import Sent
from llmqsim.validate.tools.server import WHERE, Server

FAMILY = "own-runs"
PERCENTILES = (50, 90, 95, 99)


def number(value: Any) -> float | None:
    """A finite number, also as text; None where there is none."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def described(values: Sequence[float]) -> dict[str, float]:
    """mean, p50 … p99 of a sample; empty without values."""
    if not len(values):
        return {}
    sample = np.asarray(values, dtype=np.float64)
    return {"mean": float(sample.mean())} | {f"p{p}": float(np.percentile(sample, p)) for p in PERCENTILES}


def length_spec(values: Sequence[float] | None, total: float | None, count: float | None) -> dict[str, float]:
    """Lengths as a case states them: exact where all are alike, else mean, deviation and longest."""
    if values is not None and len(values):
        sample = np.asarray(values, dtype=np.float64)
        if sample.std() < 0.5:
            return {"exact": round(float(sample.mean()))}
        return {"mean": float(sample.mean()), "sd": float(sample.std()), "max": int(sample.max())}
    return {"exact": max(1, round(total / count))} if total and count else {}


def made(
    path: str | Path,
    name: str,
    server: Server,
    model: Any,
    tool: str,
    workload: Mapping[str, Any],
    entry: Mapping[str, Any],
    sent: Sent | None = None,
) -> Case:
    """A case of the user's own. What the server description says of model and workload wins."""
    config = {"model": model, **server.config}
    if not config.get("engine") or not config.get("gpu"):
        raise DataError(f"{path}: says nothing about the server; {WHERE}")
    work = {"tool": tool, **workload, **server.workload}
    arrival = work.get("arrival") or {}
    closed = "closed" in str(arrival.get("process", "")) or entry.get("concurrency")
    return Case(
        id=name,
        family=FAMILY,
        regime="closed_loop" if closed else "open_loop",
        config=config,
        workload=work,
        entries=({"stage": "all", **entry},),
        place=str(path),
        model=str(config.get("model") or ""),
        gpu=str(config["gpu"]),
        sent=None if closed else sent,
    )
