"""What stands beside our errors: a null model of TTFT, and what other simulators' authors published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llmqsim.validate.document import read_table
from llmqsim.validate.errors_table import Row
from llmqsim.validate.summary import of_whole_runs

NULL_SLOPE, NULL_OFFSET_MS = 2.9, 3.0
"""TTFT = 2.9 x own predicted TPOT + 3 ms: fitted by the data's authors on the development runs; knows no queue"""
NULL_FAMILY = "inference-perf"
COLUMNS = ("case_id", "simulator", "metric", "predicted", "actual", "abs_pct_error")
NAMES = {"itl": "tpot"}
"""what peers call TPOT"""


@dataclass(frozen=True)
class Beside:
    """Errors of one predictor on some figures, and ours on the same. Percent."""

    who: str
    metric: str
    stat: str
    n: int
    mean: float
    median: float
    ours_mean: float
    ours_median: float


def null_model(rows: Iterable[Row]) -> list[Beside]:
    """The null model on mean TTFT of every family of fixed arrival rates, beside ours."""
    by_run: dict[tuple, dict[str, Row]] = {}
    for row in of_whole_runs(rows):
        if row.case.family.startswith(NULL_FAMILY) and row.figure.stat == "mean":
            by_run.setdefault((row.case.id, row.entry), {})[row.figure.metric] = row
    theirs, ours = [], []
    for found in by_run.values():
        ttft, tpot = found.get("ttft"), found.get("tpot")
        if ttft is None or tpot is None or tpot.predicted is None or ttft.ape_pct is None or not ttft.figure.measured:
            continue
        if ttft.apart:
            continue
        guess = NULL_SLOPE * tpot.predicted + NULL_OFFSET_MS
        theirs.append(100 * abs(guess - ttft.figure.measured) / ttft.figure.measured)
        ours.append(ttft.ape_pct)
    return [_beside("null model (TTFT = 2.9 TPOT + 3 ms)", "ttft", "mean", theirs, ours)] if theirs else []


def read_peers(path: Path) -> list[tuple[str, str, str, str, float]]:
    """case, simulator, metric, stat, error in per cent of every published prediction. Raises DataError."""
    frame = read_table(path, "a table of predictions of other simulators", COLUMNS)
    told = []
    for row in frame.to_dict("records"):
        metric, _, stat = str(row["metric"]).rpartition("_")
        told.append(
            (str(row["case_id"]), str(row["simulator"]), NAMES.get(metric, metric), stat, float(row["abs_pct_error"]))
        )
    return told


def peers(rows: Iterable[Row], published: Iterable[tuple[str, str, str, str, float]]) -> list[Beside]:
    """Each simulator beside ours, on the cases that it predicted."""
    ours: Mapping[tuple, float] = {
        (row.case.id, row.figure.metric, row.figure.stat): row.ape_pct
        for row in of_whole_runs(rows)
        if row.ape_pct is not None and not row.apart
    }
    groups: dict[tuple[str, str, str], tuple[list[float], list[float]]] = {}
    for case, simulator, metric, stat, error in published:
        mine = ours.get((case, metric, stat))
        if mine is not None:
            theirs, own = groups.setdefault((simulator, metric, stat), ([], []))
            theirs.append(error)
            own.append(mine)
    return [_beside(*key, theirs, own) for key, (theirs, own) in sorted(groups.items())]


def _beside(who: str, metric: str, stat: str, theirs: list[float], ours: list[float]) -> Beside:
    return Beside(
        who, metric, stat, len(theirs), float(np.mean(theirs)), float(np.median(theirs)),
        float(np.mean(ours)), float(np.median(ours)),
    )  # fmt: skip
