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

from llmqsim.errors import UserError, did_you_mean
from llmqsim.metrics import stats
from llmqsim.planner import verdict
from llmqsim.planner.alone import alone_for
from llmqsim.planner.figures import Metric, Seen, length_edges, metrics, see
from llmqsim.planner.replicate import alike
from llmqsim.planner.vary import loops
from llmqsim.planner.warned import warned
from llmqsim.scenario.load import Scenario, Sets, load
from llmqsim.simulation import Prepared, prepare

BASE = "base"
"""stands for the scenario without a variant"""
REPLICATIONS = 10
GROUP_METRICS = ("attainment", "ttft_s.mean", "ttft_s.p99", "e2e_s.mean", "slowdown.p99")
"""what is compared within each class, tenant and length group"""


@dataclass(frozen=True)
class Contestant:
    """A variant, its runs."""

    name: str
    prepared: Prepared
    seen: list[Seen]


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
    shares: of a tenth of it, absolute) that would not matter; it decides between "no difference shown" and "not enough
    runs". own : variants that the scenario does not have, by name; they are applied after `sets`, and compared after
    those named where `variants` does not name them. Returns plain data, as docs/compare.md describes. Raises UserError.
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
    return compare_scenarios(dict(zip(names, scenarios, strict=True)), replications, chosen, seed, margin)


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
    first = next(iter(prepared.values()))
    seed = first.scenario.spec.run.seed if seed is None else seed
    same = all(alike(one) for one in prepared.values())
    runs = 1 if same else replications
    contestants = _run(prepared, seed, runs)
    against, *others = contestants
    judge = verdict.Judge(margin, segments=runs == 1)
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
        "differences": {one.name: _differences(judge, against, one, chosen) for one in others},
        "groups": _group_table(judge, contestants),
        "warnings": warned(prepared),
        "notes": _notes(contestants, chosen, same, runs, replications, others),
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
    _name_lengths(contestants, edges)
    return contestants


def _name_lengths(contestants: list[Contestant], edges: np.ndarray | None) -> None:
    """Length groups get the name of their range, in place: "length:1-240"."""
    if edges is None:
        return
    low = [1, *(int(e) + 1 for e in edges)]
    names = [*(f"{a}-{int(b)}" for a, b in zip(low, edges, strict=False)), f"{low[-1]} and more"]
    for one in contestants:
        for seen in one.seen:
            for i, name in enumerate(names):
                seen.groups[f"length:{name}"] = seen.groups.pop(f"length:{i}")


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
    return {m.key: judge.told(m, base.seen, other.seen, None) for m in chosen}


def _group_table(judge: verdict.Judge, contestants: list[Contestant]) -> dict[str, Any]:
    """group -> requests a run, and for each variant its figures, its longest wait, and the differences."""
    base = contestants[0]
    table: dict[str, Any] = {}
    for group in base.seen[0].groups:
        sizes = [int((seen.groups[group] & seen.rows).sum()) for seen in base.seen]
        table[group] = {"requests": float(np.mean(sizes)), "variants": {}}
        for one in contestants:
            masks = [seen.groups[group] & seen.rows for seen in one.seen]
            waits = [float(seen.waited_s[mask].max(initial=0.0)) for seen, mask in zip(one.seen, masks, strict=True)]
            cells = {m.key: judge.told(m, base.seen, one.seen, group) for m in metrics(GROUP_METRICS)}
            table[group]["variants"][one.name] = {"longest_wait_s": max(waits), "figures": cells}
    return table


def _notes(
    contestants: list[Contestant], chosen: Sequence[Metric], same: bool, runs: int, asked: int, others: list[Contestant]
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
            "clients wait for answers here: pairing covers the workload only (lengths, think times), not when requests are sent"
        )
    for one in contestants:
        verdicts = [seen.summary["stability"]["verdict"] for seen in one.seen]
        if bad := verdicts.count("overloaded"):
            notes.append(f"{one.name} is overloaded in {bad} of {runs} runs: its latencies grow with the length of the run")
    idle = [one.name for one in others if _same_everywhere(contestants[0], one)]
    if idle:
        queued = max(_queued_share(seen) for seen in contestants[0].seen)
        why = "; there was no queue to reorder" if queued < 0.01 else ""
        notes.append(f"{', '.join(idle)}: every request had the same times as with {contestants[0].name}{why}")
    if runs > 1 and (number := len(chosen) * len(others)) > 5:
        notes.append(f"{number} verdicts at 95 %: expect {number * 0.05:.1f} of them by chance where nothing differs")
    return notes


def _same_everywhere(base: Contestant, other: Contestant) -> bool:
    return all(
        np.array_equal(a.values["e2e_s"], b.values["e2e_s"], equal_nan=True)
        and np.array_equal(a.values["ttft_s"], b.values["ttft_s"], equal_nan=True)
        for a, b in zip(base.seen, other.seen, strict=True)
    )


def _queued_share(seen: Seen) -> float:
    """Share of the time to first token that requests waited for slots, memory or budget: what an ordering could change."""
    waits, ttft = seen.summary["waiting_for"], seen.summary["ttft_s"]["mean"]
    queued = sum(waits[cause]["mean_s"] or 0.0 for cause in ("slots", "kv", "token_budget", "preempted"))
    return queued / ttft if ttft else 0.0
