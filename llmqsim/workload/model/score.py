"""How well models stand for a trace: fitted on its first two thirds, judged on those and on the last third.

Beside every model stands plain resampling of the first two thirds: what knowing the past perfectly would give. Nobody
who knows only the past does better but by luck, so its error is the drift floor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from llmqsim import rng
from llmqsim.workload.fit import MIN_ROWS, split_in_time
from llmqsim.workload.inspection import demand
from llmqsim.workload.inspection.arrivals import dispersion
from llmqsim.workload.inspection.inspect import plain
from llmqsim.workload.model.candidates import Candidate, candidates
from llmqsim.workload.model.mixes import EVENLY, KV_TOLERANCE, LENGTH_TOLERANCE, even_lengths, kv_p99, length_figures
from llmqsim.workload.model.traffic import TrafficModel, draw_traffic, sizes
from llmqsim.workload.trace import Trace

WAIT_TOLERANCE, LIGHT_TOLERANCE = 0.2, 0.35
"""of P99 wait, in sample, and out of sample unless the drift floor is higher; of P99 wait at light load, in sample"""
SHARES = (1.0, demand.LIGHT_LOAD / demand.LOAD)
"""factors on service at which waits are compared"""
DRAWS = 24
"""traces drawn of each model, and stretches of the first two thirds, that waits are judged on"""
FEWEST_ROWS = 2 * MIN_ROWS
MOST_ROWS = 4_000_000
"""requests drawn for one model's waits in all"""
WITHIN = (0.1, 0.9)
"""quantiles of a model's own drawings between which the trace's wait counts as met"""


@dataclass(frozen=True)
class Figures:
    """What is compared: {"prompt mean": …, …}, P99 of KV-time, dispersion at 60 s, P99 wait (medians of drawings)."""

    lengths: dict[str, float]
    kv_p99: float
    dispersion_60s: float | None
    wait_p99_s: float | None
    light_wait_p99_s: float | None
    """P99 wait where the same server is twice as fast, and works half as much of the time"""


@dataclass(frozen=True)
class Scored:
    """A model and its errors, relative to what they stand for; those of waits are of the median drawing."""

    name: str
    about: str
    numbers: int
    """numbers that it is told by"""
    in_sample: Figures
    lengths_error: float
    """largest of mean, P50, P95, P99 of prompt and output, in sample"""
    lengths_worst: str
    kv_error: float
    wait_error: float | None
    """of the median drawing, in sample"""
    light_wait_error: float
    wait_met: bool | None
    """both within tolerance, or the trace's waits are such as the model often has"""
    late_lengths_error: float
    late_kv_error: float
    late_wait_error: float | None
    """of the median drawing as long as the last third"""
    key: str = ""


@dataclass(frozen=True)
class TrafficFit:
    """The table: models from the smallest on, resampling last, which one is chosen, and why."""

    source: str
    rows: int
    early_rows: int
    trace: Figures
    """of the first two thirds"""
    late: Figures
    scored: tuple[Scored, ...]
    floor: Scored
    chosen: str
    why: str

    def to_dict(self) -> dict[str, Any]:
        """For JSON: what is not known is null."""
        return plain(asdict(self))


def fit_traffic(trace: Trace, say: Callable[[str], None] = lambda _: None) -> TrafficFit:
    """Fit every candidate on the first two thirds of a trace with times, and judge it. say : told each name."""
    early, late = split_in_time(trace)
    past, coming = _part(trace, early), _part(trace, late)
    amount = demand.work(past.prompt_tokens, past.output_tokens)
    per = demand.service_per_work(past.arrival_s, amount)
    seen, next_seen = _observed(past, per), _observed(coming, per)
    scored = []
    for one in candidates(past, trace.start_s):
        say(one.name)
        scored.append(_score(one, past, coming, per, seen, next_seen))
    scored.sort(key=lambda one: one.numbers)
    floor = _floor(past, coming, per, seen, next_seen)
    chosen, why = _choose(scored)
    return TrafficFit(trace.source, len(trace), len(past), seen, next_seen, tuple(scored), floor, chosen, why)


def _part(trace: Trace, where: slice) -> Trace:
    labels = {name: column[where] for name, column in trace.labels.items()}
    return Trace(trace.arrival_s[where], trace.prompt_tokens[where], trace.output_tokens[where], trace.source,
                 labels=labels, start_s=trace.start_s)  # fmt: skip


def _observed(part: Trace, per: float) -> Figures:
    prompt, output = part.prompt_tokens, part.output_tokens
    service = demand.work(prompt, output) * per
    waits = [demand.p99_wait(part.arrival_s, service * share) for share in SHARES]
    return Figures(length_figures(prompt, output), kv_p99(prompt, output), dispersion(part.arrival_s, 60.0).index,
                   waits[0], waits[1])  # fmt: skip


def _score(one: Candidate, past: Trace, coming: Trace, per: float, seen: Figures, next_seen: Figures) -> Scored:
    prompt, output = _lengths(one.model)
    lengths, kv = length_figures(prompt, output), kv_p99(prompt, output)
    waits, spreads = _drawn_waits(one.model, past, per)
    later, _ = _drawn_waits(one.model, coming, per)
    median, light = np.median(waits, axis=0).tolist()
    true = (seen.wait_p99_s or 0.0, seen.light_wait_p99_s or 0.0)
    errors = (_relative(median, true[0]), _relative(light, true[1]))
    low, high = (np.quantile(waits, level, axis=0).tolist() for level in WITHIN)
    met = all(abs(errors[i]) <= (WAIT_TOLERANCE, LIGHT_TOLERANCE)[i] or low[i] <= true[i] <= high[i] for i in range(2))
    worst, largest = _worst(lengths, seen.lengths)
    return Scored(
        one.name, one.about, sizes(one.model.streams), Figures(lengths, kv, spreads, median, light), largest, worst,
        _relative(kv, seen.kv_p99), errors[0], errors[1], met, _worst(lengths, next_seen.lengths)[1], _relative(kv, next_seen.kv_p99),
        _error_of_median(later[:, 0], next_seen.wait_p99_s), one.key,
    )  # fmt: skip


def _lengths(model: TrafficModel) -> tuple[np.ndarray, np.ndarray]:
    """Lengths in the shares that the model gives to its mixes, evenly drawn, int64[about EVENLY] each."""
    parts = []
    for stream in model.streams:
        shares = np.ones(1)
        if stream.regimes is not None and len(stream.lengths) > 1:
            busy = stream.regimes.stationary() * stream.regimes.rate
            shares = np.bincount(stream.regimes.lengths, weights=busy, minlength=len(stream.lengths))
        shares = shares / shares.sum() * stream.rate / model.rate
        parts += [even_lengths(mix, max(1, round(share * EVENLY))) for mix, share in zip(stream.lengths, shares, strict=True)]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _drawn_waits(model: TrafficModel, like: Trace, per: float) -> tuple[np.ndarray, float | None]:
    """P99 waits of drawings as long as a part of the trace, float64[draws, 2] s, and the median dispersion at 60 s."""
    span = float(like.arrival_s[-1] - like.arrival_s[0])
    draws = int(np.clip(MOST_ROWS // max(len(like), 1), 4, DRAWS))
    found, spread = [], []
    for replication in range(draws):
        made = draw_traffic(model, 0, replication, None, span)
        if len(made) < 2:
            found.append([0.0, 0.0])
            continue
        service = demand.work(made.prompt_tokens, made.output_tokens) * per
        found.append([demand.p99_wait(made.arrival_s, service * share) for share in SHARES])
        spread.append(dispersion(made.arrival_s, 60.0).index)
    known = [one for one in spread if one is not None]
    return np.array(found), float(np.median(known)) if known else None


def _floor(past: Trace, coming: Trace, per: float, seen: Figures, next_seen: Figures) -> Scored:
    """Stretches of the first two thirds, as long as the last, begun at random (the end goes on at the beginning)."""
    draw = rng.stream(0, 0, "traffic_floor")
    first, span = float(past.arrival_s[0]), float(past.arrival_s[-1] - past.arrival_s[0])
    length = float(coming.arrival_s[-1] - coming.arrival_s[0])
    amount = demand.work(past.prompt_tokens, past.output_tokens) * per
    gap = span / max(len(past) - 1, 1)
    found = []
    for _ in range(DRAWS):
        begin = draw.random() * (span + gap)
        since = (past.arrival_s - first - begin) % (span + gap)
        mine = since < length
        order = np.argsort(since[mine], kind="stable")
        if len(order) > 1:
            found.append(demand.p99_wait(since[mine][order], amount[mine][order]))
    lengths = seen.lengths
    waits = np.array(found)
    return Scored(
        "resampled", "the first two thirds themselves: the drift floor", len(past), seen, 0.0, "",
        0.0, 0.0, 0.0, True, _worst(lengths, next_seen.lengths)[1], _relative(seen.kv_p99, next_seen.kv_p99),
        _error_of_median(waits, next_seen.wait_p99_s),
    )  # fmt: skip


def _relative(value: float, true: float | None) -> float:
    if not true:
        return 0.0 if value == 0 else float("inf")
    return value / true - 1


def _error_of_median(values: np.ndarray, true: float | None) -> float | None:
    return None if not true or not len(values) else _relative(float(np.median(values)), true)


def _worst(lengths: dict[str, float], true: dict[str, float]) -> tuple[str, float]:
    errors = {name: abs(_relative(value, true[name])) for name, value in lengths.items()}
    name = max(errors, key=lambda key: errors[key])
    return name, errors[name]


def lengths_fit(one: Scored) -> bool:
    """Lengths and KV-time in sample within tolerance?"""
    return one.lengths_error <= LENGTH_TOLERANCE and abs(one.kv_error) <= KV_TOLERANCE


def _wait_off(one: Scored) -> float:
    """The larger error of waits; half is as far as double."""
    return max(max(error, 1 / max(1 + error, 1e-9) - 1) for error in (one.wait_error or 0.0, one.light_wait_error))


def _choose(scored: list[Scored]) -> tuple[str, str]:
    """The smallest model whose lengths and waits are within tolerance in sample; else the smallest that often has the
    trace's wait; else the one with the least error of waits."""
    fit = [one for one in scored if lengths_fit(one)]
    close = [one for one in fit if abs(one.wait_error or 0.0) <= WAIT_TOLERANCE and abs(one.light_wait_error) <= LIGHT_TOLERANCE]
    often = [one for one in fit if one.wait_met]
    if found := close or often:
        one = found[0]
        smaller = [s.name for s in scored[: scored.index(one)]]
        why = f"the smallest within tolerance in sample; not so {', '.join(smaller)}" if smaller else "the smallest"
        if not close:
            why += (f". Its P99 waits are off by {one.wait_error or 0:+.0%} and {one.light_wait_error:+.0%}, but the trace's "
                    "lie among the middle 80 % of its drawings")  # fmt: skip
        return one.name, why
    one = min(fit or scored, key=_wait_off)
    return one.name, "none is within tolerance in sample; it has the least error of waits" + (
        "" if fit else ", and no model's lengths are within tolerance")


def fit_again(trace: Trace, fit: TrafficFit) -> TrafficModel:
    """The chosen kind of model on all rows; the most alike where the whole trace has no such one."""
    keys = {one.name: one.key for one in fit.scored}
    found = {one.key: one.model for one in candidates(trace, trace.start_s)}
    model = found.get(keys[fit.chosen]) or found["gaps"]
    chosen = next(one for one in fit.scored if one.name == fit.chosen)
    errors = {
        "model": fit.chosen,
        "in_sample": {"lengths": round(chosen.lengths_error, 4), "kv_p99": round(chosen.kv_error, 4),
                      "p99_wait": round(chosen.wait_error or 0.0, 4)},
        "last_third": {"lengths": round(chosen.late_lengths_error, 4), "kv_p99": round(chosen.late_kv_error, 4),
                       "p99_wait": round(chosen.late_wait_error or 0.0, 4),
                       "p99_wait_drift_floor": round(fit.floor.late_wait_error or 0.0, 4)},
    }  # fmt: skip
    return replace(model, about={"source": trace.source, "rows": len(trace), "fit": errors})


def enough(trace: Trace) -> bool:
    """Are there times and rows enough to fit arrivals?"""
    return trace.has_times and len(trace) >= FEWEST_ROWS and bool(trace.arrival_s[-1] > trace.arrival_s[0])
