"""Scenarios of split pools and of claims about them run at reduced size; their goodput is what it says it is."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from llmqsim import load, simulate
from llmqsim.claims.run import FOLDER
from llmqsim.planner import goodput
from llmqsim.simulation import prepare

SCENARIOS = Path(__file__).parents[2] / "scenarios"
C06 = FOLDER / "c06.yaml"
FILES = [*sorted((SCENARIOS / "disaggregation").glob("*.yaml")), C06]
CASES = [(path, variant) for path in FILES for variant in (None, *load(path).known_variants)]
QUICK = {"workload.requests": 30}


@pytest.mark.parametrize(("path", "variant"), CASES, ids=[f"{path.stem} {variant or ''}" for path, variant in CASES])
def test_a_scenario_runs(path, variant):
    assert path.read_text(encoding="utf-8").startswith("# ")
    result = simulate(load(path, variant=variant, sets=QUICK))
    summary = result.summary()
    assert summary["requests"]["completed"] == 30
    assert (summary.get("handoff") is None) == (variant in ("colocated", "three_colocated", "prefill_only"))


def test_goodput_is_the_last_rate_that_keeps_a_target(monkeypatch):
    """A looser target keeps at least the rate of a tighter one; none is kept where a single step takes longer."""
    monkeypatch.setattr(goodput, "SECONDS", 10)
    monkeypatch.setattr(goodput, "LEAST", 60)
    slos = [(1e-6, 1.0), (0.5, 0.02), (5.0, 0.2)]
    found = goodput.goodput(prepare(load(C06)), slos, goodput.grid(1, 8, 2.0))
    assert found[slos[0]] == 0.0
    assert 0 < found[slos[1]] <= found[slos[2]] <= 8
    rates = goodput.grid(1, 10, 1.5)
    assert rates[0] == 1 and rates[-1] >= 10 and math.isclose(rates[1] / rates[0], 1.5)


def test_a_rate_is_that_of_the_scenario_written_so():
    written = load(C06, sets={"workload.arrivals.rate": 7, "workload.requests": 280})
    asked = goodput.at_rate(prepare(load(C06)), 7.0)
    assert asked.run(0, 0).summary() == simulate(written).summary()
