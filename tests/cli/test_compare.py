"""llmqsim compare: who is paired with whom, what is said of each difference, and the mistakes a user can make."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim import from_mapping, load
from llmqsim.cluster.alone import APART_NS, alone_for
from llmqsim.metrics import stats
from llmqsim.planner import within
from llmqsim.planner.compare import compare_scenarios
from llmqsim.planner.figures import metrics
from llmqsim.planner.vary import at_load, changed
from llmqsim.planner.verdict import Judge, smallest_seen
from llmqsim.report import compare_screen
from llmqsim.simulation import prepare
from tests.cli.commands import ROOT, SCENARIO, TRACE, llmqsim, strict_json, write

QUEUE = {
    "workload": {
        "requests": 600,
        "arrivals": {"process": "poisson", "rate": 8},
        "lengths": {"prompt": {"lognormal": {"mean": 100, "cv": 1}}, "output": 1},
    },
    "cost": {"model": "affine", "per_prefill_token": 1e-3},
    "engine": {"max_num_seqs": 1, "max_num_batched_tokens": 100_000},
    "slo": {"e2e": "500 ms"},
}
"""a single server at load 0.8 with a mean service of 0.1 s"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, s_yaml=SCENARIO, t_csv=TRACE)


def verdicts(told: dict, variant: str) -> dict:
    return {key: cell and cell["verdict"] for key, cell in told["differences"][variant].items()}


def test_the_screen_and_the_json_say_the_same(here):
    said = llmqsim("compare", "s.yaml", "--variants", "slow", "--replications", 5, "--json", "o.json")
    assert (said.code, said.err) == (0, "")
    told = strict_json(here / "o.json")
    assert (told["against"], list(told["variants"]), told["replications"]) == ("base", ["base", "slow"], 5)
    cell = told["differences"]["slow"]["ttft_s.mean"]
    assert cell["verdict"] == "worse" and cell["low"] <= cell["difference"] <= cell["high"]
    row = next(line for line in said.lines if line.startswith("TTFT mean"))
    assert "base" in row and "worse" in said.lines[said.lines.index(row) + 1]
    assert llmqsim("compare", "s.yaml", "--variants", "slow", "--replications", 5).out == said.out


def test_pairing_makes_the_difference_better_known_than_the_figures(here):
    base, faster = from_mapping(QUEUE), from_mapping(QUEUE | {"cost": {"model": "affine", "per_prefill_token": 0.95e-3}})
    told = compare_scenarios({"base": base, "faster": faster}, 12, metrics(["e2e_s.mean"]))
    cell, own = told["differences"]["faster"]["e2e_s.mean"], told["variants"]["base"]["figures"]["e2e_s.mean"]
    assert cell["verdict"] == "better"
    assert cell["high"] - cell["low"] < 0.5 * (own["high"] - own["low"])


def test_a_scenario_is_no_better_than_itself(here):
    told = compare_scenarios({"a": from_mapping(QUEUE), "b": from_mapping(QUEUE)}, 3, metrics())
    assert set(verdicts(told, "b").values()) <= {"no difference shown", None}
    assert any("every request had the same times" in note for note in told["notes"])


def test_few_noisy_runs_are_not_enough():
    """Another seed is another traffic: nothing is shared, and three runs can't tell a small difference."""
    other = changed(from_mapping(QUEUE), {"workload.arrivals.rate": 8.05})
    told = compare_scenarios({"a": from_mapping(QUEUE), "b": other}, 1, metrics(["e2e_s.p99", "utilisation.mean_step_s"]))
    assert told["differences"]["b"]["e2e_s.p99"]["verdict"] in ("not enough runs", "worse")
    step = told["differences"]["b"]["utilisation.mean_step_s"]
    assert (step["verdict"], step["low"], step["smallest_seen"]) == ("not enough runs", None, None)
    assert step["settles"] == {"replications": 10}


def test_a_replayed_trace_is_one_run_judged_by_its_batches(here):
    rows = "".join(f"{0.2 * i},{100 + 10 * (i % 7)},{5 + i % 3}\n" for i in range(400))
    (here / "long.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
    (here / "r.yaml").write_text("workload: {trace: long.csv}\ncost: {model: constant, step: 10 ms}\n"
                                 "variants: {slow: {cost.step: 11 ms}}\n")  # fmt: skip
    said = llmqsim("compare", "r.yaml", "--variants", "slow", "--json", "o.json")
    told = strict_json(here / "o.json")
    assert said.code == 0 and told["replications"] == 1
    cell = told["differences"]["slow"]["e2e_s.mean"]
    assert (cell["method"], cell["verdict"]) == ("batches", "worse")
    assert "the same in every replication" in said.out


def test_a_trace_of_other_requests_is_compared_unpaired(here):
    """Another day of the same service, longer by 80 requests: nothing is paired, and a note says so."""
    for name, rows, step in (("one", 400, 7), ("two", 480, 5)):
        text = "".join(f"{0.2 * i},{100 + 10 * (i % step)},{5 + i % 3}\n" for i in range(rows))
        (here / f"{name}.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + text)
    (here / "r.yaml").write_text("workload: {trace: one.csv}\ncost: {model: constant, step: 10 ms}\n"
                                 "variants: {other: {workload.trace: two.csv}}\n")  # fmt: skip
    said = llmqsim("compare", "r.yaml", "--variants", "other", "--json", "o.json")
    assert said.code == 0 and "serves other requests than base" in said.out
    cell = strict_json(here / "o.json")["differences"]["other"]["e2e_s.mean"]
    assert cell["method"] == "batches" and cell["verdict"] == "no difference shown"


def test_a_calm_tenth_would_not_have_seen_more_than_its_part_of_the_run(monkeypatch):
    """A tenth of n independent requests is known sqrt(10) times worse than all of them, wherever the noise happens to be."""
    whole = stats.Interval(0.0, -1.0, 1.0, 20, "batches", freedom=19)
    monkeypatch.setattr(within, "difference", lambda *given: whole)
    judge, metric = Judge(segments=True), metrics(["e2e_s.mean"])[0]
    for half, least in ((0.1, 10**0.5 * 1.177), (9.0, 9 * 1.177)):
        calm = stats.Interval(0.0, -half, half, 20, "batches", freedom=19)
        found = [judge._smallest(calm, metric, object(), object(), group) for group in ("time:10-20 %", "class:chat")]
        assert found == pytest.approx([least, half * 1.177], rel=1e-3)  # 1.177: sqrt(19 / 13.716), from a table


@pytest.mark.parametrize(
    ("mean", "low", "high", "least"),
    [(1.2, 0.1, 7.8, 1.2), (-1.2, -7.8, -0.1, 1.2), (3.0, 2.0, 4.0, 1.0), (1.2, -0.1, 7.8, 6.6)],
)
def test_what_was_called_would_have_been_seen(mean, low, high, least):
    """The wider half of the interval, by hand, and no more than the difference where 0 is outside."""
    assert smallest_seen(stats.Interval(mean, low, high, 20, "batches")) == pytest.approx(least)


def test_a_wide_value_and_its_difference_stand_apart():
    """Eleven columns of value, then a difference of thirteen."""
    cell = {"base": 1.0, "value": 0.993, "difference": -0.00613, "low": -0.0126, "high": 0.0003, "smallest_seen": None}
    line = compare_screen._difference(cell | {"verdict": "?"}, "share", {"stability": "stable"}, "attainment")
    assert "99.3 % −0.613 points" in line


def test_the_smallest_difference_that_would_have_been_seen_is_told(here):
    """Half of the interval: for ten replications t(9) = 2.262 times the standard error (any table of Student's t)."""
    base, other = from_mapping(QUEUE), from_mapping(QUEUE | {"cost": {"model": "affine", "per_prefill_token": 1.01e-3}})
    told = compare_scenarios({"a": base, "b": other}, 10, metrics(["e2e_s.mean", "e2e_s.p99"]))
    steps = [prepare(other).run(0, r).summary()["e2e_s"]["mean"] - prepare(base).run(0, r).summary()["e2e_s"]["mean"] for r in range(10)]
    cell = told["differences"]["b"]["e2e_s.mean"]
    assert cell["smallest_seen"] == pytest.approx(2.262 * np.std(steps, ddof=1) / np.sqrt(10), rel=1e-3)
    parts = [c for g in told["groups"].values() for c in g["variants"]["b"]["figures"].values()]
    assert "not enough runs" not in {c["verdict"] for c in [*told["differences"]["b"].values(), *parts] if c}
    assert sum(name.startswith("time:") for name in told["groups"]) == 10


def test_an_overloaded_run_is_worse_whatever_its_batches_say(here):
    """A stable queue and one at load 1.6: its waits grow with the run, so that batches never settle."""
    told = compare_scenarios({"a": from_mapping(QUEUE), "b": at_load(from_mapping(QUEUE), 2.0)}, 1, metrics(["ttft"]))
    assert [told["variants"][v]["stability"] for v in "ab"] == ["stable", "overloaded"]
    assert {cell["verdict"] for cell in told["differences"]["b"].values()} == {"worse"}


def test_variants_alone_say_that_the_scenario_takes_no_part(here):
    said = llmqsim("compare", "s.yaml", "--variants", "slow,two", "--replications", 2, "--json", "o.json")
    assert "two against slow (--variants base,slow,two compares with the scenario itself)" in " ".join(said.lines[:3])
    assert "the scenario as it is takes no part" in strict_json(here / "o.json")["notes"][0]
    assert "takes no part" not in llmqsim("compare", "s.yaml", "--variants", "base,slow,two", "--replications", 2).out


def test_a_trace_too_short_for_a_figure_says_how_long_it_would_have_to_be(here):
    """A Poisson-like trace near saturation: its P99 rests on a few spells."""
    generator = np.random.default_rng(0)
    times = np.cumsum(generator.exponential(0.11, 600))
    lengths = generator.lognormal(4, 0.8, 600).astype(int) + 1
    rows = "".join(f"{t:.6f},{n},2\n" for t, n in zip(times, lengths, strict=True))
    (here / "n.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
    (here / "n.yaml").write_text("workload: {trace: n.csv}\nengine: {max_num_seqs: 1}\n"
                                 "cost: {model: affine, per_prefill_token: 1 ms}\n"
                                 "variants: {slow: {cost.per_prefill_token: 1.001 ms}}\n")  # fmt: skip
    said = llmqsim("compare", "n.yaml", "--variants", "slow", "--metric", "ttft_s.p99", "--json", "o.json")
    cell = strict_json(here / "o.json")["differences"]["slow"]["ttft_s.p99"]
    assert cell["verdict"] == "not enough runs" and cell["settles"]["requests"] >= 1200
    assert f"a run of some {cell['settles']['requests']:,} requests may settle: TTFT p99" in said.out


def test_a_closed_loop_says_what_pairing_covers(here):
    loop = {"process": "closed_loop", "clients": 4}
    scenario = from_mapping(QUEUE | {"workload": QUEUE["workload"] | {"arrivals": loop}})
    told = compare_scenarios({"a": scenario, "b": scenario}, 2, metrics(["ttft"]))
    assert any("pairing covers the workload only" in note for note in told["notes"])


def test_every_request_is_in_one_length_group():
    one = from_mapping(QUEUE)
    told = compare_scenarios({"a": one, "b": at_load(one, 1.2)}, 3, metrics(["e2e"]))
    groups = [name for name in told["groups"] if name.startswith("length:")]
    assert len(groups) == 10
    assert sum(told["groups"][g]["requests"] for g in groups) == 600
    cells = [told["groups"][g]["variants"]["b"]["figures"]["e2e_s.mean"] for g in groups]
    assert all(cell["difference"] > 0 for cell in cells)
    relative = [cell["relative"] for cell in cells]
    assert relative[0] > relative[-1], "first come first served: the same wait is more to a short request"


def test_alone_is_what_an_empty_server_takes():
    prepared = prepare(load(ROOT / "scenarios" / "first_answer.yaml", sets={"workload.requests": 60}))
    table = prepared.run(0, 0).table
    told = alone_for(prepared.servers.deployment, table).e2e_s(table)
    from llmqsim.cluster.alone import _simulate
    from llmqsim.planner.vary import with_replicas

    single = with_replicas(prepared, 1).servers.deployment
    apart = _simulate(single, table.prompt_tokens, table.output_tokens)
    assert APART_NS > 10**14
    assert told == pytest.approx((apart.finish_ns - apart.arrival_ns) / 1e9, rel=0.02)


def test_slowdown_and_fairness_of_an_empty_server_are_one():
    idle = at_load(from_mapping(QUEUE), 1e-4)
    told = compare_scenarios({"a": idle, "b": idle}, 2, metrics(["slowdown.p99", "fairness"]))
    own = told["variants"]["a"]["figures"]
    assert own["slowdown.p99"]["mean"] == pytest.approx(1, abs=0.02)
    assert own["fairness"]["mean"] == pytest.approx(1, abs=0.001)


def test_a_variant_of_the_command_line_is_like_one_of_the_file(here):
    """Its keys hold over --set, and it goes on top of variants of the file."""
    llmqsim("compare", "s.yaml", "--variants", "two", "--replications", 2, "--json", "a.json")
    own = ("--set", "replicas=3", "--variant-set", "mine:replicas=2", "--variant-set", "mine:cost.step=10 ms")
    assert llmqsim("compare", "s.yaml", *own, "--replications", 2, "--json", "b.json").code == 0
    theirs, mine = strict_json(here / "a.json"), strict_json(here / "b.json")
    assert mine["against"] == "base" and mine["variants"]["mine"]["figures"] == theirs["variants"]["two"]["figures"]
    llmqsim("compare", "s.yaml", "--variants", "slow,slow+mine", *own[2:], "--replications", 2, "--json", "c.json")
    assert list(strict_json(here / "c.json")["variants"]) == ["slow", "slow+mine"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("s.yaml --variants slwo", "unknown variant (got 'slwo'); did you mean 'slow'? known: base, slow, two"),
        ("s.yaml --variants ,", "--variants: names no variant"),
        ("s.yaml --variants slow,slow", "--variants: names 'slow' twice"),
        ("s.yaml --variants slow --replications 0", "--replications: must be a whole number of at least 1 (got '0')"),
        ("s.yaml --variants slow --metric ttft_s.p42", "--metric: unknown figure (got 'ttft_s.p42')"),
        ("s.yaml --variants slow --figure x.bmp", "x.bmp: --figure: unknown kind of picture"),
        ("s.yaml --variants slow --json s.yaml", "is an input of this command"),
        ("none.yaml --variants slow", "none.yaml: no such file"),
        ("s.yaml --variant-set small", "--variant-set: must be NAME:KEY=VALUE (got 'small')"),
        ("s.yaml --variant-set slow:replicas=2", "--variant-set: the scenario has a variant 'slow' already"),
        ("s.yaml --variant-set many:replica=2", "--set: replica: unknown key (got 2); did you mean 'replicas'?"),
    ],
)
def test_mistakes(here, line, said):
    got = llmqsim("compare", *line.split())
    assert (got.code, got.out) == (2, "") and said in got.err


def test_the_figure_is_the_same_twice(here):
    pytest.importorskip("matplotlib", reason="an extra: pip install 'llmqsim[figures]'")
    for name in ("one.png", "two.png"):
        assert llmqsim("compare", "s.yaml", "--variants", "slow", "--replications", 2, "--figure", name).code == 0
    assert (here / "one.png").read_bytes() == (here / "two.png").read_bytes()
    assert np.frombuffer((here / "one.png").read_bytes()[:4], np.uint8)[1] == ord("P")
