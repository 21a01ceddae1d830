"""The figures of a run whose requests are gone: what is added up as they end.

Counts, means, maxima, shares and rates are exact. Percentiles and standard deviations of latencies come from histograms
with the bins of records.GapHistogram (within 0.2 % and 0.4 %), and backlogs are looked at every so many arrivals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from llmqsim.metrics import groups, latency, slo
from llmqsim.metrics.distribution import WeightedGaps, exact_sum
from llmqsim.metrics.folded_backlog import Backlog
from llmqsim.metrics.starvation import EDGES
from llmqsim.records import GAP_BINS, GAP_BITS, GapHistogram
from llmqsim.requests import WAITS, RequestTable


def bins_of(values: np.ndarray) -> np.ndarray:
    """`records.gap_bin` of each value, int64[n] of 0 to 2^53."""
    exponent = np.maximum(np.frexp(values.astype(np.float64))[1] - GAP_BITS - 1, 0).astype(np.int64)
    beyond = ((exponent + 1) << GAP_BITS) + (values >> exponent) - (1 << GAP_BITS)
    return np.where(exponent > 0, beyond, values)


class Series:
    """A latency of all requests: a histogram, with its sum and its largest value exact."""

    def __init__(self) -> None:
        self.histogram = GapHistogram(1)

    def add(self, values: np.ndarray) -> None:
        """Values, ns, int64[n] or float64[n]."""
        if len(values):
            self.histogram.counts[0] += np.bincount(bins_of(values.astype(np.int64)), minlength=GAP_BINS)
            self.histogram.sum_ns[0] += cast(int, exact_sum(values))  # of floats a float
            self.histogram.max_ns[0] = max(self.histogram.max_ns[0], values.max().item())

    @property
    def seen(self) -> WeightedGaps:
        """Its figures."""
        return WeightedGaps(self.histogram)


@dataclass
class Stood:
    """How many requests stand how by what they were promised (slo.Standing)."""

    met: int = 0
    asked: int = 0
    done: int = 0

    def add(self, seen: slo.Standing) -> None:
        """Some more."""
        self.met += int(seen.met.sum())
        self.asked += int(seen.asked.sum())
        self.done += int(seen.done.sum())

    @property
    def standing(self) -> slo.Standing:
        """The same as `slo` has it; nobody is undecided, since all are over."""
        return slo.Standing(*(np.array([n]) for n in (self.met, self.asked, 0, self.done)))


@dataclass
class Sums:
    """What is added up over requests."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    entered_prompt_tokens: int = 0
    preempted: int = 0
    served: int = 0
    sent_ns: int = 0
    left_ns: int = 0
    first_ns: int = -1
    last_ns: int = 0
    last_finish_ns: int = 0
    waits_ns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WAITS, 0))


class Folded:
    """Everything that is added up. rows : of the run. replicas : of the run. promise : targets of its requests."""

    def __init__(self, rows: int, replicas: int, promise: slo.Promise, own_slo: dict[str, Any]):
        self.promise, self.own_slo, self.replicas = promise, own_slo, replicas
        self.requests: dict[str, Any] = {}
        self.series = {metric: Series() for metric in latency.REQUEST_METRICS}
        self.sums = Sums()
        self.all, self.by_target = Stood(), {target: Stood() for target in slo.TARGETS}
        self.objectives = [(one, Stood()) for one in slo.objectives_of(own_slo) if one.name != "attainment"]
        self.per_replica = np.zeros((4, replicas), dtype=np.int64)
        """requests, sum of TTFT in ns, cached tokens, prompt tokens"""
        self.without_token = {number: [0, 0, 0] for number in range(len(EDGES) + 1)}
        """requests of a size, sum and maximum of their longest time without a token, ns"""
        self.backlog = Backlog(rows)

    def add(self, part: RequestTable) -> None:
        """The next requests, all over: completed or refused."""
        rows = np.ones(len(part), dtype=bool)
        done = latency.completed(part)
        self._count(groups.counts(part, rows))
        for metric, values in latency.samples(part, rows).items():
            self.series[metric].add(values)
        self._judge(part, rows)
        self._sum(part, done)
        self._share(part, done)
        self._starve(part, done)
        self.backlog.left(part, done)

    def _count(self, found: dict[str, Any]) -> None:
        reasons = self.requests.pop("rejected_for", {})
        for name, count in found.pop("rejected_for").items():
            reasons[name] = reasons.get(name, 0) + count
        self.requests = {name: self.requests.get(name, 0) + count for name, count in found.items()}
        self.requests["rejected_for"] = reasons

    def _judge(self, part: RequestTable, rows: np.ndarray) -> None:
        run: Any = SimpleNamespace(table=part, promise=self.promise, promised=rows, end_ns=0)
        self.all.add(slo.stand_all(run))
        for target in self.promise.targets(part):
            limit = slo.targets_of(self.own_slo)[target]
            self.by_target[target].add(slo.stand(run, slo.Objective("", {target: limit}, 0.0, None, self._from)))
        for one, stood in self.objectives:
            stood.add(slo.stand(run, one))

    @property
    def _from(self) -> str:
        return slo.counted_from(self.own_slo)

    def _sum(self, part: RequestTable, done: np.ndarray) -> None:
        sums, arrival, entered = self.sums, part.arrival_ns, part.first_scheduled_ns >= 0
        sums.first_ns = int(arrival[0]) if sums.first_ns < 0 else sums.first_ns
        sums.last_ns, sums.served = int(arrival[-1]), sums.served + int(done.sum())
        sums.last_finish_ns = max(sums.last_finish_ns, int(part.finish_ns.max()))
        sums.sent_ns += int(exact_sum(arrival[done]))
        sums.left_ns += int(exact_sum(part.finish_ns[done]))
        sums.prompt_tokens += int(part.prompt_tokens[done].sum())
        sums.output_tokens += int(part.generated_tokens[done].sum())
        sums.cached_tokens += int(part.cached_tokens[entered].sum())
        sums.entered_prompt_tokens += int(part.prompt_tokens[entered].sum())
        sums.preempted += int((part.preemptions > 0).sum())
        for name in WAITS:
            sums.waits_ns[name] += int(exact_sum(getattr(part, name)[done]))

    def _share(self, part: RequestTable, done: np.ndarray) -> None:
        where, ttft = part.replica[done], (part.first_token_ns - part.arrival_ns)[done]
        for row, values in enumerate((np.ones_like(ttft), ttft, part.cached_tokens[done], part.prompt_tokens[done])):
            for index in range(self.replicas):
                self.per_replica[row, index] += values[where == index].sum()

    def _starve(self, part: RequestTable, done: np.ndarray) -> None:
        number = np.searchsorted(EDGES, part.prompt_tokens + part.output_tokens, side="right")
        without = np.maximum(np.maximum(part.first_token_ns - part.arrival_ns, part.max_itl_ns), 0)
        for at, kept in self.without_token.items():
            waited = without[done & (number == at)]
            if len(waited):
                kept[0] += len(waited)
                kept[1] += int(exact_sum(waited))
                kept[2] = max(kept[2], int(waited.max()))
