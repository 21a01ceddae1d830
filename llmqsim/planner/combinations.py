"""Several GPUs, parallelisms, engine options and policies: every combination sized, the cheapest returned."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from llmqsim.errors import NoRoom, ScenarioError, UserError
from llmqsim.hardware.gpu import gpu
from llmqsim.hardware.prices import Price, price
from llmqsim.planner.limits import REASONS
from llmqsim.planner.settle import Tell, quiet
from llmqsim.planner.size import Effort, Search, Sized
from llmqsim.planner.vary import one_kind
from llmqsim.scenario.load import Scenario
from llmqsim.simulation import prepare

Make = Callable[[list[tuple]], Scenario]
"""a checked scenario from overrides (key, value, option)"""
LARGEST_TP = 64
"""tensor parallel size up to which one is looked for that fits"""


@dataclass
class Candidate:
    """One combination. choice : axis to value. least : fewest replicas that arithmetic allows."""

    choice: dict[str, Any]
    search: Search | None = None
    sized: Sized | None = None
    gpus_per_replica: int = 1
    price: Price | None = None
    reason: str | None = None
    sentence: str = ""

    def measure(self, replicas: int, by_cost: bool) -> float:
        """What is made small: dollars an hour, or GPUs."""
        gpus = replicas * self.gpus_per_replica
        return gpus * self.price.usd_per_gpu_hour if by_cost and self.price else float(gpus)


def candidates(make: Make, axes: Mapping[str, list], own_prices: Mapping[str, float], effort: Effort, tell: Tell = quiet) -> list[Candidate]:
    """Every combination of the axes (dotted key -> values), built. One that is refused says why; a single one raises."""
    found = []
    for values in itertools.product(*axes.values()):
        choice = dict(zip(axes, values, strict=True))
        one = Candidate(choice)
        sets = [(key, value, "--gpu" if key == "gpu" else "--try") for key, value in choice.items()]
        scenario = make(sets)
        try:
            one.search = Search(one_kind(prepare(scenario), "size"), effort, tell)
        except NoRoom as error:
            one.reason, one.sentence = error.reason, no_room(error, make, sets)
        except ScenarioError as error:
            one.reason, one.sentence = "not_configurable", said(error)
            if not _several(axes):
                raise
        spec = scenario.spec
        one.gpus_per_replica = spec.tensor_parallel_size * spec.pipeline_parallel_size
        if isinstance(spec.gpu, str):
            one.price = price(gpu(spec.gpu).name, own_prices)
        found.append(one)
    return found


def said(error: ScenarioError) -> str:
    """The first fault, without the option that it came from: the combination is named beside it."""
    fault = error.faults[0]
    for option in ("--try: ", "--gpu: ", "--tp: ", "--set: ", "--model: ", "--engine: ", "--routing: ", "flags: ", "<mapping>: "):
        fault = fault.removeprefix(option)
    return fault


def no_room(error: NoRoom, make: Make, sets: list[tuple]) -> str:
    """The fault; where weights do not fit, with the smallest tensor parallel size at which they do."""
    if error.reason != "weights_do_not_fit":
        return said(error)
    fits = smallest_tp(make, sets)
    return f"{said(error)}; " + (f"TP {fits} is the smallest that fits" if fits else f"no TP up to {LARGEST_TP} fits")


def smallest_tp(make: Make, sets: list[tuple]) -> int | None:
    """The smallest power of two up to LARGEST_TP at which the servers can be built; None where there is none."""
    degree = 2
    while degree <= LARGEST_TP:
        try:
            prepare(make([*sets, ("tensor_parallel_size", degree, "--tp")]))
        except ScenarioError:
            degree *= 2
        else:
            return degree
    return None


def _several(axes: Mapping[str, list]) -> bool:
    return math.prod(len(values) for values in axes.values()) > 1


def best(found: list[Candidate], effort: Effort, by_cost: bool) -> Candidate | None:
    """The candidate of least measure whose answer fresh replications confirm; None where there is none.

    Brackets all in the order of what arithmetic allows at least, then judges from the smallest on.
    """
    alive = [one for one in found if one.search is not None]
    if by_cost and (unknown := [one for one in alive if one.price is None]):
        raise UserError(
            f"--minimise cost: no price is known for {unknown[0].choice.get('gpu', 'this GPU')}; give --price GPU=DOLLARS"
        )
    least = math.inf
    for one in sorted(alive, key=lambda c: c.measure(c.search.fewest, by_cost)):
        each = one.measure(1, by_cost)
        most = effort.most_replicas if least == math.inf else min(effort.most_replicas, int(least / each + 1e-9))
        if effort.most_replicas >= one.search.fewest > most:
            one.reason, one.sentence = "dearer", _at_least(one.search.fewest)
            continue
        one.sized = one.search.bracket(most)
        if one.sized.replicas is not None:
            least = min(least, one.measure(one.sized.replicas, by_cost))
        elif most < effort.most_replicas and one.sized.reason in ("most_replicas_reached", "not_decided"):
            one.reason, one.sentence = "dearer", f"up to {most} replicas do not keep the SLO"
        else:
            one.reason, one.sentence = one.sized.reason, one.sized.sentence
    return _judged([one for one in alive if one.sized is not None and one.sized.replicas is not None], by_cost)


def _at_least(replicas: int) -> str:
    return f"arithmetic asks for at least {replicas} replica{'' if replicas == 1 else 's'}"


def _judged(open_: list[Candidate], by_cost: bool) -> Candidate | None:
    judged: list[Candidate] = []
    while open_:
        one = min(open_, key=lambda c: c.measure(c.sized.replicas, by_cost))
        if judged and min(c.measure(c.sized.replicas, by_cost) for c in judged) <= one.measure(one.sized.replicas, by_cost):
            break
        open_.remove(one)
        one.sized = one.search.judge(one.sized.replicas)
        if one.sized.replicas is None:
            one.reason, one.sentence = one.sized.reason, one.sized.sentence
        else:
            judged.append(one)
    return min(judged, key=lambda c: c.measure(c.sized.replicas, by_cost)) if judged else None


def told(one: Candidate, by_cost: bool) -> dict[str, Any]:
    """A row of the table of candidates."""
    replicas = one.sized.replicas if one.sized is not None else None
    gpus = None if replicas is None else replicas * one.gpus_per_replica
    attained = None if one.sized is None or one.sized.attained is None else one.sized.attained.told()["mean"]
    return {
        "choice": one.choice,
        "replicas": replicas,
        "gpus": gpus,
        "usd_per_hour": None if gpus is None or one.price is None else gpus * one.price.usd_per_gpu_hour,
        "attainment": attained,
        "reason": None if replicas is not None else one.reason,
        "explanation": one.sentence or REASONS.get(one.reason or "", ""),
    }


def with_search_runs(effort: Effort, number: int) -> Effort:
    """With many combinations, each step of a search gets fewer runs; the answer is judged as carefully as ever."""
    return effort if number < 4 else replace(effort, search=3)
