"""The answer to "how many of what?": from a scenario file or from flags, as plain data."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, field
from typing import Any

import yaml

from llmqsim.answers import answer_of
from llmqsim.errors import UserError
from llmqsim.hardware.prices import parse_prices
from llmqsim.planner import combinations, splitting
from llmqsim.planner.combinations import Candidate
from llmqsim.planner.concurrency import Concurrency
from llmqsim.planner.flags import FLAG_PLACES, scenario_from, slo_from
from llmqsim.planner.limits import FEASIBLE, INFEASIBLE, NOTHING, ONE_TRAFFIC, REASONS, UNDECIDED
from llmqsim.planner.settle import Tell, quiet
from llmqsim.planner.size import Effort, binds
from llmqsim.planner.splitting import SplitCandidate
from llmqsim.planner.warned import warned_if_built
from llmqsim.scenario.load import Scenario, from_mapping, load

NO_SPLIT = {"split": None, "split_reason": None, "split_explanation": "", "split_candidates": []}


@dataclass(frozen=True)
class Question:
    """What is asked. flags : those of the command line, None where not given. axes : dotted key -> values to try."""

    path: str | None = None
    sets: tuple[str | tuple, ...] = ()
    variant: tuple[str, ...] = ()
    flags: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, list] = field(default_factory=dict)
    minimise: str | None = None
    prices: tuple[str, ...] = ()
    seed: int | None = None
    effort: Effort = field(default_factory=Effort)
    split: bool = False
    """also prefill and decode apart"""
    tell: Tell = quiet
    """takes lines about what is going on"""
    link: str | None = None
    """what carries KV between the pools; None: splitting.LINK"""


@answer_of("size")
def size(question: Question) -> dict[str, Any]:
    """Size it. Returns plain data, as docs/sizing.md describes. Raises UserError for what can't be asked."""
    started = time.monotonic()
    make, notes = maker(question)
    axes = {key: values for key, values in question.axes.items() if values}
    own = parse_prices(list(question.prices))
    effort = combinations.with_search_runs(question.effort, _product(axes))
    scenario = make([])
    _check_target(scenario)
    pooled = scenario.spec.pools is not None
    if question.link is not None and (pooled or not question.split):
        raise UserError("--link: goes with --split; a scenario with pools has handoff.link, which --set changes")
    by_cost = question.minimise == "cost" or (question.minimise is None and len(axes.get("gpu", ())) > 1)
    apart, told_apart = [], NO_SPLIT
    if question.split or pooled:
        more = [] if pooled else splitting.pools_of(question.link)
        apart = splitting.candidates(make, more, axes, own, effort, by_cost, question.tell)
    found = [] if pooled else combinations.candidates(make, axes, own, effort, question.tell)
    chosen = combinations.best(found, effort, by_cost) if found else None
    best_apart = splitting.best(apart) if apart else None
    if apart:
        told_apart = splitting.told(apart, best_apart)
    if pooled:
        told = splitting.of_pools(told_apart, apart, best_apart, effort)
    else:
        told = _answer(chosen, effort) if chosen is not None else _no_answer(found)
    return {
        **told,
        "minimised": "cost" if by_cost else "gpus",
        "candidates": [combinations.told(one, by_cost) for one in found] if len(found) > 1 else [],
        "command": command(question),
        "prices": _sources([*found, *apart]) if by_cost else [],
        "warnings": warned_if_built(make([(key, value, "--try") for key, value in (chosen.choice if chosen else {}).items()])),
        "notes": [*notes, *_more_notes(chosen), *splitting.notes(best_apart, pooled, pooled or question.link is not None)],
        "runs": sum(one.search.probe.runs for one in [*found, *apart] if one.search is not None),
        "seconds": round(time.monotonic() - started, 2),
        **told_apart,
        "smaller": splitting.smaller(told_apart["split"], told, by_cost) if apart and not pooled else None,
    }


def maker(question: Question) -> tuple[combinations.Make, list[str]]:
    """How to make the scenario with more overrides, and what was assumed for it."""
    seed = [] if question.seed is None else [("run.seed", question.seed, "--seed")]
    if question.path is not None:
        given = _overrides(question.flags)

        def from_file(more: list[tuple]) -> Scenario:
            return load(question.path, variant=question.variant, sets=[*question.sets, *given, *seed, *more])

        return from_file, []
    asked = scenario_from(question.flags)

    def from_flags(more: list[tuple]) -> Scenario:
        return from_mapping(asked.mapping, sets=[*question.sets, *seed, *more], places=FLAG_PLACES)

    return from_flags, asked.notes


def _overrides(flags: dict[str, Any]) -> list[tuple]:
    """Flags that change a scenario file."""
    if wrong := [name for name in ("in", "out", "lengths", "arrival_cv") if flags.get(name) is not None]:
        raise UserError(f"--{wrong[0].replace('_', '-')}: a scenario has its own workload; change it with --set")
    given: list[tuple] = []
    for name, key in (("model", "model"), ("gpu", "gpu"), ("routing", "routing"), ("engine", "engine.preset")):
        if flags.get(name) is not None:
            given.append((key, flags[name], f"--{name}"))
    if flags.get("rate") is not None:
        given.append(("workload.arrivals.rate", flags["rate"], "--rate"))
    if flags.get("trace") is not None:
        values = {"workload.requests": None, "workload.duration": None, "workload.trace.file": flags["trace"]}
        given += [(key, value, "--trace") for key, value in values.items()]
    return [*given, *((f"slo.{key}", value, "--slo") for key, value in slo_from(flags).items())]


def _check_target(scenario: Scenario) -> None:
    classes = scenario.spec.workload.classes or {}
    if scenario.spec.slo is None and not any(one.slo is not None for one in classes.values()):
        raise UserError(scenario.fault("slo", "missing; sizing needs a target, such as --ttft 500ms --tpot 50ms"))
    arrivals = scenario.spec.workload.arrivals
    if arrivals is not None and arrivals.process == "burst":
        raise UserError(scenario.fault("workload.arrivals", "all at once is no rate to size for; give a rate"))


def _answer(one: Candidate, effort: Effort) -> dict[str, Any]:
    sized, search = one.sized, one.search
    assert sized is not None and search is not None and sized.attained is not None
    replicas, spec = sized.replicas, sized.prepared.scenario.spec
    short, moved = binds(sized), search.step_error(sized.replicas) if effort.step_error else None
    return {
        "verdict": FEASIBLE,
        "replicas": replicas,
        "gpus": replicas * one.gpus_per_replica,
        "attainment": splitting.limits(sized.attained.told()),
        "one_less": _one_less(one),
        "headroom_rate_per_s": search.headroom(replicas) if effort.headroom else None,
        "binds": short["resource"],
        "reason": None,
        "explanation": "",
        "binds_target": short["target"],
        "gpus_per_replica": one.gpus_per_replica,
        "concurrency": None if sized.attained.last is None else Concurrency.of(sized.attained.last).to_dict(),
        **({"step_error": None if moved is None else moved.to_dict()} if effort.step_error else {}),
        "run_length": search.length.told().to_dict(),
        "bound": None if search.bound is None else search.bound.to_dict(),
        "n_plus_one": _n_plus_one(one, replicas),
        "usd_per_hour": _dollars(one, replicas),
        "choice": one.choice,
        "deployment": {
            "gpu": spec.gpu if isinstance(spec.gpu, str) else None,
            "tensor_parallel_size": spec.tensor_parallel_size,
            "pipeline_parallel_size": spec.pipeline_parallel_size,
            "routing": spec.routing.policy,
            "engine": spec.engine.preset,
        },
        "details": sized.attained.told(),
        "one_less_details": sized.one_less.told() if sized.one_less else None,
        "theory": _theory(one, replicas),
        "scenario": {**sized.prepared.scenario.to_dict(), "replicas": replicas},
    }


def _one_less(one: Candidate) -> dict[str, Any] | None:
    """What one replica less gives, and why it is no answer."""
    sized = one.sized
    if sized.one_less is None:
        return None
    why = one.search.why_less(sized.replicas, sized.one_less)
    return {"replicas": sized.replicas - 1, **splitting.limits(sized.one_less.told()), "why": why}


def _n_plus_one(one: Candidate, replicas: int) -> dict[str, Any]:
    """With one more, the SLO still holds when one fails: what is left is the answer."""
    more = replicas + 1
    return {"replicas": more, "gpus": more * one.gpus_per_replica, "usd_per_hour": _dollars(one, more)}


def _dollars(one: Candidate, replicas: int) -> float | None:
    return None if one.price is None else replicas * one.gpus_per_replica * one.price.usd_per_gpu_hour


def _theory(one: Candidate, replicas: int | None) -> dict[str, Any]:
    """What arithmetic says of the same: capacity of a replica, what binds it, replicas by means and their utilisation."""
    search = one.search
    assert search is not None
    bounds, rate = search.bounds, search.rate_per_s
    means = None if rate is None else bounds.replicas_by_means(rate, search.tpot_s)
    return {
        "rate_per_s": rate,
        "capacity_per_replica_per_s": bounds.capacity_per_s,
        "binding": bounds.binding.name,
        "concurrency": bounds.binding.batch,
        "replicas_by_means": means,
        "utilisation_by_means": None if not means else bounds.utilisation(rate, means, search.tpot_s),
        "utilisation": None if rate is None or not replicas else bounds.utilisation(rate, replicas, search.tpot_s),
        "wait_s": None if rate is None or not replicas else bounds.wait_s(rate / replicas),
    }


def _no_answer(found: list[Candidate]) -> dict[str, Any]:
    """The candidate that came nearest speaks for all."""
    undecided = [one for one in found if one.reason == "not_decided"]
    tried = [one for one in found if one.sized is not None and one.sized.attained is not None]
    one = (undecided or tried or [c for c in found if c.search is not None] or found)[0]
    reason = one.reason or "not_decided"
    attained = None if one.sized is None or one.sized.attained is None else one.sized.attained.told()
    return {
        "verdict": UNDECIDED if reason == "not_decided" else INFEASIBLE,
        "replicas": None,
        "gpus": None,
        "attainment": NOTHING if attained is None else splitting.limits(attained),
        "one_less": None,
        "headroom_rate_per_s": None,
        "binds": None,
        "reason": reason,
        "explanation": one.sentence or REASONS[reason],
        "choice": one.choice,
        "gpus_per_replica": one.gpus_per_replica,
        "run_length": None if one.search is None else one.search.length.told().to_dict(),
        "bound": None if one.search is None or one.search.bound is None else one.search.bound.to_dict(),
        "theory": None if one.search is None else _theory(one, None),
    }


def _sources(found: list[Candidate | SplitCandidate]) -> list[str]:
    prices = [one for each in found for one in (each.prices if isinstance(each, SplitCandidate) else (each.price,))]
    return list(dict.fromkeys(one.source for one in prices if one is not None))


def _more_notes(chosen: Candidate | None) -> list[str]:
    if chosen is None or chosen.search is None or chosen.sized is None or chosen.sized.attained is None:
        return []
    notes, seen = [], chosen.sized.attained
    if chosen.search.probe.alike:
        notes.append(ONE_TRAFFIC)
    if chosen.search.bound is not None and chosen.search.bound.near:
        notes.append(chosen.search.bound.sentence(chosen.search.climbed))
    if (longer := chosen.search.length.told().sentence) is not None:
        notes.append(longer)
    if seen.last is not None:
        notes += [note for note in seen.last.notes if "reference engine ran" not in note]
    return notes


def _product(axes: dict[str, list]) -> int:
    number = 1
    for values in axes.values():
        number *= len(values)
    return number


def command(question: Question) -> str:
    """The exact command that asks the same again."""
    words = ["llmqsim", "size", *([question.path] if question.path else [])]
    for variant in question.variant:
        words += ["--variant", variant]
    axes = dict(question.axes)
    gpus, degrees = axes.pop("gpu", None), axes.pop("tensor_parallel_size", None)
    for name, value in question.flags.items():
        if value is not None and not (name == "gpu" and gpus):
            words += [f"--{name.replace('_', '-')}", str(value)]
    words += ["--gpu", ",".join(gpus)] if gpus else []
    words += ["--tp", ",".join(map(str, degrees))] if degrees else []
    for item in question.sets:
        words += ["--set", item if isinstance(item, str) else f"{item[0]}={item[1]}"]
    for key, values in axes.items():
        words += ["--try", f"{key}={','.join(map(str, values))}"]
    words += ["--minimise", question.minimise] if question.minimise else []
    for text in question.prices:
        words += ["--price", text]
    words += ["--seed", str(question.seed)] if question.seed is not None else []
    words += ["--split"] if question.split else []
    words += ["--link", question.link] if question.link else []
    if question.effort.climbs or question.effort.most_replicas != Effort().most_replicas:
        words += ["--max-replicas", str(question.effort.most_replicas)]
    return shlex.join(words)


def as_yaml(told: dict[str, Any]) -> str:
    """The answer's deployment, the smaller one of two, as a scenario file for `llmqsim run`."""
    head = f"# Made by: {told['command']}\n"
    scenario = told["split"]["scenario"] if told["smaller"] == splitting.SPLIT else told["scenario"]
    return head + yaml.safe_dump(scenario, sort_keys=False, allow_unicode=True)
