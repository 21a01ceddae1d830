"""advise: what every lever short of hardware would give, the best stack, what is wrong, and what is left to buy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from llmqsim.answers import answer_of
from llmqsim.errors import UserError
from llmqsim.hardware.prices import parse_prices
from llmqsim.planner.advise import commands
from llmqsim.planner.advise.causes import causes
from llmqsim.planner.advise.facts import Facts, without_cap
from llmqsim.planner.advise.hardware import needed, spared
from llmqsim.planner.advise.levers import all_levers
from llmqsim.planner.advise.rows import Dropped, Row, table
from llmqsim.planner.advise.stack import Stack, build, judged
from llmqsim.planner.advise.trial import Bench, Trial, difference, settled
from llmqsim.planner.attain import KEPT, Attained
from llmqsim.planner.limits import ONE_TRAFFIC
from llmqsim.planner.size import AT_BOUND, share_text
from llmqsim.planner.utilisation import SATURATED, diagnose
from llmqsim.planner.vary import loops
from llmqsim.planner.warned import warned_if_built

NO_HARDWARE, LEVERS, HARDWARE, OUT_OF_REACH, UNDECIDED = (
    "no_hardware_needed", "levers", "add_gpus", "out_of_reach", "undecided",
)  # fmt: skip
FEW_REQUESTS = 500
"""requests a run below which intervals of tails say little"""


@answer_of("advise")
def advise(bench: Bench, prices: Sequence[str] = ()) -> dict[str, Any]:
    """Ask. prices : GPU=DOLLARS of the reader. Returns plain data, as docs/advise.md describes. Raises UserError."""
    started = time.monotonic()
    own = parse_prices(list(prices))
    scenario = bench.scenario()
    _check(scenario)
    asked = bench
    _check_run(base := bench.trial())
    bench, base, longer = settled(bench, base)
    rows, dropped = table(bench, base, all_levers(base.facts))
    now = judged(base)
    met = now.judged == KEPT
    stack = Stack((), base, now) if met else build(bench, base, rows)
    left = None if stack.kept else needed(stack)
    full = max(base.utilisation, stack.trial.utilisation)  # a lever that spares work leaves less to be busy with
    named = [] if met else _causes(base, rows, stack, full)
    return {
        "verdict": (verdict := _verdict(now, stack, left)),
        "explanation": _explanation(verdict, named, stack, left, full),
        "causes": named,
        "scenario": bench.path,
        "question": scenario.spec.question,
        "seed": base.seed,
        "replications": base.replications,
        "requests": len(base.facts.table),
        "rate_per_s": base.facts.rate_per_s,
        "objectives": [{"objective": one.label, "asked": one.share} for one in base.facts.objectives],
        "base": {
            **_deployment(base, own),
            "attainment": _limits(now),
            "stability": now.verdict,
            **_filled(base, now),
        },
        "levers": [_row(bench, row, own) for row in rows],
        "left_out": [_left_out(bench, base, one) for one in dropped],
        "stack": _stack(bench, base, stack, own) if stack.levers else None,
        "hardware": left,
        "gpus_spared": None if met else spared(base, stack),
        "command": commands.advise(asked, prices),
        "warnings": warned_if_built(scenario),
        "notes": _notes(base, stack, rows, longer),
        "seconds": round(time.monotonic() - started, 2),
    }


def _causes(base: Trial, rows: Sequence[Row], stack: Stack, full: float) -> list[dict[str, Any]]:
    """What the levers of the stack do, first; those that may change answers only where the stack begins with one.

    What leaves answers as they are is pulled before: where the stack still needs it, it is the better half of the cure.
    """
    lossy = bool(stack.levers) and stack.levers[0].changes_answers
    return causes(base.facts, rows, full, short=not stack.kept, lossy=lossy)


def _check(scenario: Any) -> None:
    classes = scenario.spec.workload.classes or {}
    if scenario.spec.slo is None and not any(one.slo is not None for one in classes.values()):
        told = "missing; advice needs a target to reach, such as {ttft: 500 ms, tpot: 50 ms}"
        raise UserError(scenario.fault("slo", told))
    if loops(without_cap(scenario)):
        told = (
            "clients wait for answers, so there is no rate to serve within the SLO; vary settings with llmqsim compare"
        )
        raise UserError(scenario.fault("workload", told))
    arrivals = scenario.spec.workload.arrivals
    if arrivals is not None and arrivals.process == "burst":
        raise UserError(
            scenario.fault("workload.arrivals", "all at once is no rate to serve within the SLO; give a rate")
        )


def _check_run(base: Trial) -> None:
    scenario, result = base.prepared.scenario, base.facts.result
    if base.facts.rate_per_s is None:
        raise UserError(
            scenario.fault(
                "workload",
                "has no rate of arrivals; give arrivals a rate, so that there is something to serve within the SLO",
            )
        )
    if not any(one.asked(result.table, result.promised).any() for one in base.facts.objectives):
        raise UserError(
            scenario.fault("slo", "no measured request has this target; check run.warmup and the classes' slo")
        )


def _verdict(now: Attained, stack: Stack, left: dict[str, Any] | None) -> str:
    if now.judged == KEPT:
        return NO_HARDWARE
    if stack.kept:
        return LEVERS
    if left is not None and left["add_gpus"]:
        return HARDWARE
    return (
        UNDECIDED
        if left is None or left["reason"] in (None, "not_decided", "not_searched", "most_replicas_reached")
        else OUT_OF_REACH
    )


def _filled(base: Trial, now: Attained) -> dict[str, Any]:
    """How full the servers are, and whose problem the missing attainment is by that rule (planner/utilisation.py)."""
    told = now.told()
    found = diagnose(
        told["mean"] or 0.0, told["asked"], base.utilisation, base.facts.summary["waiting_for"], base.facts.held_s
    )
    return {"utilisation": base.utilisation, "problem": found.problem, "problem_says": found.sentence}


def _explanation(
    verdict: str, named: list[dict[str, Any]], stack: Stack, left: dict[str, Any] | None, full: float
) -> str:
    """The rule that gave the verdict, in a sentence. full : utilisation, with the levers or without, what is more."""
    load = f" at {100 * stack.trial.utilisation:.0f} % of the saturated throughput"
    with_levers = "with all levers that help pulled" if stack.levers else "no lever is shown to help, and as it is"
    if verdict == NO_HARDWARE:
        return f"the SLO is kept{load}: no hardware is needed"
    if verdict == LEVERS:
        problem = named[0]["says"] if named else "no cause is shown"
        return f"the SLO is missed as it is, and kept with other settings{load}: no hardware is needed. {problem}"
    if verdict == HARDWARE:
        tight = "steps are too slow for the targets before that"
        why = "the GPUs are saturated" if full >= SATURATED else tight
        return f"{with_levers}, the SLO is missed{load}: {why}; GPUs are needed"
    if verdict == OUT_OF_REACH:
        number = "no number" if left["reason"] != AT_BOUND else "no number within reason"
        return f"{number} of these GPUs keeps the SLO: {left['explanation']}"
    return f"{with_levers}, runs can't tell whether the SLO is kept ({share_text(stack.attained)})"


def _deployment(trial: Trial, own: dict[str, float]) -> dict[str, Any]:
    capacity = trial.capacity
    return {
        "gpus": trial.facts.gpus,
        "usd_per_hour": trial.facts.usd_per_hour(own),
        "capacity_per_s": None if capacity is None else {k: getattr(capacity, k) for k in ("mean", "low", "high")},
    }


def _limits(attained: Attained) -> dict[str, Any]:
    told = attained.told()
    return {key: told[key] for key in ("mean", "low", "high", "objective", "asked", "runs", "judged")}


def _row(bench: Bench, row: Row, own: dict[str, float]) -> dict[str, Any]:
    facts: Facts = row.trial.facts
    return {
        "lever": row.lever.name,
        "says": row.lever.says,
        "sets": dict(row.lever.sets),
        "cures": row.lever.cures,
        "changes_answers": row.lever.changes_answers,
        "buys": row.lever.buys,
        "helps": row.helps,
        "attainment": row.attainment,
        "capacity_per_s": row.capacity,
        "replications": row.trial.replications,
        "engine": facts.result.engine,
        "gpus": facts.gpus,
        "usd_per_hour": facts.usd_per_hour(own),
        "worse": row.worse,
        "command": commands.compare(bench, row.lever.name, row.lever.sets, row.trial.replications),
    }


def _left_out(bench: Bench, base: Trial, one: Dropped) -> dict[str, Any]:
    command = commands.compare(bench, one.lever.name, one.lever.sets, base.replications)
    return {"lever": one.lever.name, "says": one.lever.says, "reason": one.reason, "command": command}


def _stack(bench: Bench, base: Trial, stack: Stack, own: dict[str, float]) -> dict[str, Any]:
    sets = commands.together([lever.sets for lever in stack.levers])
    preset = stack.trial.facts.places[0].options.preset
    options, others = commands.served(preset, sets)
    gain = difference(base, stack.trial, base.margins(), stack.trial.margins())
    return {
        "levers": [lever.name for lever in stack.levers],
        "says": [lever.says for lever in stack.levers],
        "sets": dict(sets),
        "changes_answers": any(lever.changes_answers for lever in stack.levers),
        **_deployment(stack.trial, own),
        "attainment": _limits(stack.attained),
        "gain": {"mean": gain.mean, "low": gain.low, "high": gain.high},
        "stability": stack.attained.verdict,
        "utilisation": stack.trial.utilisation,
        "kept": stack.kept,
        "vllm_serve": options,
        "other_changes": others,
        "command": commands.compare(bench, "stack", sets, stack.trial.replications),
    }


def _notes(base: Trial, stack: Stack, rows: Sequence[Row], longer: str | None) -> list[str]:
    notes = []
    if longer is not None:
        notes.append(longer)
    judged_by = stack.attained.last
    if judged_by is not None and len(judged_by.table) > len(base.facts.table):
        whose = "of the stack" if stack.levers else "as it is"
        told = f"the attainment {whose} is of runs of {len(judged_by.table):,} requests"
        notes.append(f"{told}: shorter ones do not show whether a backlog grows")
    if base.alike:
        notes.append(ONE_TRAFFIC)
    for what, trial in (
        ("the capacity as it is", base),
        *([("that of the stack", stack.trial)] if stack.levers else []),
    ):
        notes += [f"{what} is {trial.bounded}"] if trial.bounded else []
    if (requests := len(base.facts.table)) < FEW_REQUESTS:
        notes.append(f"runs of {requests:,} requests are short: tails rest on few requests; raise workload.requests")
    if stack.attained.verdict == "unsettled":
        notes.append("a run of this length does not show a steady state at this load: a longer workload may show less")
    outside = {axis: share for axis, share in stack.trial.facts.summary["envelope"]["outside"].items() if share}
    if outside:
        told = ", ".join(f"{axis} {100 * share:.0f} %" for axis, share in sorted(outside.items()))
        notes.append(f"steps beyond the measured range of the cost model, extrapolated: {told}")
    slow = [row.lever.name for row in rows if row.trial.slow and not base.slow]
    if slow:
        notes.append(f"{', '.join(slow)}: only the reference engine runs it, so there are fewer runs and no capacity")
    if any(row.lever.changes_answers for row in rows if row.helps):
        notes.append(
            "levers marked * change the model's outputs (weights or KV in fewer bits): check the quality of answers on "
            "your own tasks; all others leave the tokens as they are, and come first of those that help"
        )
    return notes
