"""The predicted value of each measured figure, from a simulated run: same metric, same stat, same requests, ms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from llmqsim.metrics import latency, usage
from llmqsim.metrics.distribution import WeightedGaps, exact_sum, percentile
from llmqsim.requests import UNSET, Outcome
from llmqsim.result import Result
from llmqsim.validate.figures import Figure

MS = 1e6
"""ns"""
REQUEST_METRICS = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e", "ntpot": "ntpot", "prefill": "ttft", "decode": "tpot"}
"""metrics of one value a request; a static batch's prefill and decode times are its TTFT and TPOT"""
MEANS = ("mean", "mean_as_published", "value", "avg")
RATES = {"req_s": "requests_per_s", "output_tok_s": "output_tokens_per_s", "prompt_tok_s": "prompt_tokens_per_s",
         "total_tok_s": "total_tokens_per_s"}  # fmt: skip


class Predicted:
    """Figures of one stage (bool[rows]) of a run over `gpus` GPUs."""

    def __init__(self, result: Result, rows: np.ndarray, gpus: int, tool: str = ""):
        self._result, self._rows, self._gpus = result, rows & result.measured, gpus
        self._itl_is_tpot = any(word in tool for word in ("aiperf", "genai-perf", "guidellm"))
        self._sorted: dict[str, np.ndarray] = {}

    def value(self, figure: Figure) -> float | None:
        """The prediction of one figure; None where this run has none (nobody completed, a stat that is not known)."""
        metric = "tpot" if figure.metric == "itl" and self._itl_is_tpot else figure.metric
        if metric in REQUEST_METRICS:
            return self._latency(REQUEST_METRICS[metric], figure.stat)
        if metric == "itl":
            return self._gap(figure.stat)
        return self._number(metric)

    def _latency(self, metric: str, stat: str) -> float | None:
        if metric not in self._sorted:
            self._sorted[metric] = np.sort(latency.per_request_ns(self._result.table, metric, self._rows))
        return _stat(self._sorted[metric], stat)

    def _gap(self, stat: str) -> float | None:
        described = WeightedGaps(self._result.gaps).describe()
        value = described.get({"median": "p50"}.get(stat, "mean" if stat in MEANS else stat))
        return None if value is None else value * 1e3

    def _number(self, metric: str) -> float | None:
        table, rows = self._result.table, self._rows
        done = rows & latency.completed(table)
        window = usage.makespan(table, rows, self._result.end_ns)
        rates = usage.throughput(table, rows, window)
        if metric in RATES:
            return rates[RATES[metric]]
        if metric.endswith("_per_gpu") and metric.removesuffix("_per_gpu") in RATES:
            rate = rates[RATES[metric.removesuffix("_per_gpu")]]
            return None if rate is None else rate / self._gpus
        if metric == "output_tok_per_request":
            return float(table.generated_tokens[done].mean()) if done.any() else None
        if metric in ("makespan_s", "duration_s"):
            return window.seconds
        if metric == "n_ok":
            return float(done.sum())
        if metric == "n_failed":
            return float((rows & np.isin(table.outcome, (Outcome.TIMED_OUT, Outcome.REJECTED))).sum())
        return float(_most_in_flight(table, rows)) if metric == "max_in_flight" else None


def _stat(ordered: np.ndarray, stat: str) -> float | None:
    """A stat of sorted durations (ns) in ms."""
    if not len(ordered):
        return None
    if stat in MEANS:
        return exact_sum(ordered) / len(ordered) / MS
    if stat in ("median", "min", "max"):
        place = {"median": 50, "min": 0, "max": 100}[stat]
    elif found := re.fullmatch(r"p(\d{1,2}(?:\.\d+)?)", stat):
        place = float(found[1])
        if place != int(place):
            return float(np.percentile(ordered, place)) / MS
    elif stat == "p999":
        return float(np.percentile(ordered, 99.9)) / MS
    elif stat == "std":
        return float(np.std(ordered)) / MS
    else:
        return None
    return percentile(ordered, int(place)) / MS


def _most_in_flight(table, rows: np.ndarray) -> int:
    """Most requests sent and not yet answered; one that ends in the instant when another is sent is over."""
    left = np.where(table.finish_ns != UNSET, table.finish_ns, table.gave_up_ns)[rows]
    sent = table.arrival_ns[rows][left != UNSET]
    left = left[left != UNSET]
    times = np.concatenate([left, sent])
    change = np.concatenate([np.full(len(left), -1), np.ones(len(sent), dtype=np.int64)])
    return int(np.cumsum(change[np.argsort(times, kind="stable")]).max(initial=0))


def stage_rows(result: Result, stage: str, sizes: tuple[int, ...]) -> np.ndarray | None:
    """Requests of a stage: "all", a number (stages are runs of rows, in order), "class:NAME"; None where unknown.

    Any other name stands for the whole run, which is then the only stage.
    """
    table = result.table
    every = np.ones(len(table), dtype=bool)
    if stage.startswith("class:"):
        name = stage.removeprefix("class:")
        return table.class_id == table.classes.index(name) if name in table.classes else None
    if not (found := re.fullmatch(r"(?:stage[ _:-]?)?(\d+)", stage)):
        return every
    number = int(found[1])
    if number >= len(sizes):
        return None
    start = sum(sizes[:number])
    return (np.arange(len(table)) >= start) & (np.arange(len(table)) < start + sizes[number])


def predict(result: Result, run: Any, figures: Mapping[int, list[Figure]]) -> dict[int, list[float | None]]:
    """The predictions of a run's entries: one value a figure, in their order."""
    tool = str(run.case.workload.get("tool", "")).lower()
    found: dict[int, list[float | None]] = {}
    for entry, wanted in figures.items():
        rows = stage_rows(result, run.case.stages[entry], run.stage_rows)
        if rows is None:
            found[entry] = [None] * len(wanted)
            continue
        predicted = Predicted(result, rows, run.gpus, tool)
        found[entry] = [predicted.value(figure) for figure in wanted]
    return found
