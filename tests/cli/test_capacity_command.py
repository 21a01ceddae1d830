"""llmqsim capacity, check-theory and size from the command line."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import yaml

from llmqsim import from_mapping
from llmqsim.metrics.slo import objectives
from llmqsim.planner.capacity import Curve, step_error
from llmqsim.scenario.build import build_workload
from llmqsim.simulation import Prepared, prepare, promise
from tests.cli.commands import SCENARIO, SERVED, TRACE, llmqsim, strict_json, write

QUEUE = """\
workload:
  requests: 1200
  arrivals: {process: poisson, rate: 5 req/s}
  lengths: {prompt: {exponential: {mean: 1000}}, output: 1}
cost: {model: affine, per_prefill_token: 0.1 ms}
engine: {max_num_seqs: 1, max_num_batched_tokens: 1000000}
slo: {e2e: 500 ms, attainment: 0.9}
"""
"""M/M/1 with a mean service of 0.1 s: E2E is exponential, so the SLO breaks at 10 - ln(10) / 0.5 = 5.39 req/s"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, s_yaml=SCENARIO, q_yaml=QUEUE, served_yaml=SERVED, t_csv=TRACE)


def test_the_knee_of_m_m_1(here):
    said = llmqsim("capacity", "q.yaml", "--replications", 8, "--growth", "5%", "--json", "o.json")
    assert (said.code, said.err) == (0, "")
    told = strict_json(here / "o.json")
    knee = told["knee_rate_per_s"]
    assert knee["low"] - 0.1 <= 5.395 <= knee["high"] + 0.1 and knee["high"] - knee["low"] < 1.0, knee
    assert told["kept_now"] is True or knee["low"] < 5 < knee["high"]
    assert told["growth_left"]["mean"] == pytest.approx(knee["mean"] / 5 - 1)
    assert told["capacity_by_arithmetic_per_s"] == pytest.approx(10, rel=0.05)
    assert said.lines[0].startswith("the SLO breaks at 5.") and "at 5 % a month" in " ".join(said.lines[:2])
    goodput = [p["goodput"]["mean"] for p in told["points"]]
    assert max(goodput) > goodput[-1], "beyond the knee goodput falls"


def test_the_knee_moves_with_step_times():
    """M/M/1: E2E is exponential with rate mu - lambda, so 90 % within 0.5 s hold up to mu - ln(10) / 0.5; mu is 10 / factor."""
    prepared = prepare(from_mapping(yaml.safe_load(QUEUE), sets=["workload.requests=4000"]))
    deployment = prepared.servers.deployment
    cost = replace(deployment.cost, errors={"gemm": {"p90_percent": 10.0}})
    curve_of = Prepared(prepared.scenario, replace(prepared.servers, deployment=replace(deployment, cost=cost)))
    table = build_workload(prepared.scenario, prepared.servers, 0, 0).table
    curve = Curve(curve_of, objectives(promise(prepared.scenario), table.classes), 5.0, 4, 0)
    for factor in (0.8, 0.95, 1.05, 1.1, 1.2):
        curve.at(factor)
    error = step_error(curve, table)
    assert error.longer.value == pytest.approx(10 / 1.1 - math.log(10) / 0.5, abs=0.25)
    assert error.shorter.value == pytest.approx(10 / 0.9 - math.log(10) / 0.5, abs=0.25)


def test_a_load_beyond_what_a_server_completes_is_never_kept(here):
    """Ten a second are completed at most; a run of 120 requests, 10 s, ends before waits of 3 s have built up."""
    sets = ["--set", "workload.requests=120", "--set", "slo.e2e=3", "--set", "slo.attainment=0.8"]
    said = llmqsim("capacity", "q.yaml", "--replications", 4, "--json", "o.json", *sets)
    told = strict_json(here / "o.json")
    assert said.code == 0 and told["run_length"]["run"] > told["run_length"]["asked"] == 120
    assert told["knee_rate_per_s"] is None or told["knee_rate_per_s"]["mean"] < 10
    assert not any(p["kept"] for p in told["points"] if p["rate_per_s"] > 10)
    assert "runs lengthened to" in said.out


def test_the_figure(here):
    pytest.importorskip("matplotlib", reason="an extra: pip install 'llmqsim[figures]'")
    for name in ("one.svg", "two.svg"):
        assert llmqsim("capacity", "q.yaml", "--replications", 2, "--figure", name).code == 0
    assert (here / "one.svg").read_bytes() == (here / "two.svg").read_bytes()


def test_theory_beside_simulation(here):
    said = llmqsim("check-theory", "q.yaml", "--json", "o.json", "--replications", 8)
    assert (said.code, said.err) == (0, "")
    rows = {row["quantity"]: row for row in strict_json(here / "o.json")["rows"]}
    wait = rows["wait for a place"]
    assert "Pollaczek-Khinchine" in wait["source"]
    assert wait["theory"] == pytest.approx(0.1, rel=0.15)
    assert wait["simulated"]["low"] * 0.8 <= wait["theory"] <= wait["simulated"]["high"] * 1.2
    assert rows["capacity of a replica"]["ratio"] == pytest.approx(1, abs=0.08)
    assert rows["in the system"]["ratio"] == pytest.approx(1, abs=1e-9)


def test_theory_of_a_server_that_decodes(here):
    said = llmqsim("check-theory", "served.yaml", "--json", "o.json", "--set", "workload.requests=400")
    rows = {row["quantity"]: row for row in strict_json(here / "o.json")["rows"]}
    assert said.code == 0 and rows["TPOT mean"]["ratio"] == pytest.approx(1, abs=0.1)
    assert {"running in a replica", "in service", "KV pool in use"} <= set(rows)


def test_size_writes_a_scenario_that_keeps_its_slo(here):
    said = llmqsim("size", "q.yaml", "--set", "workload.arrivals.rate=20", "--json", "o.json", "--save", "answer.yaml")
    assert (said.code, said.err) == (0, "")
    told = strict_json(here / "o.json")
    assert told["replicas"] >= 4 and f"{told['replicas']} replicas" in said.lines[0]
    again = llmqsim("run", "answer.yaml", "--json", "run.json")
    assert again.code == 0 and strict_json(here / "run.json")["slo"]["met"] is True
    assert told["command"] == "llmqsim size q.yaml --set workload.arrivals.rate=20"


def test_size_has_exit_codes(here):
    for change in (("--e2e", "1ms"), ("--set", "slo.e2e=1 ms")):
        said = llmqsim("size", "q.yaml", *change)
        assert said.code == 1 and said.out.startswith("INFEASIBLE (e2e_exceeds_target)")
    assert llmqsim("size", "q.yaml", "--set", "workload.arrivals.rate=100", "--max-replicas", 2).code in (1, 3)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("size", "--model: missing"),
        ("size s.yaml --in 5:1", "--in: a scenario has its own workload"),
        ("size s.yaml --tp x", "--tp: must be whole numbers"),
        ("size s.yaml --try replicas", "--try: must be KEY=A,B"),
        ("size s.yaml --price h100=cheap", "--price: must be GPU=DOLLARS"),
        ("size s.yaml --set slo=null", "slo: missing; sizing needs a target"),
        ("size none.yaml", "none.yaml: no such file"),
        ("size s.yaml --attainment 1", "--attainment: no finite run can show 100 %"),
        ("size s.yaml --variant slwo", "unknown variant"),
        ("capacity s.yaml --replications 1", "--replications: must be a whole number of at least 2"),
        ("capacity s.yaml --growth fast", "--growth: must be a share above 0"),
        ("capacity s.yaml --set slo=null", "slo: missing; goodput needs a target"),
        ("capacity s.yaml --set workload.arrivals={process: closed_loop, clients: 3}", "so there is no load to raise"),
        ("check-theory none.yaml", "none.yaml: no such file"),
    ],
)
def test_mistakes(here, line, said):
    words = line.split(" ", 3) if "closed_loop" in line else line.split()
    got = llmqsim(*words)
    assert (got.code, got.out) == (2, "") and said in got.err, got


POOLS = """\
workload: {requests: 100, arrivals: {process: poisson, rate: 4 req/s}, lengths: {prompt: 500, output: 50}}
model: llama-3.1-8b
gpu: h100-sxm
pools: {prefill: {replicas: 1}, decode: {replicas: 1}}
handoff: {link: rdma-400g}
slo: {ttft: 1 s, tpot: 30 ms}
variants: {more: {pools.decode.replicas: 2}}
"""


@pytest.mark.parametrize("command", ["capacity", "check-theory"])
def test_pools_are_refused_where_one_kind_of_replica_is_asked_for(here, command):
    (here / "pools.yaml").write_text(POOLS)
    said = llmqsim(command, "pools.yaml")
    assert (said.code, said.out) == (2, "") and f"pools.yaml:4: pools: llmqsim {command} knows replicas of one kind" in said.err


def test_pools_are_compared(here):
    (here / "pools.yaml").write_text(POOLS)
    said = llmqsim("compare", "pools.yaml", "--variants", "more", "--replications", 2)
    assert said.code == 0 and "more against base" in said.out
