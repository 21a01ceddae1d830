"""Backlogs of a run whose requests are gone, as every so many-th arrival found them, and the verdict on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from llmqsim.errors import InvariantError
from llmqsim.metrics.distribution import NS_PER_S, WeightedGaps
from llmqsim.metrics.growth import LEAST_DISPERSION, Growth, growth
from llmqsim.metrics.spare import NO_WAIT, Spare
from llmqsim.metrics.stability import FILLED, MIN_REQUESTS, NEVER, Observed, answer_of, judge, no_numbers
from llmqsim.records import GAP_BINS, GapHistogram
from llmqsim.requests import RequestTable

LOOKS = 1 << 16


@dataclass
class Moments:
    """Count, sum and sum of squares of a series."""

    count: int = 0
    sum: float = 0.0
    squares: float = 0.0

    def add(self, values: np.ndarray) -> None:
        """Some more values."""
        floats = values.astype(np.float64)
        self.count += len(floats)
        self.sum += float(floats.sum())
        self.squares += float((floats * floats).sum())

    @property
    def spread(self) -> float:
        """Squared coefficient of variation."""
        mean = self.sum / self.count if self.count else 0.0
        return max(0.0, self.squares / self.count - mean * mean) / mean**2 if mean else 0.0


@dataclass(frozen=True, kw_only=True)
class _Looked(Observed):
    """What the verdict rests on, as looks have it: `arrival` has their times, `scheduled` the last start alone.

    at_looks : requests waiting and in the system at each. per_look : requests for each look. seen_at_once : so many
    requests until the last that was taken up at once, and how many were. bursts : squared CV of gaps between arrivals.
    """

    at_looks: tuple[np.ndarray, np.ndarray]
    per_look: float
    seen_at_once: tuple[int, int]
    bursts: float

    @cached_property
    def waiting(self) -> np.ndarray:
        """Requests not scheduled yet at each look, int64[looks]."""
        return self.at_looks[0]

    @cached_property
    def inside(self) -> np.ndarray:
        """Requests in the system at each look, int64[looks]."""
        return self.at_looks[1]

    def queue(self) -> Growth:
        """How the requests that wait moved."""
        return self._whole(self.waiting)

    def spare(self, queue: Growth, lost: int = 0) -> Spare:
        """Evidence that more could have been served."""
        servers = max(1, int((self.inside - self.waiting).max()))
        noise = max(queue.dispersion, self.bursts + self.service_spread)
        return Spare(*self.seen_at_once, noise, servers, self.replicas, self.bursts, lost)

    def crowd(self) -> tuple[Growth, Growth] | None:
        """How the requests in the system moved after the first answers, and in the second half of that."""
        first = int(np.searchsorted(self.arrival, self.arrival[0] + self.early_service_ns))
        inside = self.inside[first:]
        if len(inside) < MIN_REQUESTS // 2:
            return None
        return self._whole(inside), self._whole(inside[len(inside) // 2 :])

    def _whole(self, seen: np.ndarray) -> Growth:
        """Growth in units of requests: looks are fewer, and what varies between them is of all that came meanwhile."""
        found = growth(seen)
        requests = round(found.arrivals * self.per_look)
        told = found.dispersion * found.arrivals / requests
        return replace(found, arrivals=requests, dispersion=max(told, LEAST_DISPERSION))


class Backlog:
    """What arrivals found, and how long answers take. rows : of the run."""

    def __init__(self, rows: int):
        self.every, self._rows = max(1, rows // LOOKS), rows
        looks = -(-rows // self.every)
        self.looks_ns = np.empty(looks, dtype=np.int64)
        self._before = np.empty(looks, dtype=np.int64)
        self._started, self._left = np.zeros((2, looks + 1), dtype=np.int64)
        self._due, self._looked, self._served, self._over = 0, 0, 0, 0
        self._last_due_ns = -1
        self.gaps, self.services = Moments(), Moments()
        self._service = np.zeros(GAP_BINS, dtype=np.int64)
        self._early: np.ndarray | None = None
        self._fresh: np.ndarray | None = None
        self._usual: tuple[int, int, int] | None = None
        self._at_once, self._last_at_once, self._last_start_ns, self._last_left_ns = 0, 0, 0, 0

    def due(self, part: RequestTable, sent: np.ndarray) -> None:
        """The next requests are drawn. sent : bool[rows], not refused."""
        due_ns, first = part.intended_ns, self._due
        looks = np.arange(-first % self.every, len(part), self.every)
        mine = slice(self._looked, self._looked + len(looks))
        self.looks_ns[mine] = due_ns[looks]
        self._before[mine] = self._served + (np.cumsum(sent) - sent)[looks]
        self._looked += len(looks)
        self._due += len(part)
        self._served += int(sent.sum())
        gaps = np.diff(due_ns[sent], prepend=[self._last_due_ns] if self._last_due_ns >= 0 else [])
        self.gaps.add(gaps)
        self._last_due_ns = int(due_ns[-1])

    def left(self, part: RequestTable, done: np.ndarray) -> None:
        """The next requests are over. done : bool[rows], completed; who is not was refused."""
        from llmqsim.metrics.folded import bins_of

        started, finish = part.first_scheduled_ns[done], part.finish_ns[done]
        service = finish - started - part.wait_preempted_ns[done]
        kept = started - part.intended_ns[done] - part.wait_step_ns[done]
        if self._usual is None and len(service):
            p90 = int(np.quantile(service, 0.9))
            self._usual = int(kept.min()), int(np.median(service)), int(part.intended_ns[0]) + FILLED * p90
        if self._usual is not None:
            least, middle, filled_ns = self._usual
            once = np.flatnonzero((kept - least <= NO_WAIT * middle) & (part.intended_ns[done] > filled_ns))
            self._at_once += len(once)
            if len(once):
                self._last_at_once = self._over + int(once[-1]) + 1
        for counts, times in ((self._started, started), (self._left, finish)):
            where = np.searchsorted(self.looks_ns[: self._looked], times)
            if self._looked < len(self.looks_ns) and len(where) and where.max() == self._looked:
                raise InvariantError("a request was over later than any that is drawn")
            counts += np.bincount(where, minlength=len(counts))
        if len(service):
            self._service += np.bincount(bins_of(service), minlength=GAP_BINS)
            self._last_start_ns = max(self._last_start_ns, int(started.max()))
            self._last_left_ns = max(self._last_left_ns, int(finish.max()))
        self.services.add(service)
        self._over += len(part)
        if self._fresh is None and self._over >= self._rows // 20:
            self._fresh = self._service.copy()
        if self._early is None and self._over >= self._rows // 3:
            self._early = self._service.copy()

    def stability(self, replicas: int) -> dict:
        """The verdict (stability.stability), from every so many-th arrival."""
        if not self.services.count:
            return answer_of("unsettled", "no request was completed, so nothing can be said", no_numbers(self._served))
        waiting = self._before - np.cumsum(self._started)[:-1]
        inside = self._before - np.cumsum(self._left)[:-1]
        service, middle = _quantile(self._service, 90), _quantile(self._service, 50)
        nothing = np.zeros(0, dtype=np.int64)
        seen = _Looked(
            arrival=self.looks_ns,
            scheduled=np.array([self._last_start_ns]),
            finish=nothing,
            answered=nothing,
            service_ns=service,
            median_service_ns=middle,
            early_service_ns=service if self._early is None else _quantile(self._early, 90),
            fresh_service_ns=service if self._fresh is None else _quantile(self._fresh, 90),
            service_spread=self.services.spread,
            at_once=nothing,
            replicas=replicas,
            at_looks=(waiting, inside),
            per_look=self._served / len(self.looks_ns),
            seen_at_once=(self._last_at_once, self._at_once),
            bursts=self.gaps.spread,
        )
        return judge(seen, self._numbers(inside, service))

    def _numbers(self, inside: np.ndarray, service_ns: int) -> dict:
        looks, last = self.looks_ns, self._last_due_ns
        window = last - int(looks[0])
        half = int(np.searchsorted(looks, int(looks[0]) + window // 2))
        gone = self._before - inside
        per_s = NS_PER_S / (last - int(looks[half])) if last > int(looks[half]) else None
        return no_numbers(self._served) | {
            "window_s": window / NS_PER_S,
            "arrival_rate_per_s": None if per_s is None else int(self._before[-1] - self._before[half]) * per_s,
            "completion_rate_per_s": None if per_s is None else int(gone[-1] - gone[half]) * per_s,
            "in_system_end": int(inside[-1]) + 1,
            "in_system_peak": int(inside.max()) + 1,
            "drain_s": (self._last_left_ns - last) / NS_PER_S,
            "service_p90_s": service_ns / NS_PER_S,
        }

    def peak(self) -> int:
        """The most requests in the system at any of the looks."""
        return int((self._before - np.cumsum(self._left)[:-1]).max()) + 1


def _quantile(counts: np.ndarray, percent: int) -> int:
    """A percentile, ns, of what is in these bins; within 0.2 %."""
    histogram = GapHistogram(1)
    histogram.counts[0], histogram.max_ns[0] = counts, NEVER
    seen = WeightedGaps(histogram)
    return int(seen.values[np.searchsorted(np.cumsum(seen.weights), (seen.count - 1) * percent // 100, side="right")])
