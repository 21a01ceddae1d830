"""Who got what was promised: attainment over arrivals, and goodput.

A request meets the SLO when it completed and every target of its class holds (at most the target). Rejected, timed-out
and unfinished requests are misses, or overload would flatter itself. A one-token request has no TPOT, so a TPOT target
can't be missed by it. Requests of a class without any target are in no share.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from llmqsim.metrics.distribution import NS_PER_S, ratio
from llmqsim.metrics.latency import completed
from llmqsim.requests import RequestTable

TARGETS: tuple[str, ...] = ("ttft_s", "tpot_s", "e2e_s")


def targets_of(slo: dict) -> dict[str, float]:
    """The latency targets that an `slo` mapping sets, seconds."""
    return {t: slo[t] for t in TARGETS if slo.get(t) is not None}


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


def meets(table: RequestTable, target: str, limit_s: float | np.ndarray) -> np.ndarray:
    """Mask of the completed requests that keep one target, bool[rows]; NaN limits are kept. `target` is of TARGETS."""
    if target == "ttft_s":
        value_ns = table.first_token_ns - table.arrival_ns
    elif target == "e2e_s":
        value_ns = table.finish_ns - table.arrival_ns
    elif target == "tpot_s":
        gaps = table.generated_tokens - 1
        value_ns = np.where(gaps > 0, (table.finish_ns - table.first_token_ns) / np.maximum(gaps, 1), 0.0)
    else:
        raise KeyError(target)
    return completed(table) & ((value_ns / NS_PER_S <= limit_s) | np.isnan(limit_s))


def meets_all(table: RequestTable, promise: Promise) -> np.ndarray:
    """Mask of the requests that completed within every target they have, bool[rows]."""
    kept = completed(table)
    for target in promise.targets(table):
        kept = kept & meets(table, target, promise.limits_s(table, target))
    return kept


def attainment(table: RequestTable, promise: Promise, rows: np.ndarray) -> float | None:
    """Share of the arrivals in a mask (bool[rows]) that meet every target; None without targets or arrivals."""
    rows = rows & promise.given(table)
    return ratio(int((meets_all(table, promise) & rows).sum()), int(rows.sum()))


@dataclass(frozen=True)
class Objective:
    """The one form of every SLO: at least `share` of the arrivals meet all of `limits_s` (target -> seconds).

    A percentile target is such a share with one limit: P99 at most 500 ms is 99 % at 500 ms or less, where a request
    that was not completed is a miss. part : the class that it is of; None for all requests.
    """

    name: str
    limits_s: dict[str, float]
    share: float
    part: str | None = None

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

    def met(self, table: RequestTable) -> np.ndarray:
        """Mask of the requests that completed within every limit, bool[rows]."""
        kept = completed(table)
        for target, limit in self.limits_s.items():
            kept = kept & meets(table, target, limit)
        return kept


def objectives_of(slo: dict, part: str | None = None) -> list[Objective]:
    """The objectives in one `slo` mapping (keys ttft_s, ttft_p99_s ..., attainment)."""
    found = []
    if targets_of(slo):
        found.append(Objective("attainment", targets_of(slo), slo.get("attainment", 0.95), part))
    for key, limit in slo.items():
        target, _, percent = key.removesuffix("_s").partition("_p")
        if percent:
            found.append(Objective(f"{target}_p{percent}", {f"{target}_s": limit}, int(percent) / 100, part))
    return found


def objectives(promise: Promise, classes: tuple[str, ...]) -> list[Objective]:
    """Every objective of a run: class by class where a class has an SLO of its own."""
    if not promise.own:
        return objectives_of(promise.slo)
    return [one for name in classes for one in objectives_of(promise.of_class(name), name)]


def kept(table: RequestTable, one: Objective, rows: np.ndarray) -> dict:
    """How one objective was kept by the requests of a mask (bool[rows]): limits, share asked for, share, met."""
    asked = one.asked(table, rows)
    share = ratio(int((one.met(table) & asked).sum()), int(asked.sum()))
    return {
        "name": one.name,
        "limits_s": one.limits_s,
        "asked": one.share,
        "share": share,
        "met": None if share is None else share >= one.share,
    }


def report(table: RequestTable, promise: Promise, rows: np.ndarray, slo: dict) -> dict:
    """targets, share by target, the attainment asked for, and whether it was met (None without an SLO).

    slo : the one shown: the scenario's, or that of a class whose rows these are. A share is None where no request has
    the target: every class may have others of its own.
    """
    share = attainment(table, promise, rows)
    wanted = slo.get("attainment") if targets_of(slo) else None
    by_target = {}
    for target in TARGETS:
        limits_s = promise.limits_s(table, target)
        asked = rows & ~np.isnan(limits_s)
        if asked.any() or target in targets_of(slo):
            by_target[target] = ratio(int((meets(table, target, limits_s) & asked).sum()), int(asked.sum()))
    return {
        "targets": targets_of(slo),
        "by_target": by_target,
        "target": wanted,
        "met": None if share is None or wanted is None else share >= wanted,
        "percentiles": [kept(table, one, rows) for one in objectives_of(slo) if one.name != "attainment"],
    }
