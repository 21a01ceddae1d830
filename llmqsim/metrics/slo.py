"""Who got what was promised: attainment over the requests that were due, and goodput.

A request meets the SLO when it completed and every target of its class holds (at most the target), counted from when it
was due (or sent: `slo.counted_from`). Rejected and timed-out requests are misses, or overload would flatter itself. Who is
still under way when the run ends is a miss where a target is broken already; else nothing is known yet, and the request is
*undecided*: counted apart and in no share. A one-token request has no TPOT, so a TPOT target can't be missed by it.
Requests of a class without any target are in no share.

`stand` and `stand_all` are the one place where any of this is decided; `verdict_of` is the one place where a share becomes
"met".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from llmqsim.metrics.distribution import NS_PER_S, ratio
from llmqsim.metrics.latency import completed
from llmqsim.requests import UNSET, Outcome, RequestTable

TARGETS: tuple[str, ...] = ("ttft_s", "tpot_s", "e2e_s")
DUE, SENT = "due", "sent"
MET, NOT_MET, UNDECIDED = "met", "not_met", "undecided"
MOST_UNDECIDED = 0.02
"""share of the requests due that may be undecided in a run whose SLO is called met"""


def targets_of(slo: dict) -> dict[str, float]:
    """The latency targets that an `slo` mapping sets, seconds."""
    return {t: slo[t] for t in TARGETS if slo.get(t) is not None}


def counted_from(slo: dict) -> str:
    """DUE or SENT: what an `slo` mapping counts from."""
    return slo.get("counted_from", DUE)


@dataclass(frozen=True)
class Promise:
    """Targets of each request: those of its class where `own` (class name -> slo) has it, else `slo`."""

    slo: dict = field(default_factory=dict)
    own: dict[str, dict] = field(default_factory=dict)

    def of_class(self, name: str) -> dict:
        """The slo mapping that holds for a class."""
        return self.own.get(name, self.slo)

    def limits_s(self, table: RequestTable, target: str) -> np.ndarray:
        """One target, seconds, float64[rows]; NaN where a request has none."""
        by_class = [targets_of(self.of_class(name)).get(target, np.nan) for name in table.classes]
        return np.array(by_class)[table.class_id]

    def targets(self, table: RequestTable) -> list[str]:
        """The targets that any class has."""
        return [t for t in TARGETS if any(t in targets_of(self.of_class(name)) for name in table.classes)]

    def given(self, table: RequestTable) -> np.ndarray:
        """Mask of the requests that were promised anything, bool[rows]."""
        return np.array([bool(targets_of(self.of_class(name))) for name in table.classes], dtype=bool)[table.class_id]

    def start_ns(self, table: RequestTable) -> np.ndarray:
        """When the clock of each request starts, int64[rows]; UNSET where it was never sent and that is what counts."""
        ways = [counted_from(self.of_class(name)) for name in table.classes]
        if SENT not in ways:
            return table.intended_ns
        sent = np.array([way == SENT for way in ways], dtype=bool)[table.class_id]
        return np.where(sent, table.arrival_ns, table.intended_ns)


class Run(Protocol):
    """What of a result is judged. due : bool[rows], due before the end, less the warm-up."""

    @property
    def table(self) -> Any: ...
    @property
    def promise(self) -> Promise: ...
    @property
    def promised(self) -> np.ndarray: ...
    @property
    def end_ns(self) -> int: ...


@dataclass(frozen=True)
class Standing:
    """How requests stand by what they were promised when the run ends, bool[rows] each.

    met : kept it. asked : those that can be judged; who is asked and not met has missed. undecided : still under way and
    not late yet. done : asked and completed.
    """

    met: np.ndarray
    asked: np.ndarray
    undecided: np.ndarray
    done: np.ndarray

    @property
    def share(self) -> float | None:
        """Of those that can be judged, the share that kept it; None where there are none."""
        return ratio(int(self.met.sum()), int(self.asked.sum()))

    @property
    def completed_share(self) -> float | None:
        """Of those that were completed, the share that kept it: what a client sees that reports answers only."""
        return ratio(int(self.met.sum()), int(self.done.sum()))

    @property
    def undecided_share(self) -> float:
        """Of those that were due, the share that is undecided."""
        return ratio(int(self.undecided.sum()), int(self.asked.sum()) + int(self.undecided.sum())) or 0.0


def meets(table: RequestTable, target: str, limit_s: float | np.ndarray, start_ns: np.ndarray) -> np.ndarray:
    """Mask of the completed requests that keep one target, bool[rows]; NaN limits are kept. `target` is of TARGETS."""
    if target == "ttft_s":
        value_ns = table.first_token_ns - start_ns
    elif target == "e2e_s":
        value_ns = table.finish_ns - start_ns
    elif target == "tpot_s":
        gaps = table.generated_tokens - 1
        value_ns = np.where(gaps > 0, (table.finish_ns - table.first_token_ns) / np.maximum(gaps, 1), 0.0)
    else:
        raise KeyError(target)
    return completed(table) & ((value_ns / NS_PER_S <= limit_s) | np.isnan(limit_s))


def late(table: RequestTable, target: str, limit_s: float | np.ndarray, start_ns: np.ndarray, end_ns: int) -> np.ndarray:
    """Mask of the requests that can't keep one target any more when the run ends, were they to go on, bool[rows].

    TTFT: the first token came too late, or has not come and the time is over. E2E: the time is over. TPOT: even if the
    last token came at once, the answer, whose length the run knows, took too long from its first token.
    """
    begun = table.first_token_ns != UNSET
    if target == "ttft_s":
        least_ns = np.where(begun, table.first_token_ns, end_ns) - start_ns
    elif target == "e2e_s":
        least_ns = end_ns - start_ns
    elif target == "tpot_s":
        least_ns = np.where(begun, end_ns - table.first_token_ns, 0) / np.maximum(table.output_tokens - 1, 1)
    else:
        raise KeyError(target)
    return least_ns / NS_PER_S > limit_s


def _stand(
    table: RequestTable,
    limits_s: Mapping[str, float | np.ndarray],
    start_ns: np.ndarray,
    rows: np.ndarray,
    end_ns: int,
) -> Standing:
    rows = rows & (start_ns != UNSET)
    done = rows & completed(table)
    met, undecided = done, rows & (table.outcome == Outcome.UNFINISHED)
    anybody = bool(undecided.any())
    for target, limit_s in limits_s.items():
        met = met & meets(table, target, limit_s, start_ns)
        if anybody:
            undecided = undecided & ~late(table, target, limit_s, start_ns, end_ns)
    return Standing(met, rows & ~undecided, undecided, done)


def stand_all(run: Run, rows: np.ndarray | None = None) -> Standing:
    """Every request by all targets of its class. rows : bool[rows]; None for all that count."""
    table, promise = run.table, run.promise
    rows = (run.promised if rows is None else rows) & promise.given(table)
    limits = {target: promise.limits_s(table, target) for target in promise.targets(table)}
    return _stand(table, limits, promise.start_ns(table), rows, run.end_ns)


@dataclass(frozen=True)
class Objective:
    """The one form of every SLO: at least `share` of the requests due meet all of `limits_s` (target -> seconds).

    A percentile target is such a share with one limit: P99 at most 500 ms is 99 % at 500 ms or less, where a request
    that was rejected or timed out is a miss. part : the class that it is of; None for all requests. counted_from : DUE or
    SENT.
    """

    name: str
    limits_s: dict[str, float]
    share: float
    part: str | None = None
    counted_from: str = DUE

    @property
    def label(self) -> str:
        """"attainment", "ttft_p99", with the class before it where it is of one."""
        return self.name if self.part is None else f"{self.part}: {self.name}"

    def asked(self, table: RequestTable, rows: np.ndarray) -> np.ndarray:
        """Those of a mask (bool[rows]) that it is about: a percentile of TPOT is of requests that have one."""
        if self.part is not None:
            rows = rows & (table.class_id == table.classes.index(self.part))
        if self.name.startswith("tpot_p"):
            rows = rows & ~(completed(table) & (table.generated_tokens < 2))
        return rows

    def start_ns(self, table: RequestTable) -> np.ndarray:
        """When the clock of each request starts, int64[rows]."""
        return table.arrival_ns if self.counted_from == SENT else table.intended_ns


def stand(run: Run, one: Objective, rows: np.ndarray | None = None) -> Standing:
    """The requests that an objective is about, by its limits. rows : bool[rows]; None for all that count."""
    table = run.table
    rows = one.asked(table, run.promised if rows is None else rows)
    return _stand(table, one.limits_s, one.start_ns(table), rows, run.end_ns)


def verdict_of(seen: Standing, wanted: float, stability: str) -> tuple[str | None, str | None]:
    """MET, NOT_MET or UNDECIDED, and why it is undecided; None where nobody was due.

    stability : the run's verdict. NOT_MET: the share is too low, and would be with all of the undecided on time. MET: it
    is reached, at most MOST_UNDECIDED are undecided, and the run settled; a backlog that grows, or may, says nothing good
    of a longer run.
    """
    met, asked, left = int(seen.met.sum()), int(seen.asked.sum()), int(seen.undecided.sum())
    if not asked + left:
        return None, None
    at_best = (met + left) / (asked + left)
    if at_best < wanted:
        return NOT_MET, None
    if seen.undecided_share > MOST_UNDECIDED:
        return UNDECIDED, f"{100 * seen.undecided_share:.3g} % are under way, not late yet and left out"
    if met < wanted * asked:
        return NOT_MET, None
    if stability != "stable":
        return UNDECIDED, f"the run is {stability}"
    return MET, None


def objectives_of(slo: dict, part: str | None = None) -> list[Objective]:
    """The objectives in one `slo` mapping (keys ttft_s, ttft_p99_s ..., attainment, counted_from)."""
    found, start = [], counted_from(slo)
    if targets_of(slo):
        found.append(Objective("attainment", targets_of(slo), slo.get("attainment", 0.95), part, start))
    for key, limit in slo.items():
        target, _, percent = key.removesuffix("_s").partition("_p")
        if percent:
            limits = {f"{target}_s": limit}
            found.append(Objective(f"{target}_p{percent}", limits, int(percent) / 100, part, start))
    return found


def objectives(promise: Promise, classes: tuple[str, ...]) -> list[Objective]:
    """Every objective of a run: class by class where a class has an SLO of its own."""
    if not promise.own:
        return objectives_of(promise.slo)
    return [one for name in classes for one in objectives_of(promise.of_class(name), name)]


def told(seen: Standing, wanted: float | None, stability: str) -> dict[str, Any]:
    """met, verdict, why, undecided."""
    verdict, why = (None, None) if wanted is None else verdict_of(seen, wanted, stability)
    return {
        "met": None if verdict in (None, UNDECIDED) else verdict == MET,
        "verdict": verdict,
        "why": why,
        "undecided": {"count": int(seen.undecided.sum()), "share": seen.undecided_share},
    }


def kept(run: Run, one: Objective, rows: np.ndarray, stability: str) -> dict[str, Any]:
    """How one objective was kept by the requests of a mask (bool[rows]): limits, share asked for, share, verdict."""
    seen = stand(run, one, rows)
    return {
        "name": one.name,
        "limits_s": one.limits_s,
        "asked": one.share,
        "share": seen.share,
        **told(seen, one.share, stability),
        "completed_share": seen.completed_share,
    }


def report(run: Run, rows: np.ndarray, slo: dict, stability: str) -> dict[str, Any]:
    """targets, share by target, the attainment asked for, whether it was met, who is undecided, and percentile targets.

    slo : the one shown: the scenario's, or that of a class whose rows (bool[rows], due, less the warm-up) these are. A
    share is None where no request has the target: every class may have others of its own. stability : of the run.
    """
    table, promise = run.table, run.promise
    seen = stand_all(run, rows)
    wanted = slo.get("attainment") if targets_of(slo) else None
    by_target: dict[str, float | None] = {}
    start_ns = promise.start_ns(table)
    for target in TARGETS:
        limits_s = promise.limits_s(table, target)
        asked = rows & ~np.isnan(limits_s)
        if asked.any() or target in targets_of(slo):
            by_target[target] = _stand(table, {target: limits_s}, start_ns, asked, run.end_ns).share
    return {
        "targets": targets_of(slo),
        "by_target": by_target,
        "target": wanted,
        **told(seen, wanted, stability),
        "completed_share": seen.completed_share,
        "counted_from": counted_from(slo),
        "percentiles": [kept(run, one, rows, stability) for one in objectives_of(slo) if one.name != "attainment"],
    }
