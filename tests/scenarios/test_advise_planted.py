"""Six planted problems: advise names the planted cause first, and its stack keeps in fresh runs what it promised.

Each scenario in scenarios/advise/ has one thing wrong, which its first comment says.
"""

from __future__ import annotations

from itertools import cycle

import pytest

from llmqsim.metrics import stats
from llmqsim.planner.advise.advise import advise
from llmqsim.planner.advise.trial import Bench
from llmqsim.planner.attain import Probe
from llmqsim.planner.vary import with_replicas
from llmqsim.simulation import prepare
from tests.cli.commands import ROOT

PLANTED = {
    "slot_limit": ("slot_limit", ("slots",)),
    "kv_starvation": ("kv_starvation", ("memory_utilisation",)),
    "whales": ("head_of_line", ("class_apart", "long_apart")),
    "pd_ratio": ("pd_ratio", ("pd_ratio",)),
    "routing": ("routing", ("routing",)),
    "saturation": ("saturation", ()),
}
"""scenario -> the cause, and the levers that mend it, of which one is enough"""
SEEDS = (0, 1, 2)
"""one a cause, in turn"""
OTHER_SEED = 977
FRESH_RUNS = 20
pytestmark = pytest.mark.long


def bench(name: str, seed: int) -> Bench:
    return Bench(str(ROOT / "scenarios" / "advise" / f"{name}.yaml"), seed=seed)


def fresh(name: str, seed: int, told: dict) -> stats.Interval:
    """What the advised deployment attains under seeds that the advice has not seen."""
    scenario = bench(name, seed).scenario([*told["stack"]["sets"].items(), ("run.seed", OTHER_SEED + seed)])
    prepared = prepare(scenario)
    if (left := told["hardware"]) is not None:
        prepared = with_replicas(prepared, scenario.spec.replicas + left["add_replicas"]["replicas"])
    return Probe(OTHER_SEED + seed).decide(prepared, fewest=FRESH_RUNS, most=FRESH_RUNS).interval(0)


@pytest.mark.parametrize(("name", "seed"), list(zip(PLANTED, cycle(SEEDS), strict=False)))
def test_the_planted_cause_comes_first_and_the_stack_keeps_what_it_promised(name, seed):
    told = advise(bench(name, seed))
    cause, levers = PLANTED[name]
    assert told["causes"][0]["cause"] == cause, told["causes"]
    if not levers:
        assert told["causes"][0]["lever"] is None
        assert told["verdict"] == "add_gpus" and told["hardware"]["add_gpus"] >= 1
        assert told["base"]["problem"] == "hardware" and not told["stack"]["kept"]
    else:
        assert told["verdict"] == "levers" and told["hardware"] is None
        assert told["causes"][0]["lever"] in levers and told["stack"]["levers"] == [told["causes"][0]["lever"]]
        assert told["stack"]["gpus"] == told["base"]["gpus"] and not told["stack"]["changes_answers"]
        assert told["base"]["problem"] in ("queue", "memory", "steps", "both")
    found, promised = fresh(name, seed, told), (told["hardware"] or told["stack"])["attainment"]
    assert found.mean >= 0.95
    assert found.low <= promised["high"] and promised["low"] <= found.high
