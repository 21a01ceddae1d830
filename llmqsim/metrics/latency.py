"""What a client feels: TTFT, TPOT, normalised time per token, E2E and the wait before the first step, per request.

All in ns, one entry a row of the mask given; a request that did not complete has no latency here (it is counted
elsewhere), and a request with one token has no TPOT.
"""

from __future__ import annotations

import numpy as np

from llmqsim.metrics.distribution import WeightedGaps, describe_ns
from llmqsim.records import GapHistogram
from llmqsim.requests import Outcome, RequestTable

REQUEST_METRICS: tuple[str, ...] = ("ttft", "tpot", "ntpot", "e2e", "wait")


def completed(table: RequestTable) -> np.ndarray:
    """Mask of the requests whose last token was delivered, bool[rows]."""
    return table.outcome == Outcome.COMPLETED


def per_request_ns(table: RequestTable, metric: str, rows: np.ndarray) -> np.ndarray:
    """One metric in ns for the completed requests of a mask (bool[rows]); TPOT leaves out one-token requests.

    ttft, e2e, wait : int64[k]; tpot, ntpot : float64[k].
    """
    rows = rows & completed(table)
    if metric == "ttft":
        return table.first_token_ns[rows] - table.arrival_ns[rows]
    if metric == "e2e":
        return table.finish_ns[rows] - table.arrival_ns[rows]
    if metric == "wait":
        return table.first_scheduled_ns[rows] - table.arrival_ns[rows]
    if metric == "ntpot":
        return (table.finish_ns[rows] - table.arrival_ns[rows]) / table.generated_tokens[rows]
    if metric == "tpot":
        rows = rows & (table.generated_tokens >= 2)
        return (table.finish_ns[rows] - table.first_token_ns[rows]) / (table.generated_tokens[rows] - 1)
    raise KeyError(metric)


def latencies(
    table: RequestTable, gaps: GapHistogram, rows: np.ndarray, classes: list[int] | None = None
) -> dict[str, dict]:
    """ttft_s, tpot_s, ntpot_s, itl_s, e2e_s, wait_s of the completed requests of a mask (bool[rows]), in seconds.

    Gaps between tokens have no rows: itl_s is of all requests of `classes` (None: of all classes).
    """
    return figures_of(samples(table, rows), gaps, classes)


def samples(table: RequestTable, rows: np.ndarray) -> dict[str, np.ndarray]:
    """per_request_ns of every metric of REQUEST_METRICS, for the completed requests of a mask (bool[rows])."""
    return {metric: per_request_ns(table, metric, rows) for metric in REQUEST_METRICS}


def figures_of(
    seen: dict[str, np.ndarray], gaps: GapHistogram, classes: list[int] | None = None
) -> dict[str, dict]:
    """`latencies` of samples."""
    figures = {f"{metric}_s": describe_ns(values) for metric, values in seen.items()}
    figures["itl_s"] = WeightedGaps(gaps, classes).describe()
    return {key: figures[key] for key in ("ttft_s", "tpot_s", "ntpot_s", "itl_s", "e2e_s", "wait_s")}


def by_group(table: RequestTable, metric: str, groups: dict[str, np.ndarray]) -> dict[str, dict]:
    """One metric described for each named mask."""
    return {name: describe_ns(per_request_ns(table, metric, rows)) for name, rows in groups.items()}


def bench_names(
    spread: dict[str, float | None], gaps: GapHistogram, figures: dict[str, dict]
) -> dict[str, float | None]:
    """`figures` under the names of vLLM's serving benchmark, in ms (mean_ttft_ms, p99_itl_ms ...).

    spread : standard deviations of ttft, tpot and e2e, s; that of the gaps between tokens comes from `gaps`.
    """
    spread = {**spread, "itl": WeightedGaps(gaps).std()}
    named: dict[str, float | None] = {}
    for ours, theirs in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("e2e", "e2el")):
        sample = figures[f"{ours}_s"]
        for key, value in (("mean", sample["mean"]), ("median", sample["p50"]), ("std", spread[ours])):
            named[f"{key}_{theirs}_ms"] = None if value is None else value * 1e3
        named[f"p99_{theirs}_ms"] = None if sample["p99"] is None else sample["p99"] * 1e3
    return named
