"""gate: does a service still keep its objectives, and is it no worse than its baseline? For CI: it never passes on doubt.

Three kinds of objectives: the scenario's own SLO (attainment and percentile targets, class by class), and figures that may
not be worse than the baseline by more than a tolerance. Each is judged by its interval over replications: *broken* where
all of it is on the wrong side of the limit, *kept* where all of it is on the right side, else *inconclusive*.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmqsim.answers import answer_of
from llmqsim.errors import UserError
from llmqsim.metrics import slo, stats
from llmqsim.planner import baseline as base
from llmqsim.planner.attain import BROKEN, KEPT, OPEN, judge, of_one_run, outcomes
from llmqsim.planner.figures import LOWER, Metric, metrics
from llmqsim.planner.replicate import alike
from llmqsim.planner.warned import warned
from llmqsim.result import Result
from llmqsim.scenario.load import Scenario, Sets, load
from llmqsim.simulation import Prepared, prepare

INCONCLUSIVE = "inconclusive"
REPLICATIONS = 10


@dataclass(frozen=True)
class Run:
    """One scenario with all its replications. results hold what objectives are judged by."""

    name: str
    scenario: Scenario
    kept: list[list[dict[str, int]]]
    """[replication][objective] met, asked, undecided: counts of requests"""
    objectives: list[slo.Objective]
    figures: dict[str, list[float | None]]
    verdicts: list[str]
    completed: int
    traffic: str
    seed: int
    series: list[Any] | None


@answer_of("gate")
def gate(
    paths: Sequence[str | os.PathLike[str]],
    baseline: str | None = None,
    replications: int = REPLICATIONS,
    seed: int | None = None,
    sets: Sets = (),
) -> dict[str, Any]:
    """Judge scenarios. baseline : a file that `update` wrote. Returns plain data, docs/gate.md. Raises UserError."""
    names = _names(paths)
    known = None if baseline is None else base.read(baseline)
    scenarios = [load(path, sets=sets) for path in names]
    entries = {}
    if known is not None:
        entries = {name: base.entry_for(baseline, known, name) for name in names}
    runs = []
    for name, scenario in zip(names, scenarios, strict=True):
        entry = entries.get(name)
        number = replications if entry is None else entry.replications
        chosen = entry.seed if entry is not None and seed is None else seed
        runs.append(_run(name, scenario, number, chosen, known.tolerance if known else None))
        if entry is not None:
            _check_traffic(baseline, name, entry, runs[-1])
    changed = [] if known is None else _changed(known.hashes, base.hashes(scenarios))
    judged = [_judge(run, entries.get(run.name), known) for run in runs]
    return {
        "verdict": _verdict([o["verdict"] for one in judged for o in one["objectives"]]),
        "baseline": baseline,
        "changed_files": changed,
        "scenarios": judged,
        "warnings": warned({name: prepare(one) for name, one in zip(names, scenarios, strict=True)}),
        "notes": [_change_note(changed)] if changed else [],
    }


def update(
    paths: Sequence[str | os.PathLike[str]],
    baseline: str,
    replications: int = REPLICATIONS,
    seed: int | None = None,
    sets: Sets = (),
) -> tuple[str, list[str]]:
    """The new text of a baseline, with the tolerances and other scenarios of the old one where there is one.

    Returns the text and a line for every figure that moved. Raises UserError.
    """
    names = _names(paths)
    scenarios = [load(path, sets=sets) for path in names]
    old = _old(baseline)
    tolerance = old.tolerance if old else dict(base.TOLERANCES)
    metrics(list(tolerance))  # refuses unknown figures
    entries = dict(old.scenarios) if old else {}
    moved: list[str] = []
    for name, scenario in zip(names, scenarios, strict=True):
        run = _run(name, scenario, replications, seed, tolerance)
        entry = base.Entry(run.seed, len(run.verdicts), run.traffic, run.figures)
        moved += _moved(name, entries.get(name), entry)
        entries[name] = entry
    others = [load(name) for name in entries if name not in names and os.path.exists(name)]
    text = base.to_text(base.Baseline(tolerance, base.hashes([*scenarios, *others]), dict(sorted(entries.items()))))
    return text, moved


def _old(path: str) -> base.Baseline | None:
    """The baseline that is to be replaced; one of another version is made anew, its tolerances with it."""
    if not os.path.exists(path):
        return None
    try:
        return base.read(path)
    except UserError as error:
        if "version" in error.faults[0]:
            return None
        raise


def _names(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    names = [os.path.normpath(os.fspath(path)).replace(os.sep, "/") for path in paths]
    if twice := [n for n in dict.fromkeys(names) if names.count(n) > 1]:
        raise UserError(f"{twice[0]}: is named twice; each scenario once")
    return names


def _run(
    name: str, scenario: Scenario, replications: int, seed: int | None, tolerance: dict[str, float] | None = None
) -> Run:
    prepared = prepare(scenario)
    seed = scenario.spec.run.seed if seed is None else seed
    same = alike(prepared)
    chosen = metrics(list(tolerance or base.TOLERANCES))
    kept, verdicts, figures, series = [], [], {m.key: [] for m in chosen}, None
    completed, traffic, objectives = 0, "", []
    for replication in range(1 if same else replications):
        result = prepared.run(seed, replication)
        objectives = slo.objectives(result.promise, result.table.classes)
        kept.append([_kept(result, one) for one in objectives])
        told = result.summary()
        verdicts.append(told["stability"]["verdict"])
        completed += told["requests"]["completed"]
        for metric in chosen:
            figures[metric.key].append(base.rounded(_figure(told, metric)))
        traffic = traffic or base.traffic_digest(_given(prepared, seed))
        if same:
            series = [outcomes(result, one) for one in objectives]
    return Run(name, scenario, kept, objectives, figures, verdicts, completed, traffic, seed, series)


def _given(prepared: Prepared, seed: int) -> Any:
    """The rows as drawn: in a closed loop, a run writes when they were sent."""
    from llmqsim.scenario.build import build_workload

    return build_workload(prepared.scenario, prepared.servers, seed, 0).table


def _kept(result: Result, one: slo.Objective) -> dict[str, int]:
    seen = slo.stand(result, one)
    return {"met": int(seen.met.sum()), "asked": int(seen.asked.sum()), "undecided": int(seen.undecided.sum())}


def _figure(told: dict[str, Any], metric: Metric) -> float | None:
    value: Any = told
    for part in metric.key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return None if value is None else float(value)


def _check_traffic(path: str, name: str, entry: base.Entry, run: Run) -> None:
    if run.traffic != entry.traffic or len(run.verdicts) != entry.replications:
        raise UserError(
            f"{path}: scenarios.{name}: is of another traffic (the workload, its seed or the replications have changed): "
            f"nothing can be paired; make it again with --update"
        )


def _judge(run: Run, entry: base.Entry | None, known: base.Baseline | None) -> dict[str, Any]:
    stable = stats.together(run.verdicts)
    told = [_slo_objective(run, i) for i in range(len(run.objectives))]
    if entry is not None and known is not None:
        for key, floor in known.tolerance.items():
            told.append(_against(run, entry, key, floor))
    if not told:
        raise UserError(run.scenario.fault("slo", "missing; a gate needs an SLO, or a baseline to compare with"))
    settled = stable == "stable"
    for one in told:
        if one["verdict"] == KEPT and not settled:
            one["verdict"] = INCONCLUSIVE
            one["why"] = f"{one['why']}; but the run is {stable}: it never settles".lstrip("; ")
    return {
        "scenario": run.name,
        "file_line": run.scenario.where("slo"),
        "seed": run.seed,
        "replications": len(run.verdicts),
        "completed": run.completed,
        "stability": stable,
        "objectives": told,
        "verdict": _verdict([one["verdict"] for one in told]),
    }


def _slo_objective(run: Run, number: int) -> dict[str, Any]:
    """At least a share of arrivals within limits: broken where the upper bound is below it, stable or not."""
    one = run.objectives[number]
    met, asked, undecided = ([runs[number][key] for runs in run.kept] for key in ("met", "asked", "undecided"))
    told = {
        "name": one.label, "kind": "slo", "limit": one.share, "limits_s": one.limits_s, "baseline": None, "value": None,
        "low": None, "high": None, "unit": "share", "better": "higher",
    }  # fmt: skip
    found = None
    if sum(asked):
        found = of_one_run(run.series[number]) if run.series is not None else stats.share_interval(met, asked)
        told |= {"value": found.mean, "low": found.low, "high": found.high}
        if not run.completed and not sum(undecided):
            return told | {"verdict": BROKEN, "why": "no request was completed"}
    verdict, why = judge(found, one.share, sum(met), sum(asked), sum(undecided))
    return told | {"verdict": INCONCLUSIVE if verdict == OPEN else verdict, "why": why}


def _against(run: Run, entry: base.Entry, key: str, floor: float) -> dict[str, Any]:
    """No worse than the baseline by more than the larger of a floor and what the baseline itself is known to.

    The difference is paired replication by replication, so it is known much better than either figure.
    """
    metric = metrics([key])[0]
    before, after = entry.figures.get(metric.key), run.figures.get(metric.key)
    told = {
        "name": f"{metric.label} against baseline", "kind": "baseline", "limit": None, "limits_s": None, "baseline": None,
        "value": None, "low": None, "high": None, "unit": metric.unit, "better": "lower" if metric.better == LOWER else "higher",
    }  # fmt: skip
    if before is None or after is None or None in before or None in after:
        if before is not None and all(v is None for v in before) and all(v is None for v in after or []):
            return told | {"verdict": KEPT, "why": "no such figure, then and now"}
        return told | {"verdict": INCONCLUSIVE, "why": "no data: a run has no such figure"}
    sign = 1 if metric.better == LOWER else -1
    old = sum(before) / len(before)
    worse = stats.paired(before, after) if len(before) > 1 else stats.t_interval([after[0] - before[0]])
    mean, half = sign * worse.mean, 0.0 if worse.low is None else worse.half
    known_to = stats.t_interval(before).half if len(before) > 1 else 0.0
    allowed = max(floor * abs(old), known_to)
    told |= {
        "limit": old + sign * allowed,
        "baseline": old,
        "value": old + worse.mean,
        "low": None if worse.low is None else old + worse.low,
        "high": None if worse.high is None else old + worse.high,
    }
    alone = ""
    if len(before) == 1 and mean:
        alone = "one run of the same requests, so no interval: other traffic may differ more"
    if mean - half > allowed:
        why = f"worse than the baseline by more than {100 * allowed / abs(old) if old else 0:.3g} %"
        return told | {"verdict": BROKEN, "why": "; ".join(filter(None, (why, alone)))}
    if mean + half > allowed and not (mean == 0 and half == 0):
        return told | {"verdict": INCONCLUSIVE, "why": "the interval of the difference straddles the limit"}
    return told | {"verdict": KEPT, "why": alone}


def _verdict(verdicts: list[str]) -> str:
    for one in (BROKEN, INCONCLUSIVE):
        if one in verdicts:
            return one
    return KEPT


def _changed(old: dict[str, str], new: dict[str, str]) -> list[str]:
    names = sorted(set(old) | set(new))
    return [name for name in names if old.get(name) != new.get(name)]


def _change_note(changed: list[str]) -> str:
    return (
        f"costs or presets are not those of the baseline: {', '.join(changed)}; a difference may be theirs and not your "
        f"change's; --update takes them over"
    )


def _moved(name: str, old: base.Entry | None, new: base.Entry) -> list[str]:
    if old is None:
        return [f"{name}: new"]
    lines = []
    for key, values in new.figures.items():
        before = old.figures.get(key)
        if before != values:
            means = [None if not v or None in v else sum(v) / len(v) for v in (before, values)]
            shown = ["–" if m is None else f"{m:.4g}" for m in means]
            lines.append(f"{name}: {key} {shown[0]} -> {shown[1]}")
    return lines or [f"{name}: as it was"]
