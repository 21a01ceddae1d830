"""Differences of figures within one run of each variant, with intervals by batches of its requests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from llmqsim.metrics import differences
from llmqsim.metrics.differences import Places
from llmqsim.metrics.stats import BATCHES, Interval
from llmqsim.planner.figures import SERIES, TENTHS, Metric, Seen

LEAST = 5 * BATCHES
"""requests below which no batch holds enough to say anything"""
RATES = (
    "goodput_per_s", "throughput.requests_per_s", "throughput.output_tokens_per_s", "throughput.total_tokens_per_s",
)  # fmt: skip
SUMS = ("requests.completed", "requests.rejected", "requests.timed_out", "preemptions")


def difference(metric: Metric, base: Seen, other: Seen, group: str | None) -> Interval | None:
    """other less base; None where the requests say nothing of how well the figure is known (figures of steps, maxima, a
    group of fewer than LEAST requests). low, high of None: they do, and there are too few.

    group : a name of Seen.groups, None for all requests. Both must have the figure.
    """
    head, _, statistic = metric.key.partition(".")
    places = _places(metric, base, other, group)
    before, after = base.of(metric, group), other.of(metric, group)
    if places is None or statistic == "max" or before is None or after is None:
        return None
    memory = _memory(metric, base, other) if group is not None and group.startswith("time:") else 1.0
    if head in SERIES and statistic != "mean":
        one, two = (_only(seen.values[head], seen.part(group)) for seen in (base, other))
        return differences.percentile_difference(one, two, float(statistic.removeprefix("p")), places, memory)
    one, two = _influence(metric, base, group), _influence(metric, other, group)
    if one is None or two is None:
        return None
    return differences.of_parts(
        after - before,
        places.parts(one, two),
        places.active(_looked_at(metric, base, group), _looked_at(metric, other, group)),
        skewed=metric.unit != "share",
        ends=_ends(other, places.b) * after - _ends(base, places.a) * before if metric.key in RATES else None,
        memory=memory,
    )


def same_requests(base: Seen, other: Seen) -> bool:
    """Do rows stand for the same requests in both?"""
    return base.lengths.shape == other.lengths.shape and np.array_equal(base.lengths, other.lengths)


def _places(metric: Metric, base: Seen, other: Seen, group: str | None) -> Places | None:
    """Batches in the order in which requests were due; None where there are too few."""
    if same_requests(base, other):
        rows = _in_order(base, base.counted(metric, group) | other.counted(metric, group))
        place = differences.placed(rows, len(base.rows))
        return Places(place, place, True) if len(rows) >= LEAST else None
    found = []
    for seen in (base, other):
        rows = _in_order(seen, seen.counted(metric, group))
        if len(rows) < LEAST:
            return None
        found.append(differences.placed(rows, len(seen.rows)))
    return Places(found[0], found[1], False)


def _memory(metric: Metric, base: Seen, other: Seen) -> float:
    """How long differences last, of the whole run: of the figure, or of the mean that goes with a percentile."""
    head, _, statistic = metric.key.partition(".")
    mean = metric if metric.key == "attainment" or statistic == "mean" else replace(metric, key=f"{head}.mean")
    one, two = _influence(mean, base, None), _influence(mean, other, None)
    if one is None or two is None:
        return 1.0
    rows = _in_order(base, base.counted(mean, None)), _in_order(other, other.counted(mean, None))
    return differences.memory(one[rows[0]], two[rows[1]], shorter=TENTHS)


def _in_order(seen: Seen, part: np.ndarray) -> np.ndarray:
    """The rows of a mask (bool[rows]) as they were due, int64[k]."""
    rows = np.flatnonzero(part)
    return rows[np.argsort(seen.due_s[rows], kind="stable")]


def _only(values: np.ndarray, part: np.ndarray) -> np.ndarray:
    return np.where(part, values, np.nan)


def _looked_at(metric: Metric, seen: Seen, group: str | None) -> np.ndarray:
    """What each request adds, plainly: two runs differ in a request where this does. float64[rows], 0 for nothing."""
    head, part = metric.key.split(".")[0], seen.counted(metric, group)
    if metric.key == "attainment":
        column = np.where(seen.asked, 1.0 + seen.met, 0.0)
    elif metric.key == "fairness" or head in SERIES:
        column = np.nan_to_num(seen.values["slowdown" if metric.key == "fairness" else head])
    else:
        column = seen.counts["gaps_s" if head == "itl_s" else metric.key]
    return np.where(part, column, 0.0)


def _influence(metric: Metric, seen: Seen, group: str | None) -> np.ndarray | None:
    """What each request adds to the error of a figure, float64[rows]; None where requests do not tell it."""
    head, part = metric.key.split(".")[0], seen.counted(metric, group)
    if metric.key == "attainment":
        return differences.of_mean(np.where(part, seen.met.astype(float), np.nan))
    if metric.key == "fairness":
        with np.errstate(divide="ignore"):
            return differences.of_jain(_only(1 / seen.values["slowdown"], part))
    if head in SERIES:
        return differences.of_mean(_only(seen.values[head], part))
    if group is not None:
        return None
    if metric.key == "itl_s.mean":
        return differences.of_ratio(*(np.where(part, seen.counts[key], 0.0) for key in ("gaps_s", "gaps")))
    if metric.key in RATES:
        return differences.of_ratio(np.where(part, seen.counts[metric.key], 0.0), _spacing(seen, part))
    if metric.key in SUMS:
        return part.sum() * differences.of_mean(_only(seen.counts[metric.key], part))
    return None


def _spacing(seen: Seen, part: np.ndarray) -> np.ndarray:
    """Seconds from when each request was due to the next one, float64[rows]: the time that rates are over."""
    rows, found = _in_order(seen, part), np.zeros(len(part))
    found[rows[:-1]] = np.diff(seen.due_s[rows])
    return found


def _ends(seen: Seen, place: np.ndarray) -> np.ndarray:
    """Share of the run's time between when the last request was due and when all were answered, if the run ended after
    each batch; float64[BATCHES]. A rate is over this time too, and only the end of the run says how long it is."""
    counted = place < BATCHES
    last_due, last_done = np.full((2, BATCHES), -np.inf)
    np.maximum.at(last_due, place[counted], seen.due_s[counted])
    np.maximum.at(last_done, place[counted], np.nan_to_num(seen.done_s[counted], nan=-np.inf))
    late = np.maximum(np.maximum.accumulate(last_done) - np.maximum.accumulate(last_due), 0.0)
    whole = np.maximum.accumulate(last_done)[-1] - seen.due_s[counted].min()
    return late / whole if whole > 0 else np.zeros(BATCHES)
