"""compare: variants of one scenario on the same traffic, their differences with intervals, and a verdict on each.

Every replication serves all variants with the same random numbers, so that their difference is much better known than
either figure. A traffic that can't be replicated (a replayed trace) is compared within its one run, by batches.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmqsim import progress
from llmqsim.answers import answer_of
from llmqsim.cluster.alone import alone_for
from llmqsim.errors import UserError, did_you_mean
from llmqsim.metrics import stats
from llmqsim.planner import verdict
from llmqsim.planner.figures import Metric, Seen, length_edges, metrics, see
from llmqsim.planner.replicate import alike
from llmqsim.planner.vary import loops
from llmqsim.planner.warned import warned
from llmqsim.planner.within import same_requests
from llmqsim.scenario.load import Scenario, Sets, load
from llmqsim.simulation import Prepared, prepare

BASE = "base"
"""stands for the scenario without a variant"""
REPLICATIONS = 10
GROUP_METRICS = ("attainment", "ttft_s.mean", "ttft_s.p99", "e2e_s.mean", "slowdown.p99")
"""what is compared within each class, tenant, length group and tenth of the run"""


@dataclass(frozen=True)
class Contestant:
    """A variant, its runs."""

    name: str
    prepared: Prepared
    seen: list[Seen]


@answer_of("compare")
def compare(
    path: str | os.PathLike[str],
    variants: Sequence[str],
    replications: int = REPLICATIONS,
    metric: Sequence[str] = (),
    sets: Sets = (),
    seed: int | None = None,
    margin: float = verdict.MARGIN,
    own: Mapping[str, Sets] | None = None,
) -> dict[str, Any]:
    """Compare variants of a scenario with the first of them (with the scenario itself where only one is named).

    variants : names; "base" is the scenario itself, "a+b" both of them in order. margin : a relative difference (for
    shares: of a tenth of it, absolute) that would not matter; below ten replications it decides between "no
    difference shown" and "not enough runs". own : variants that the scenario does not have, by name; they are applied
    after `sets`, and compared after those named where `variants` does not name them. Returns plain data, as
    docs/compare.md describes. Raises UserError.
    """
    chosen, own = metrics(metric), own or {}
    if taken := [name for name in own if name in (BASE, *load(path, sets=sets).known_variants)]:
        raise UserError(f"--variant-set: the scenario has a variant '{taken[0]}' already; give yours another name")
    named = {part for name in variants for part in name.split("+")}
    variants = [*variants, *(name for name in own if name not in named)]
    if not variants:
        raise UserError("--variants: names no variant; give one or more, such as --variants base,three_gpus")
    names = [BASE, *variants] if len(variants) == 1 else list(variants)
    if twice := [n for n in dict.fromkeys(names) if names.count(n) > 1]:
        raise UserError(f"--variants: names '{twice[0]}' twice; each variant once")
    if replications < 1:
        raise UserError(f"--replications: must be at least 1 (got {replications})")
    scenarios = [_scenario(path, name, sets, own) for name in names]
    told = compare_scenarios(dict(zip(names, scenarios, strict=True)), replications, chosen, seed, margin)
    return told if BASE in names else told | {"notes": [base_left_out(names), *told["notes"]]}


def base_left_out(names: Sequence[str]) -> str:
    """What a comparison of variants alone is, and how to have the scenario itself in it."""
    return (
        f"compared with '{names[0]}', the first one named; the scenario as it is takes no part: to compare with it, "
        f"--variants {','.join([BASE, *names])}"
    )


def _scenario(path: str | os.PathLike[str], name: str, sets: Sets, own: Mapping[str, Sets]) -> Scenario:
    plain = load(path, sets=sets)
    if name in plain.known_variants:
        return load(path, variant=name, sets=sets)
    parts = [part for part in name.split("+") if part != BASE]
    unknown = [part for part in parts if part not in (*plain.known_variants, *own)]
    if unknown:
        choices = (BASE, *plain.known_variants, *own)
        hint = did_you_mean(unknown[0], choices) or ";"
        raise UserError(f"{path}: --variants: unknown variant (got '{unknown[0]}'){hint} known: {', '.join(choices)}")
    more = [item for part in parts if part in own for item in own[part]]
    chosen = [part for part in parts if part not in own]
    given = sets.items() if isinstance(sets, Mapping) else sets
    return load(path, variant=chosen, sets=[*given, *more]) if parts else plain


def compare_scenarios(
    scenarios: dict[str, Scenario],
    replications: int,
    chosen: Sequence[Metric],
    seed: int | None = None,
    margin: float = verdict.MARGIN,
) -> dict[str, Any]:
    """The same of checked scenarios by name; the first is what the others are compared with."""
    prepared = {name: prepare(scenario) for name, scenario in scenarios.items()}
    return compare_prepared(prepared, replications, chosen, seed, margin)


def compare_prepared(
    prepared: dict[str, Prepared],
    replications: int,
    chosen: Sequence[Metric],
    seed: int | None = None,
    margin: float = verdict.MARGIN,
) -> dict[str, Any]:
    """The same of scenarios with their servers built."""
    first = next(iter(prepared.values()))
    seed = first.scenario.spec.run.seed if seed is None else seed
    same = all(alike(one) for one in prepared.values())
    runs = 1 if same else replications
    progress.stage("compare", runs * len(prepared))
    contestants = _run(prepared, seed, runs)
    against, *others = contestants
    judge = verdict.Judge(margin, segments=runs == 1, replicable=not same)
    differences = {one.name: _differences(judge, against, one, chosen) for one in others}
    groups = _group_table(judge, contestants)
    return {
        "scenario": first.scenario.path,
        "question": first.scenario.spec.question,
        "seed": seed,
        "replications": runs,
        "asked_replications": replications,
        "confidence": stats.CONFIDENCE,
        "margin": margin,
        "against": against.name,
        "variants": {one.name: _told(one, chosen) for one in contestants},
        "differences": differences,
        "groups": groups,
        "warnings": warned(prepared),
        "notes": [*_notes(contestants, same, runs, replications, others), *_chances(differences, groups, against.name)],
    }


def _run(prepared: dict[str, Prepared], seed: int, runs: int) -> list[Contestant]:
    """All runs, replication by replication, with the length groups of the first run of the first variant."""
    contestants = [Contestant(name, one, []) for name, one in prepared.items()]
    edges, alone = None, {}
    for replication in range(runs):
        for one in contestants:
            result = one.prepared.run(seed, replication)
            if one is contestants[0] and replication == 0:
                edges = length_edges(result)
            if one.name not in alone:
                alone[one.name] = alone_for(one.prepared.servers.deployment, result.table)
            one.seen.append(see(result, alone[one.name], edges))
    return contestants


def _told(one: Contestant, chosen: Sequence[Metric]) -> dict[str, Any]:
    """A variant's own figures, each with its interval over replications, and its verdict on stability."""
    told = {}
    for metric in chosen:
        values = [seen.figure(metric) for seen in one.seen]
        told[metric.key] = None if None in values else stats.t_interval(values).to_dict()
    verdicts = [seen.summary["stability"]["verdict"] for seen in one.seen]
    return {
        "figures": told,
        "stability": stats.together(verdicts),
        "overloaded_runs": verdicts.count("overloaded"),
        "engine": one.seen[0].summary["engine"],
        "longest_wait_s": max(float(seen.waited_s[seen.rows].max(initial=0.0)) for seen in one.seen),
    }


def _differences(judge: verdict.Judge, base: Contestant, other: Contestant, chosen: Sequence[Metric]) -> dict[str, Any]:
    return {m.key: _plain(judge.told(m, base.seen, other.seen, None)) for m in chosen}


def _plain(told: verdict.Told | None) -> dict[str, Any] | None:
    return None if told is None else told.to_dict()


def _group_table(judge: verdict.Judge, contestants: list[Contestant]) -> dict[str, Any]:
    """group -> requests a run, and for each variant its figures, its longest wait, and the differences."""
    base, cell_metrics = contestants[0], metrics(GROUP_METRICS)
    table: dict[str, Any] = {}
    for group in base.seen[0].groups:
        sizes = [int(seen.part(group).sum()) for seen in base.seen]
        table[group] = {"requests": float(np.mean(sizes)), "variants": {}}
        for one in contestants:
            masks = [seen.part(group) for seen in one.seen]
            waits = [float(seen.waited_s[mask].max(initial=0.0)) for seen, mask in zip(one.seen, masks, strict=True)]
            cells = {m.key: _plain(judge.told(m, base.seen, one.seen, group)) for m in cell_metrics}
            table[group]["variants"][one.name] = {"longest_wait_s": max(waits), "figures": cells}
    return table


def _notes(
    contestants: list[Contestant], same: bool, runs: int, asked: int, others: list[Contestant]
) -> list[str]:
    notes = []
    if same and asked > 1:
        notes.append(
            f"the traffic is the same in every replication (a replayed trace, or constant): one run, judged by "
            f"{stats.BATCHES} batches of its requests"
        )
    elif runs == 1:
        notes.append(f"one replication: differences are judged by {stats.BATCHES} batches of its requests")
    if any(loops(one.prepared.scenario) for one in contestants):
        notes.append(
            "clients wait for answers here: pairing covers the workload only (lengths, think times), not when "
            "requests are sent"
        )
    for one in contestants:
        verdicts = [seen.summary["stability"]["verdict"] for seen in one.seen]
        if bad := verdicts.count("overloaded"):
            grow = "its latencies grow with the length of the run"
            notes.append(f"{one.name} is overloaded in {bad} of {runs} runs: {grow}")
    idle = [one.name for one in others if _same_everywhere(contestants[0], one)]
    if idle:
        queued = max(_queued_share(seen) for seen in contestants[0].seen)
        why = "; there was no queue to reorder" if queued < 0.01 else ""
        notes.append(f"{', '.join(idle)}: every request had the same times as with {contestants[0].name}{why}")
    base = contestants[0]
    if strangers := [one.name for one in others if not same_requests(base.seen[0], one.seen[0])]:
        notes.append(
            f"{', '.join(strangers)}: serves other requests than {base.name} (number or lengths): nothing is paired, "
            f"and the difference is that of the traffic, too"
        )
    return notes


def _chances(differences: dict[str, Any], groups: dict[str, Any], against: str) -> list[str]:
    """How many verdicts stand in each table, and how many of them would be there by chance."""
    figures = [cell for cells in differences.values() for cell in cells.values()]
    parts = [
        cell for its in groups.values() for name, one in its["variants"].items() if name != against
        for cell in one["figures"].values()
    ]  # fmt: skip
    notes = []
    for cells, where in ((figures, ""), (parts, " on groups of requests (all are in the JSON)")):
        number = sum(cell is not None and cell["low"] is not None and cell["low"] < cell["high"] for cell in cells)
        if number > 5:
            notes.append(
                f"{number} verdicts{where} at 95 %: expect {number * 0.05:.1f} of them by chance where nothing differs"
            )
    return notes


def _same_everywhere(base: Contestant, other: Contestant) -> bool:
    return all(
        np.array_equal(a.values["e2e_s"], b.values["e2e_s"], equal_nan=True)
        and np.array_equal(a.values["ttft_s"], b.values["ttft_s"], equal_nan=True)
        for a, b in zip(base.seen, other.seen, strict=True)
    )


def _queued_share(seen: Seen) -> float:
    """Share of the TTFT that requests waited for slots, memory or budget: what an ordering could change."""
    waits, ttft = seen.summary["waiting_for"], seen.summary["ttft_s"]["mean"]
    queued = sum(waits[cause]["mean_s"] or 0.0 for cause in ("slots", "kv", "token_budget", "preempted"))
    return queued / ttft if ttft else 0.0
