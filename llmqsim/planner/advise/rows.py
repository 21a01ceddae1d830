"""Levers measured: a first look at all of them, then paired replications of those that may help, and who pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llmqsim import progress
from llmqsim.errors import UserError
from llmqsim.metrics import stats
from llmqsim.planner.advise.levers import Lever
from llmqsim.planner.advise.marks import plain
from llmqsim.planner.advise.trial import Bench, Trial, difference
from llmqsim.planner.figures import HIGHER, Metric, Seen, length_edges, metrics
from llmqsim.planner.verdict import BETTER, WORSE, Judge, Told

LOOKS = (1.1, 1.6)
"""times the load at which the SLO breaks: where levers show whether they let more traffic in, or much more"""
WORTH = 0.002
"""attainment that a lever must gain in the first look to be measured"""
MOST_MEASURED, MOST_SLOW = 8, 4
"""levers that are measured after the first look; fewer where only the reference engine runs the scenario"""
MATTERS_LOAD, MATTERS_SHARE = 0.02, 0.01
MOST_TIES = 3
"""higher loads at which two values of a setting are told apart that keep the SLO at all those of the first look"""
WORSE_SHARE, WORSE_TIME = 0.01, 0.1
"""a group pays where its attainment falls by a point, or its P99 of TTFT or mean E2E rises by a tenth, shown"""
RATE = Metric("capacity", "capacity", "/s", HIGHER)
ATTAINMENT = Metric("attainment", "attainment", "share", HIGHER)
GROUP_FIGURES = {"attainment": WORSE_SHARE, "ttft_s.p99": WORSE_TIME, "e2e_s.mean": WORSE_TIME}


@dataclass(frozen=True)
class Row:
    """A lever against the scenario without it. attainment, capacity : base, value, difference, low, high, verdict.

    enough : does it keep the SLO alone? plain : does the run without it show what it mends by a figure of its own?
    """

    lever: Lever
    trial: Trial
    attainment: dict[str, Any]
    capacity: dict[str, Any] | None
    worse: list[dict[str, Any]]
    enough: bool
    plain: bool

    @property
    def helps(self) -> bool:
        """Is it shown that it lets more requests, or more traffic, keep the SLO, and not that it costs the other?"""
        verdicts = [one["verdict"] for one in (self.attainment, self.capacity) if one is not None]
        return BETTER in verdicts and WORSE not in verdicts

    @property
    def matters(self) -> bool:
        """Does it help by enough to be worth pulling: a point of attainment, or a fiftieth of the load?"""
        more = self.capacity["difference"] if self.capacity is not None else 0.0
        enough = more >= MATTERS_LOAD * (self.trial.facts.rate_per_s or 0.0)
        return self.helps and (enough or self.attainment["difference"] >= MATTERS_SHARE)

    def rank(self, lossy: bool = False) -> tuple:
        """What levers are compared by, the greatest first: do they leave answers as they are; keep the SLO alone; of
        these, mend what the run shows; then the gain. lossy : are levers wanted that may change answers?"""
        return (lossy or not self.lever.changes_answers, self.enough, self.enough and self.plain, *self.gain)

    @property
    def gain(self) -> tuple[float, float]:
        """Capacity gained (0 where it was not searched), then attainment gained."""
        return (self.capacity["difference"] if self.capacity is not None else 0.0, self.attainment["difference"])


@dataclass(frozen=True)
class Dropped:
    """A lever that was not measured further, and why."""

    lever: Lever
    reason: str


def look(bench: Bench, base: Trial, levers: Sequence[Lever]) -> tuple[list[tuple[Lever, Trial]], list[Dropped]]:
    """A paired run of each lever at the load as it is, and where the SLO breaks; the best value of each name stays."""
    factors = _factors(base)
    before = {factor: base.first_margin(factor) for factor in factors}
    best: dict[str, tuple[float, Lever, Trial]] = {}
    dropped: list[Dropped] = []
    progress.stage("advise, a first look at levers", len(levers), "lever", counts_runs=False)
    for lever in levers:
        progress.step()
        try:
            trial = bench.trial(lever.overrides, quick=not base.slow, same=base.alike)
            gains = [trial.first_margin(f) - before[f] for f in (factors if trial.searchable else factors[:1])]
        except UserError as error:
            dropped.append(Dropped(lever, _refusal(error, lever)))
            continue
        if max(gains) < WORTH and lever.buys is None:
            dropped.append(Dropped(lever, "no gain in the first run"))
        elif lever.name not in best:
            best[lever.name] = (sum(gains), lever, trial)
        else:
            kept, lost = _better(best[lever.name], (sum(gains), lever, trial), factors[-1])
            best[lever.name] = kept
            dropped.append(Dropped(lost[1], f"another value of {lever.name} gains more in the first run"))
    ranked = sorted(best.values(), key=lambda one: (one[1].buys is None, -one[0]))
    most = (MOST_SLOW if base.slow else MOST_MEASURED) + sum(one[1].buys is not None for one in ranked)
    dropped += [Dropped(lever, "others gain more in the first run") for _, lever, _ in ranked[most:]]
    return [(lever, trial) for _, lever, trial in ranked[:most]], dropped


Looked = tuple[float, Lever, Trial]
"""margins gained in the first look, over its loads"""


def _better(one: Looked, other: Looked, factor: float) -> tuple[Looked, Looked]:
    """The better of two values of one setting, then the other. Those that tie meet at higher loads until they don't."""
    gains = [one[0], other[0]]
    for _ in range(MOST_TIES):
        if abs(gains[0] - gains[1]) >= WORTH or not (one[2].searchable and other[2].searchable):
            break
        factor *= LOOKS[-1]
        gains = [gain + its[2].first_margin(factor) for gain, its in zip(gains, (one, other), strict=True)]
    return (other, one) if gains[1] > gains[0] else (one, other)


def _factors(base: Trial) -> list[float]:
    """The load as it is, and some at which the scenario breaks its SLO, where it keeps it at any."""
    if not base.searchable:
        return [1.0]
    broken = sum(base.crossings) / len(base.crossings)
    return [1.0, *(look * broken for look in LOOKS if broken)]


def _refusal(error: UserError, lever: Lever) -> str:
    said = error.faults[0].removeprefix(f"lever {lever.name}: ")
    if " run.engine: " in said:
        return "only the reference engine runs it, which takes too long for runs of this length: use its command"
    return f"refused: {said}"


def measure(base: Trial, lever: Lever, trial: Trial) -> Row:
    """All that a line of the table says."""
    edges = length_edges(base.facts.result)
    before, after = base.seen(edges), trial.seen(edges)
    runs = min(len(before), len(after))
    judge = Judge(segments=runs == 1)
    attainment = _attainment(base, trial, judge.told(ATTAINMENT, before[:runs], after[:runs], None))
    worse = _worse(judge, before[:runs], after[:runs])
    enough = attainment["value"] >= base.facts.objectives[0].share
    return Row(lever, trial, attainment, _capacity(base, trial), worse, enough, plain(base.facts, lever.cures))


def _attainment(base: Trial, trial: Trial, told: Told | None) -> dict[str, Any]:
    """Of the objective with the least margin. Where there is one run, by batches, as compare has it (told)."""
    if base.alike and told is not None:
        return {key: getattr(told, key) for key in ("base", "value", "difference", "low", "high", "verdict")}
    found = difference(base, trial, base.margins(), trial.margins())
    asked = base.facts.objectives[0].share
    start = asked + sum(base.margins()) / len(base.margins())
    return cell(found, start, ATTAINMENT)


def _capacity(base: Trial, trial: Trial) -> dict[str, Any] | None:
    if base.capacity is None or trial.capacity is None:
        return None
    rate = base.facts.rate_per_s
    values, others = ([c * rate for c in one.crossings] for one in (base, trial))
    return cell(difference(base, trial, values, others), base.capacity.mean, RATE)


def cell(found: stats.Interval, start: float, metric: Metric) -> dict[str, Any]:
    """A paired difference as plain data."""
    limits = {"difference": found.mean, "low": found.low, "high": found.high}
    return {"base": start, "value": start + found.mean, **limits, "verdict": Judge().verdict(metric, found, start)}


def _worse(judge: Judge, before: Sequence[Seen], after: Sequence[Seen]) -> list[dict[str, Any]]:
    """Groups of requests (class, tenant, tenth by length) that pay, each with the figure that shows it best."""
    found = []
    for group in before[0].groups:
        if group.startswith("time:"):  # a tenth of the run is nobody who pays
            continue
        for metric in metrics(tuple(GROUP_FIGURES)):
            one = judge.told(metric, before, after, group)
            if one is None or one.verdict != WORSE:
                continue
            change = abs(one.difference) if metric.key == "attainment" else abs(one.relative or 0.0)
            if change >= GROUP_FIGURES[metric.key]:
                limits = {name: getattr(one, name) for name in ("base", "value", "low", "high")}
                found.append({"group": group, "figure": metric.key, **limits})
                break
    return found


def table(bench: Bench, base: Trial, levers: Sequence[Lever]) -> tuple[list[Row], list[Dropped]]:
    """Rows of all levers that may help, the best first, purchases last; and what was left out."""
    chosen, dropped = look(bench, base, levers)
    progress.stage("advise, measuring what may help", len(chosen), "lever", counts_runs=False)
    measured = []
    for lever, trial in chosen:
        measured.append(measure(base, lever, trial))
        progress.step()
    progress.stage("advise, levers together", None)
    rows, more = without_idle_parts(measured)
    return sorted(rows, key=_rank, reverse=True), [*dropped, *more]


def without_idle_parts(rows: Sequence[Row]) -> tuple[list[Row], list[Dropped]]:
    """The same without levers that move two settings and are not shown to gain more than one of them does alone."""
    by_name, left, dropped = {row.lever.name: row for row in rows}, [], []
    for row in rows:
        parts = [by_name[name] for name in row.lever.parts if name in by_name]
        enough = next((part for part in parts if part.helps and not _shown_more(part, row)), None)
        if enough is None:
            left.append(row)
        else:
            dropped.append(Dropped(row.lever, f"not shown to gain more than {enough.lever.name} alone"))
    return left, dropped


def _shown_more(part: Row, both: Row) -> bool:
    """Does one lever let more traffic in than another by more than chance, or more requests at the load as it is?"""
    one, two = part.trial, both.trial
    pairs = [(one.margins(), two.margins())]
    pairs += [(one.crossings, two.crossings)] if one.searchable and two.searchable else []
    return any((found := difference(one, two, *pair)).low is not None and found.low > 0 for pair in pairs)


def _rank(row: Row) -> tuple:
    """Purchases last, what is not shown to help before them; then as Row.rank says."""
    return (row.lever.buys is None, row.helps, *row.rank())


def stacked(bench: Bench, levers: Sequence[Lever]) -> Bench:
    """The bench with these levers pulled."""
    return replace(bench, sets=(*bench.sets, *(item for lever in levers for item in lever.overrides)))
