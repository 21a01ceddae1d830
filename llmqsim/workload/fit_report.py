"""How well a length table stands for a trace: the same figures of both, side by side."""

from __future__ import annotations

import math

import numpy as np

from llmqsim.workload.length_table import LengthTable, Marginal
from llmqsim.workload.trace import Trace

COLUMNS = ("prompt_tokens", "output_tokens")
QUANTILES = (0.5, 0.9, 0.95, 0.99)
DRAWN = 100_000
NAMES = {
    "mean": "mean", "cv": "CV", "p50": "P50", "p90": "P90", "p95": "P95", "p99": "P99", "max": "max",
    "rows_beyond": "rows > P99, %", "tokens_beyond": "tokens > P99, %",
}  # fmt: skip


def compare(table: LengthTable, prompt_tokens: np.ndarray, output_tokens: np.ndarray) -> dict:
    """Figures of int64[n] rows and of the table.

    Returns {column: {figure: (rows, table)}, and under each column "ks": Kolmogorov-Smirnov distance, "ks_noise": what
    a table without any error shows in 95 % of samples of this size}, and "rank_correlation": (rows, table).
    rows_beyond / tokens_beyond: share of requests longer than the rows' P99, and of tokens in them (the tail's weight).
    """
    result: dict = {}
    for column, values in zip(COLUMNS, (prompt_tokens, output_tokens), strict=True):
        marginal = table.marginal(column)
        result[column] = _figures(values, marginal)
        result[column]["ks"] = ks_distance(values, marginal)
        result[column]["ks_noise"] = 1.358 / math.sqrt(len(values))
    evenly = (np.arange(DRAWN) + 0.5) / DRAWN
    # Evenly spaced uniforms, one column shuffled by a fixed rule (Kronecker sequence): no random stream needed.
    drawn = table.draw(evenly, (np.arange(DRAWN) * 0.6180339887498949) % 1.0)
    result["rank_correlation"] = (rank_correlation(prompt_tokens, output_tokens), rank_correlation(*drawn))
    return result


def _figures(values: np.ndarray, marginal: Marginal) -> dict:
    p99 = int(np.quantile(values, 0.99, method="inverted_cdf"))
    long = values[values > p99]
    figures = {
        "mean": (float(values.mean()), marginal.mean()),
        "cv": (float(values.std() / values.mean()), marginal.cv()),
        **{
            f"p{q * 100:.0f}": (float(np.quantile(values, q, method="inverted_cdf")), float(marginal.quantile(q)))
            for q in QUANTILES
        },
        "max": (float(values.max()), float(marginal.high.max())),
        "rows_beyond": (100 * len(long) / len(values), 100 * float(1 - marginal.cdf(np.array([p99]))[0])),
        "tokens_beyond": (100 * float(long.sum() / values.sum()), 100 * marginal.tokens_beyond(p99)),
    }
    return figures


def ks_distance(values: np.ndarray, marginal: Marginal) -> float:
    """Largest difference of the two CDFs; both step at whole tokens, so both sides of each value are looked at."""
    tokens, counts = np.unique(values, return_counts=True)
    upper = np.cumsum(counts) / len(values)
    at, before = marginal.cdf(tokens), marginal.cdf(tokens - 1)
    return float(max(np.abs(at - upper).max(), np.abs(before - (upper - counts / len(values))).max()))


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation of two int64[n], ties by their mean rank; 0 where one is constant."""
    ranks = [_mean_ranks(x) for x in (a, b)]
    if min(r.std() for r in ranks) == 0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def _mean_ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def summary(figures: dict) -> dict:
    """The comparison as it stands in a table's file: table against rows, errors in per cent, and the distances."""
    result: dict = {}
    for column in COLUMNS:
        f = figures[column]
        errors = {f"{k}_percent": _error(*f[k]) for k in ("mean", "cv", "p50", "p90", "p95", "p99", "tokens_beyond")}
        result[column] = {**errors, "ks": round(f["ks"], 4), "ks_noise": round(f["ks_noise"], 4)}
    result["rank_correlation"] = [round(r, 3) for r in figures["rank_correlation"]]
    return result


def _error(rows: float, table: float) -> float | None:
    return round(100 * (table / rows - 1), 2) + 0.0 if rows else None


def report_text(table: LengthTable, errors: dict, trace: Trace, out: str) -> str:
    """The report of a fit, at most 100 columns wide."""
    bins = len(table.prompt.low)
    lines = [
        f"{out}: length table fitted on {len(trace):,} rows of {trace.source}",
        f"{bins} prompt bins; {len(table.outputs)} ranges of prompts, each with its own output bins "
        f"({sum(len(h.low) for h in table.outputs)} in all)",
        f"{'':18}{'whole trace':^38}{'last third in time':^38}".rstrip(),
        (f"{'':18}" + f"{'trace':>13}{'table':>13}{'error':>9}   " * 2).rstrip(),
    ]
    for column in COLUMNS:
        lines.append(column.replace("_", " "))
        for name, shown in NAMES.items():
            cells = "".join(_cells(*errors[part][column][name]) for part in errors)
            lines.append(f"  {shown:16}{cells}".rstrip())
        ks = "".join(
            f"{errors[part][column]['ks']:>26.4f}{'<' + format(errors[part][column]['ks_noise'], '.3f'):>9}   "
            for part in errors
        )
        lines.append(f"  {'KS distance':16}{ks}".rstrip())
    pairs = "".join("{:>13.3f}{:>13.3f}{:12}".format(*errors[part]["rank_correlation"], "") for part in errors)
    lines.append(f"{'rank correlation':18}{pairs}".rstrip())
    lines.append("Whole trace: the table against the rows it was fitted on. Last third: a table fitted on the first")
    lines.append("two thirds against later rows, where drift shows. KS: what sampling alone gives stands behind '<'.")
    return "\n".join(lines)


def _cells(rows: float, table: float) -> str:
    error = _error(rows, table)
    digits = 0 if max(rows, table) >= 1000 else 2
    shown = "" if error is None else f"{error:+.1f} %"
    return f"{rows:>13,.{digits}f}{table:>13,.{digits}f}{shown:>9}   "
