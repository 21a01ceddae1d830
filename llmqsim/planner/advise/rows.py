"""Levers measured: a first look at all of them, then paired replications of those that may help, and who pays for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llmqsim.errors import UserError
from llmqsim.metrics import stats
from llmqsim.planner.advise.levers import Lever
from llmqsim.planner.advise.trial import Bench, Trial, difference
from llmqsim.planner.compare import compare_scenarios
from llmqsim.planner.figures import HIGHER, Metric, metrics
from llmqsim.planner.verdict import BETTER, WORSE, Judge

LOOKS = (1.1, 1.6)
"""times the load at which the SLO breaks: where levers show whether they let more traffic in, or much more"""
WORTH = 0.002
"""attainment that a lever must gain in the first look to be measured"""
MOST_MEASURED, MOST_SLOW = 10, 4
"""levers that are measured after the first look; fewer where only the reference engine runs the scenario"""
WORSE_SHARE, WORSE_TIME = 0.01, 0.1
"""a group is told to pay where its attainment falls by a point, or its P99 of TTFT or mean E2E rises by a tenth, shown"""
RATE = Metric("capacity", "capacity", "/s", HIGHER)
ATTAINMENT = Metric("attainment", "attainment", "share", HIGHER)
GROUP_FIGURES = {"attainment": WORSE_SHARE, "ttft_s.p99": WORSE_TIME, "e2e_s.mean": WORSE_TIME}


@dataclass(frozen=True)
class Row:
    """A lever against the scenario without it. attainment, capacity : base, value, difference, low, high, verdict."""

    lever: Lever
    trial: Trial
    attainment: dict[str, Any]
    capacity: dict[str, Any] | None
    worse: list[dict[str, Any]]

    @property
    def helps(self) -> bool:
        """Is it shown that it lets more requests, or more traffic, keep the SLO, and not that it costs the other?"""
        verdicts = [one["verdict"] for one in (self.attainment, self.capacity) if one is not None]
        return BETTER in verdicts and WORSE not in verdicts

    @property
    def gain(self) -> tuple[float, float]:
        """What levers are ranked by: capacity gained (0 where it was not searched), then attainment gained."""
        return (self.capacity["difference"] if self.capacity is not None else 0.0, self.attainment["difference"])


@dataclass(frozen=True)
class Dropped:
    """A lever that was not measured further, and why."""

    lever: Lever
    reason: str


def look(bench: Bench, base: Trial, levers: Sequence[Lever]) -> tuple[list[tuple[Lever, Trial]], list[Dropped]]:
    """One paired run of each lever at the load as it is, and where the SLO breaks; the best value of each name stays."""
    factors = _factors(base)
    before = {factor: base.first_margin(factor) for factor in factors}
    best: dict[str, tuple[float, Lever, Trial]] = {}
    dropped: list[Dropped] = []
    for lever in levers:
        try:
            trial = bench.trial(lever.overrides, quick=not base.slow)
            gains = [trial.first_margin(f) - before[f] for f in (factors if trial.searchable else factors[:1])]
        except UserError as error:
            dropped.append(Dropped(lever, _refusal(error, lever)))
            continue
        if max(gains) < WORTH and lever.buys is None:
            dropped.append(Dropped(lever, "no gain in the first run"))
        elif lever.name not in best:
            best[lever.name] = (sum(gains), lever, trial)
        else:
            kept, lost = sorted([best[lever.name], (sum(gains), lever, trial)], key=lambda one: -one[0])
            best[lever.name] = kept
            dropped.append(Dropped(lost[1], f"another value of {lever.name} gains more in the first run"))
    ranked = sorted(best.values(), key=lambda one: (one[1].buys is None, -one[0]))
    most = (MOST_SLOW if base.slow else MOST_MEASURED) + sum(one[1].buys is not None for one in ranked)
    dropped += [Dropped(lever, "others gain more in the first run") for _, lever, _ in ranked[most:]]
    return [(lever, trial) for _, lever, trial in ranked[:most]], dropped


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
    told = _compared(base, trial)
    attainment = _attainment(base, trial, told)
    return Row(lever, trial, attainment, _capacity(base, trial), _worse(told))


def _compared(base: Trial, trial: Trial) -> dict[str, Any]:
    scenarios = {"base": base.prepared.scenario, "lever": trial.prepared.scenario}
    runs = min(base.replications, trial.replications)
    return compare_scenarios(scenarios, runs, metrics(["attainment"]), base.seed)


def _attainment(base: Trial, trial: Trial, told: dict[str, Any]) -> dict[str, Any]:
    """Of the objective with the least margin. Where there is one run, by batches, as compare has it."""
    own = told["differences"]["lever"]["attainment"]
    if base.alike and own is not None:
        return {key: own[key] for key in ("base", "value", "difference", "low", "high", "verdict")}
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


def _worse(told: dict[str, Any]) -> list[dict[str, Any]]:
    """Groups of requests (class, tenant, tenth by length) that pay, each with the figure that shows it best."""
    found = []
    for group, its in told["groups"].items():
        for key, least in GROUP_FIGURES.items():
            one = its["variants"]["lever"]["figures"][key]
            if one is None or one["verdict"] != WORSE:
                continue
            change = abs(one["difference"]) if key == "attainment" else abs(one["relative"] or 0.0)
            if change >= least:
                limits = {name: one[name] for name in ("base", "value", "low", "high")}
                found.append({"group": group, "figure": key, **limits})
                break
    return found


def table(bench: Bench, base: Trial, levers: Sequence[Lever]) -> tuple[list[Row], list[Dropped]]:
    """Rows of all levers that may help, the best first, purchases last; and what was left out."""
    chosen, dropped = look(bench, base, levers)
    rows = [measure(base, lever, trial) for lever, trial in chosen]
    return sorted(rows, key=_rank), dropped


def _rank(row: Row) -> tuple:
    return (row.lever.buys is not None, not row.helps, -row.gain[0], -row.gain[1])


def stacked(bench: Bench, levers: Sequence[Lever]) -> Bench:
    """The bench with these levers pulled."""
    return replace(bench, sets=(*bench.sets, *(item for lever in levers for item in lever.overrides)))
