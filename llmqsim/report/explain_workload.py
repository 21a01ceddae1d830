"""The traffic of a scenario in figures: offered load, lengths as drawn, and the table that they are drawn from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from llmqsim.requests import UNSET
from llmqsim.scenario.load import Scenario
from llmqsim.units import to_seconds
from llmqsim.workload.build import Workload
from llmqsim.workload.length_table import LengthTable, Marginal
from llmqsim.workload.table_file import load_preset, load_table

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
COLUMNS = ("prompt_tokens", "output_tokens")
ABOUT = ("name", "source", "licence", "attribution", "period", "tokens_counted_by", "pitfalls", "rows", "fit")


def workload(scenario: Scenario, made: Workload) -> dict[str, Any]:
    """Figures of the requests that a run serves. offered_rate_per_s is None when all of them arrive at once, and where
    clients of a closed loop decide in the run; times are of the others.
    """
    rows = made.table
    known = rows.arrival_ns[rows.arrival_ns != UNSET]
    rate = made.offered_rate_per_s if math.isfinite(made.offered_rate_per_s) else None
    drawn = {column: _drawn(getattr(rows, column)) for column in COLUMNS}
    return {
        "source": made.source,
        "requests": len(rows),
        "closed_loop_clients": sum(loop.clients for loop in made.clients.loops),
        "first_arrival_s": to_seconds(int(known[0])) if len(known) else None,
        "last_arrival_s": to_seconds(int(known[-1])) if len(known) else None,
        "offered_rate_per_s": rate,
        "offered_tokens_per_s": {c: None if rate is None else rate * drawn[c]["mean"] for c in COLUMNS},
        "lengths": drawn,
        "table": _table(scenario),
        "notes": list(made.notes),
    }


def _drawn(tokens: np.ndarray) -> dict[str, float]:
    """Mean, CV, percentiles and maximum of int64[n] tokens."""
    mean = float(tokens.mean())
    ranks = {name: float(np.quantile(tokens, q)) for name, q in QUANTILES.items()}
    return {"mean": mean, "cv": float(tokens.std() / mean), **ranks, "max": int(tokens.max())}


def _table(scenario: Scenario) -> dict[str, Any] | None:
    """The fitted length table behind the lengths; None where they come from elsewhere."""
    lengths = scenario.spec.workload.lengths
    if isinstance(lengths, str):
        table = load_preset(lengths)
    elif (name := getattr(lengths, "file", None)) is not None:
        table = load_table(scenario.file(name))
    else:
        return None
    about = {key: table.about[key] for key in ABOUT if key in table.about}
    return {"about": about, "lengths": _exact(table)}


def _exact(table: LengthTable) -> dict[str, Any]:
    return {column: _figures(table.marginal(column)) for column in COLUMNS}


def _figures(law: Marginal) -> dict[str, float]:
    ranks = {name: law.quantile(q) for name, q in QUANTILES.items()}
    return {"mean": law.mean(), "cv": law.cv(), **ranks, "max": int(law.high.max())}
