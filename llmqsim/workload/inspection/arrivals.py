"""Arrivals: gaps, counts in windows, hours of the day, and how the parts of a trace differ."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from llmqsim.workload.fit import split_in_time
from llmqsim.workload.inspection.lengths import quantile
from llmqsim.workload.trace import Trace

WINDOWS_S = (1.0, 10.0, 60.0)
FEWEST_WINDOWS = 20
"""windows below which counts say nothing"""
DAY_S, HOUR_S = 86_400.0, 3_600.0
FEWEST_DAYS = 2.0
"""days below which no hours of the day are told"""


@dataclass(frozen=True)
class Dispersion:
    """Variance over mean of the counts in windows: 1 for Poisson arrivals, within 1 ± 2 noise by chance."""

    window_s: float
    windows: int
    index: float | None
    noise: float | None
    """standard deviation of the index of Poisson arrivals, √(2 / (windows - 1))"""


@dataclass(frozen=True)
class Arrivals:
    """When requests come. Rates per second. by_hour : mean rate of each hour of the day, None where it is too short."""

    span_s: float
    rate: float
    gap_cv: float
    equal_stamps: float
    """share of requests with the stamp of the one before"""
    busiest_minute: float | None
    """requests of the busiest minute over those of a mean one"""
    longest_gap_share: float
    """longest gap over the whole span"""
    dispersion: tuple[Dispersion, ...]
    by_hour: tuple[float, ...] | None
    hours_are: str
    """"UTC", or "of the trace" where its stamps are no dates"""


@dataclass(frozen=True)
class Part:
    """A third of the trace in time (of the rows, where there are no times)."""

    rows: int
    rate: float | None
    prompt_mean: float
    prompt_p95: int
    output_mean: float
    output_p95: int


@dataclass(frozen=True)
class Drift:
    """How the last third differs from the two before. Distances are Kolmogorov-Smirnov's, noise what 5 % exceed."""

    thirds: tuple[Part, ...]
    rate_change: float | None
    prompt_distance: float
    output_distance: float
    noise: float


def of_arrivals(arrival_s: np.ndarray, start_s: float | None = None) -> Arrivals | None:
    """float64[n] s, ascending; None where fewer than two times are known, or all are one."""
    if len(arrival_s) < 2 or np.isnan(arrival_s[0]) or arrival_s[-1] <= arrival_s[0]:
        return None
    gaps = np.diff(arrival_s)
    span = float(arrival_s[-1] - arrival_s[0])
    minutes = counts_in(arrival_s, 60.0)
    hours = by_hour(arrival_s, start_s)
    return Arrivals(
        span_s=span,
        rate=len(gaps) / span,
        gap_cv=float(gaps.std() / gaps.mean()),
        equal_stamps=float(np.mean(gaps == 0)),
        busiest_minute=float(minutes.max() / minutes.mean()) if len(minutes) >= 2 else None,
        longest_gap_share=float(gaps.max() / span),
        dispersion=tuple(dispersion(arrival_s, window) for window in WINDOWS_S),
        by_hour=hours,
        hours_are="UTC" if start_s is not None else "of the trace",
    )


def counts_in(arrival_s: np.ndarray, window_s: float) -> np.ndarray:
    """Requests in each whole window from the first arrival on, int64[windows]."""
    since = arrival_s - arrival_s[0]
    windows = int(since[-1] // window_s)
    place = (since // window_s).astype(np.int64)
    return np.bincount(place[place < windows], minlength=windows)


def dispersion(arrival_s: np.ndarray, window_s: float) -> Dispersion:
    """Index of dispersion of counts; None where too few windows fit."""
    counts = counts_in(arrival_s, window_s)
    if len(counts) < FEWEST_WINDOWS or not counts.any():
        return Dispersion(window_s, len(counts), None, None)
    return Dispersion(
        window_s, len(counts), float(counts.var(ddof=1) / counts.mean()), math.sqrt(2 / (len(counts) - 1))
    )


def by_hour(arrival_s: np.ndarray, start_s: float | None) -> tuple[float, ...] | None:
    """Mean rate of each hour of the day, by how long the trace was in that hour."""
    span = arrival_s[-1] - arrival_s[0]
    if span < FEWEST_DAYS * DAY_S:
        return None
    begin = (start_s or 0.0) + arrival_s[0]
    counts = np.bincount((((start_s or 0.0) + arrival_s) % DAY_S // HOUR_S).astype(np.int64), minlength=24)
    days = np.arange(math.floor(begin / DAY_S), math.floor((begin + span) / DAY_S) + 1) * DAY_S
    starts = days[:, None] + np.arange(24) * HOUR_S
    seconds = np.clip(np.minimum(starts + HOUR_S, begin + span) - np.maximum(starts, begin), 0, None).sum(axis=0)
    return tuple((counts / seconds).tolist())


def of_drift(trace: Trace) -> Drift:
    """Thirds of a trace, and how far its last one is from the others."""
    early, late = split_in_time(trace)
    thirds = tuple(_part(trace, where) for where in _thirds(trace))
    sizes = (early.stop, len(trace) - early.stop)
    noise = 1.358 * math.sqrt(1 / max(sizes[0], 1) + 1 / max(sizes[1], 1))
    rates = [_rate(trace, where) for where in (early, late)]
    change = None if rates[0] is None or rates[1] is None else rates[1] / rates[0] - 1
    distances = [two_sample(column[early], column[late]) for column in (trace.prompt_tokens, trace.output_tokens)]
    return Drift(thirds, change, distances[0], distances[1], noise)


def two_sample(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference of two empirical CDFs; 0 where one is empty."""
    if not len(a) or not len(b):
        return 0.0
    at = np.unique(np.concatenate([a, b]))
    upper = [np.searchsorted(np.sort(x), at, side="right") / len(x) for x in (a, b)]
    return float(np.abs(upper[0] - upper[1]).max())


def _thirds(trace: Trace) -> list[slice]:
    cuts = [len(trace) // 3, 2 * len(trace) // 3]
    if trace.has_times:
        first, last = trace.arrival_s[0], trace.arrival_s[-1]
        cuts = [int(np.searchsorted(trace.arrival_s, first + (last - first) * k / 3, side="right")) for k in (1, 2)]
    return [slice(0, cuts[0]), slice(*cuts), slice(cuts[1], len(trace))]


def _rate(trace: Trace, where: slice) -> float | None:
    times = trace.arrival_s[where]
    if not trace.has_times or len(times) < 2 or times[-1] <= times[0]:
        return None
    return float((len(times) - 1) / (times[-1] - times[0]))


def _part(trace: Trace, where: slice) -> Part:
    prompt, output = trace.prompt_tokens[where], trace.output_tokens[where]
    if not len(prompt):
        return Part(0, None, 0.0, 0, 0.0, 0)
    return Part(len(prompt), _rate(trace, where), float(prompt.mean()), quantile(prompt, 0.95),
                float(output.mean()), quantile(output, 0.95))  # fmt: skip
