"""Sizing prefill and decode pools: every combination of GPU, parallelism and options as a split fleet, as plain data."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmqsim.errors import NoRoom, ScenarioError, UserError
from llmqsim.hardware.gpu import gpu
from llmqsim.hardware.prices import Price, price
from llmqsim.planner.attain import KEPT, Attained
from llmqsim.planner.combinations import Make, no_room, said
from llmqsim.planner.limits import FEASIBLE, INFEASIBLE, NOTHING, ONE_TRAFFIC, REASONS, UNDECIDED
from llmqsim.planner.settle import Tell, quiet
from llmqsim.planner.size import Effort
from llmqsim.planner.split import Pair, SizedSplit, SplitSearch
from llmqsim.planner.vary import pool_names
from llmqsim.scenario.load import Scenario
from llmqsim.simulation import prepare

LINK = "rdma-400g"
"""where --link is not given: a NIC for each GPU, so that the pools may stand in different servers"""
SPLIT, COLOCATED, SAME = "split", "colocated", "same"


@dataclass
class SplitCandidate:
    """One combination. gpus, prices : of a prefill and of a decode replica."""

    choice: dict[str, Any]
    search: SplitSearch | None = None
    sized: SizedSplit | None = None
    gpus: tuple[int, int] = (1, 1)
    prices: tuple[Price | None, Price | None] = (None, None)
    reason: str | None = None
    sentence: str = ""

    def gpus_of(self, pair: Pair) -> int:
        """GPUs of a fleet."""
        return pair[0] * self.gpus[0] + pair[1] * self.gpus[1]

    def dollars(self, pair: Pair) -> float | None:
        """Dollars an hour; None where a price is not known."""
        if None in self.prices:
            return None
        each = zip(pair, self.gpus, self.prices, strict=True)
        return sum(count * gpus * one.usd_per_gpu_hour for count, gpus, one in each)

    def measure(self, pair: Pair) -> float:
        """What is made small."""
        return self.search.measure(pair)


def pools_of(link: str | None) -> list[tuple]:
    """The overrides that make two pools of a scenario with replicas of one kind."""
    counts = [(f"pools.{name}.replicas", 1, "--split") for name in ("prefill", "decode")]
    return [*counts, ("handoff.link", link or LINK, "--link")]


def candidates(
    make: Make,
    more: list[tuple],
    axes: Mapping[str, list],
    prices: Mapping[str, float],
    effort: Effort,
    by_cost: bool,
    tell: Tell = quiet,
) -> list[SplitCandidate]:
    """Every combination as a split fleet, built. What memory refuses says why; raises where all others are refused."""
    found, refused = [], None
    for values in itertools.product(*axes.values()):
        choice = dict(zip(axes, values, strict=True))
        one = SplitCandidate(choice)
        sets = [(key, value, "--gpu" if key == "gpu" else "--try") for key, value in choice.items()]
        try:
            _build(one, make([*sets, *more]), prices, effort, by_cost, tell)
        except NoRoom as error:
            one.reason, one.sentence = error.reason, no_room(error, make, [*sets, *more]) if more else said(error)
        except ScenarioError as error:
            one.reason, one.sentence = "not_configurable", said(error)
            refused = refused or error
        found.append(one)
    if refused is not None and all(one.search is None for one in found):
        raise refused
    return found


def _build(
    one: SplitCandidate, scenario: Scenario, prices: Mapping[str, float], effort: Effort, by_cost: bool, tell: Tell
) -> None:
    prepared = prepare(scenario)
    pools = [scenario.spec.pools[name] for name in pool_names(prepared, "size")]
    one.gpus = tuple(pool.tensor_parallel_size * pool.pipeline_parallel_size for pool in pools)
    one.prices = tuple(price(gpu(pool.gpu).name, prices) if isinstance(pool.gpu, str) else None for pool in pools)
    dollars = [one.dollars((1, 0)), one.dollars((0, 1))]
    if by_cost and None in dollars:
        raise UserError("--minimise cost: no price is known for a pool's GPU; give --price GPU=DOLLARS")
    one.search = SplitSearch(prepared, effort, tuple(dollars) if by_cost else one.gpus, tell)


def best(found: list[SplitCandidate]) -> SplitCandidate | None:
    """The candidate of least measure whose answer fresh replications confirm; None where there is none."""
    least = float("inf")
    alive = [one for one in found if one.search is not None]
    for one in sorted(alive, key=lambda c: c.measure(c.search.fewest)):
        prefill, decode = one.search.fewest
        if one.measure((prefill, decode)) >= least:
            one.reason, one.sentence = "dearer", f"arithmetic asks for at least {prefill}P{decode}D"
            continue
        one.sized = one.search.bracket(least)
        one.reason, one.sentence = one.sized.reason, one.sized.sentence
        if one.sized.pair is not None:
            least = min(least, one.measure(one.sized.pair))
    return _judged([one for one in alive if one.sized is not None and one.sized.pair is not None])


def _judged(open_: list[SplitCandidate]) -> SplitCandidate | None:
    judged: list[SplitCandidate] = []
    while open_:
        one = min(open_, key=lambda c: c.measure(c.sized.pair))
        if any(c.measure(c.sized.pair) <= one.measure(one.sized.pair) for c in judged):
            break
        open_.remove(one)
        one.sized = one.search.judge(one.sized.pair)
        one.reason, one.sentence = one.sized.reason, one.sized.sentence
        if one.sized.pair is not None:
            judged.append(one)
    return min(judged, key=lambda c: c.measure(c.sized.pair)) if judged else None


def told(found: list[SplitCandidate], one: SplitCandidate | None) -> dict[str, Any]:
    """Keys `split` (None without an answer), `split_reason`, `split_explanation`, `split_candidates`."""
    rows = [_row(each) for each in found] if len(found) > 1 else []
    if one is None:
        last = next((c for c in found if c.sized is not None and c.sized.attained is not None), found[0])
        reason = last.reason or "not_decided"
        explanation = last.sentence or REASONS[reason]
        return {"split": None, "split_reason": reason, "split_explanation": explanation, "split_candidates": rows}
    return {"split": _answer(one), "split_reason": None, "split_explanation": "", "split_candidates": rows}


def _answer(one: SplitCandidate) -> dict[str, Any]:
    sized, search = one.sized, one.search
    prefill, decode = sized.pair
    scenario = search.servers(sized.pair).scenario
    return {
        "prefill_replicas": prefill,
        "decode_replicas": decode,
        "gpus": one.gpus_of(sized.pair),
        "usd_per_hour": one.dollars(sized.pair),
        "attainment": limits(sized.attained.told()),
        "one_less": {phase: None if less is None else _one_less(less) for phase, less in sized.less.items()},
        "details": sized.attained.told(),
        "gpu": list(dict.fromkeys(_gpu(scenario.spec.pools[name]) for name in search.names)),
        "tensor_parallel_size": [scenario.spec.pools[name].tensor_parallel_size for name in search.names],
        "handoff": scenario.spec.handoff.preset,
        "link": search.prepared.servers.fleet.link.name,
        "choice": one.choice,
        "run_length": search.length.told().to_dict(),
        "theory": {
            "rate_per_s": search.rate_per_s,
            "prefill_capacity_per_s": search.bounds[0].capacity_per_s,
            "decode_capacity_per_s": search.bounds[1].capacity_per_s,
            "decode_binding": search.bounds[1].binding.name,
            "fewest": {"prefill": search.fewest[0], "decode": search.fewest[1]},
        },
        "scenario": scenario.to_dict(),
    }


def _one_less(less: Attained) -> dict[str, Any]:
    """What one less of a phase gives, and why it is no answer."""
    why = "arithmetic asks for more" if less.judged == KEPT else less.why_open
    return {**limits(less.told()), "why": why}


def _gpu(pool: Any) -> str:
    return pool.gpu if isinstance(pool.gpu, str) else "GPU"


def _row(one: SplitCandidate) -> dict[str, Any]:
    pair = None if one.sized is None else one.sized.pair
    return {
        "choice": one.choice,
        "prefill_replicas": None if pair is None else pair[0],
        "decode_replicas": None if pair is None else pair[1],
        "gpus": None if pair is None else one.gpus_of(pair),
        "usd_per_hour": None if pair is None else one.dollars(pair),
        "reason": one.reason,
        "explanation": one.sentence,
    }


def limits(told: dict[str, Any]) -> dict[str, Any]:
    """An attainment as the answer has it."""
    return {key: told[key] for key in ("mean", "low", "high", "objective", "asked", "judged")}


def smaller(split: dict[str, Any] | None, whole: dict[str, Any], by_cost: bool) -> str | None:
    """Which of the two answers is the smaller one: SPLIT, COLOCATED or SAME; None where there is neither."""
    key = "usd_per_hour" if by_cost else "gpus"
    if split is None or whole["replicas"] is None:
        return None if split is None and whole["replicas"] is None else COLOCATED if split is None else SPLIT
    if abs(split[key] - whole[key]) < 1e-9:
        return SAME
    return SPLIT if split[key] < whole[key] else COLOCATED


def of_pools(
    apart: dict[str, Any], found: list[SplitCandidate], one: SplitCandidate | None, effort: Effort
) -> dict[str, Any]:
    """The answer for a scenario that has pools: replicas and GPUs are those of both."""
    split = apart["split"]
    seen = [c.sized.attained for c in found if c.sized is not None and c.sized.attained is not None]
    verdict = FEASIBLE if split else UNDECIDED if apart["split_reason"] == "not_decided" else INFEASIBLE
    attained = split["attainment"] if split else limits(seen[0].told()) if seen else NOTHING
    less = [less for less in split["one_less"].values() if less is not None] if split else []
    replicas = split["prefill_replicas"] + split["decode_replicas"] if split else None
    return {
        "verdict": verdict,
        "replicas": replicas,
        "gpus": split["gpus"] if split else None,
        "attainment": attained,
        "one_less": {"replicas": replicas - 1, **max(less, key=lambda one: one["mean"] or 0.0)} if less else None,
        "headroom_rate_per_s": one.search.headroom(one.sized.pair) if one is not None and effort.headroom else None,
        "binds": None,
        "reason": apart["split_reason"],
        "explanation": apart["split_explanation"],
        "usd_per_hour": split["usd_per_hour"] if split else None,
        "choice": split["choice"] if split else {},
        "theory": None,
        "scenario": split["scenario"] if split else None,
    }


def notes(one: SplitCandidate | None, pooled: bool, link_given: bool) -> list[str]:
    """What the reader of the answer should know. pooled : there is no answer with replicas of one kind beside it."""
    if one is None or one.search is None or one.sized is None or one.sized.attained is None:
        return []
    said = [] if link_given else [f"the split hands KV over {LINK}, as nothing else was asked for; --link names another"]
    if one.search.probe.alike and pooled:
        said.append(ONE_TRAFFIC)
    if (longer := one.search.length.told().sentence) is not None:
        said.append(f"split: {longer}")
    last = one.sized.attained.last
    return [*said, *([] if last is None else [f"split: {note}" for note in last.notes])]
