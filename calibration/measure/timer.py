"""Timing one call: warm-up, a window of many calls, repeats with their spread. Knows no GPU."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from .backend import CannotMeasure, Prepared


@dataclass(frozen=True)
class Effort:
    """How hard to try for one shape."""

    window_s: float = 0.01
    """a window lasts about this long: far above the resolution of events, short enough to keep a GPU cool"""
    warm_up_s: float = 0.05
    """clocks rise and caches of code fill in the meantime"""
    repeats: int = 5
    most_repeats: int = 15
    steady_spread: float = 0.05
    """(max - min) / median of the repeats above which more are made"""
    most_calls: int = 256
    """in a window; a CUDA graph of so many kernels is captured in milliseconds"""


@dataclass(frozen=True)
class Timing:
    """One call's time in microseconds: median and least of n_rep windows, and (max - min) / median of them."""

    latency_us: float
    lat_min_us: float
    n_rep: int
    rep_spread: float
    calls: int


def measure(prepared: Prepared, effort: Effort) -> Timing:
    """Time one prepared shape. Raises CannotMeasure for times that are not positive and finite."""
    pilot = prepared.window(prepared.copies)
    _checked(pilot)  # compiles, tunes itself, touches every buffer: never counted
    one = _checked(pilot) / prepared.copies
    calls = min(effort.most_calls, max(prepared.copies, math.ceil(effort.window_s / one)))
    window = pilot if calls == prepared.copies else prepared.window(calls)
    for _ in range(max(1, math.ceil(effort.warm_up_s / (one * calls)))):
        _checked(window)
    times = [_checked(window) / calls for _ in range(effort.repeats)]
    while _spread(times) > effort.steady_spread and len(times) < effort.most_repeats:
        times.append(_checked(window) / calls)
    micro = sorted(time * 1e6 for time in times)
    return Timing(
        latency_us=round(statistics.median(micro), 4),
        lat_min_us=round(micro[0], 4),
        n_rep=len(micro),
        rep_spread=round(_spread(times), 6),
        calls=calls,
    )


def _checked(window: Callable[[], float]) -> float:
    seconds = window()
    if not (math.isfinite(seconds) and seconds > 0):
        raise CannotMeasure(f"the clock said {seconds!r} seconds")
    return seconds


def _spread(times: list[float]) -> float:
    return (max(times) - min(times)) / statistics.median(times)
