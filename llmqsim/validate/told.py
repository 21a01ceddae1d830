"""A validation as plain data, for `--json` and for a page."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from llmqsim.validate import keys
from llmqsim.validate.command import Validation

KEY = ("family", "gpu", "model", "regime", "metric", "stat")


def told(found: Validation) -> dict[str, Any]:
    """cases, runs, ran; `figures`: every measured figure with its prediction (latencies in ms), as in errors.csv; `groups`:
    errors in per cent, as in summary.csv; `beside`: what others predict; `unread`: keys of cases that are not read."""
    return {
        "cases": len(found.cases),
        "runs": found.runs,
        "ran": found.ran,
        "figures": [
            {
                "case": row.case.id,
                "stage": row.stage,
                "family": row.case.family,
                "gpu": row.case.gpu,
                "model": row.case.model,
                "regime": row.case.regime,
                "metric": row.figure.metric,
                "stat": row.figure.stat,
                "measured": row.figure.measured,
                "predicted": row.predicted,
                "error_pct": row.error_pct,
                "in_envelope": row.in_envelope,
                "reason": row.reason,
            }
            for row in found.rows
        ],
        "groups": [
            {
                **dict(zip(KEY, one.key, strict=True)),
                "n": one.n,
                "covered": one.covered,
                "mean": one.mean,
                "median": one.median,
                "p90": one.p90,
                "bias": one.bias,
                "overloaded_apart": one.apart,
            }
            for one in found.groups
        ],
        "beside": [asdict(one) for one in found.beside],
        "unread": [f"{count} × {text}" for text, count in keys.told(found.cases)],
    }
