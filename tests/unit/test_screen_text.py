"""Text on the screen: columns of wide characters, names that are nearly known, what no request was asked for."""

from __future__ import annotations

import re

import pytest

from llmqsim import load_text, simulate
from llmqsim.errors import ScenarioError, did_you_mean, or_known, or_nearest
from llmqsim.planner.theory import check_theory
from llmqsim.report.capacity_screen import _time_left
from llmqsim.report.headline import system
from llmqsim.report.show import clip, duration, figures, percent, wrap
from llmqsim.report.tables import screen
from llmqsim.report.theory_screen import theory_text
from llmqsim.terminal import width

TEXT = """\
workload: {requests: 20, arrivals: {process: constant, rate: 1 req/s}, lengths: {prompt: 10, output: 5}}
cost: {model: constant, step: 1 s}
"""


@pytest.mark.parametrize("text", ("数" * 300, "why " * 90, "x" * 250, "a 数字 b " * 40, ""))
def test_lines_never_pass_the_edge_and_lose_nothing(text):
    lines = wrap(text, 100)
    assert all(0 < width(line) <= 100 for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert width(clip(text, 40)) <= 40


def test_a_number_keeps_its_unit_and_a_seed_its_number():
    assert wrap("aaaa 12 ms and seed 0", 9) == ["aaaa", "12 ms and", "seed 0"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("azure-conv", "azure-conversation"), ("llama3", "llama-3.1-8b"), ("azure-conversatoin", "azure-conversation")],
)
def test_beginnings_and_slips_are_recognised(name, meant):
    known = ["azure-code", "azure-conversation", "llama-2-7b", "llama-3.1-8b", "mooncake-conversation"]
    assert did_you_mean(name, known) == f"; did you mean '{meant}'?"


def test_an_unknown_name_ends_in_one_sentence_or_two():
    assert or_known("zzz", ["b", "a"]) == ". Known: a, b"
    assert or_known("abcx", ["abcd"]) == "; did you mean 'abcd'? Known: abcd"


def test_gpus_are_counted():
    scenario = {"model": "m", "gpu": "g", "replicas": 2, "tensor_parallel_size": 16, "cost": {"model": "calibrated"}}
    assert system({"scenario": scenario, "engine": "e", "seed": 0}).startswith("m on 32 × g, 2 replicas of TP 16")


def test_the_step_that_the_end_cut_off_is_not_in_the_mean_step():
    used = simulate(load_text(TEXT, sets=["run.until=10.5 s"])).summary()["utilisation"]
    assert used["mean_step_s"] == 1


def test_a_run_that_leaves_the_clock_is_the_users_mistake_by_key():
    endless = {"cost": {"model": "affine", "per_kv_token": 1e6}, "workload.lengths.output": 2000}
    with pytest.raises(ScenarioError, match=r"^--set: cost: .*146 years.*run\.until"):
        simulate(load_text(TEXT, sets=endless))


def test_a_run_that_serves_nobody_is_refused_and_one_that_serves_one_is_not():
    limit = "engine.max_model_len=12"
    with pytest.raises(ScenarioError, match="no request can be served.*15 tokens.*max_model_len is 12"):
        simulate(load_text(TEXT, sets=[limit]))
    some = simulate(load_text(TEXT, sets=[limit, "workload.lengths.prompt={uniform: [1, 50]}"]))
    requests = some.summary()["requests"]
    assert 0 < requests["rejected"] < requests["arrived"]


def test_a_changed_gpu_does_not_pass_for_the_one_it_is_like():
    figures = {"scenario": {"model": "m", "gpu": {"like": "h100-sxm", "name": None}}, "engine": "e", "seed": 0}
    assert system(figures).startswith("m on 1 × h100-sxm (changed)")
    figures["scenario"]["gpu"] = {"name": "mine", "like": "h100-sxm"}
    assert system(figures).startswith("m on 1 × mine")


def test_classes_of_other_targets_than_the_scenarios_are_shown_without_its_limits():
    sets = {"cost.step": 0.01, "slo": {"ttft": 0.5, "tpot": 0.05}}
    text = " ".join(screen(simulate(load_text(TEXT, sets=sets))).split())
    assert "TTFT ≤ 500 ms 100 %, TPOT ≤ 50 ms 100 %;" in text
    classes = {"chat": {"share": 0.5, "slo": {"ttft": 0.3}}, "batch": {"share": 0.5, "slo": {"e2e": 60.0}}}
    text = screen(simulate(load_text(TEXT, sets={**sets, "workload.classes": classes})))
    line = " ".join(text[text.index("\nSLO") : text.index("\nthroughput")].split())
    line = line[: line.index("goodput")]
    assert "TTFT 100 %, E2E 100 %;" in line and "≤" not in line and "TPOT" not in line


def test_cached_prompts_are_told_beside_the_throughput():
    sets = {"workload.lengths.prompt": 100, "engine.num_gpu_blocks_override": 1000}
    assert "cached" not in screen(simulate(load_text(TEXT, sets=sets)))
    sets |= {"workload.prefix": {"shared_tokens": 64}, "engine.enable_prefix_caching": True}
    assert "tokens/s with prompts (60.8 % cached)" in screen(simulate(load_text(TEXT, sets=sets)))


@pytest.mark.parametrize("size", [1.7e-72, 1e-12, 3e-9, 4.2e-6, 0.0123, 0.5, 7.0, 1234.0])
def test_numbers_have_no_exponent_and_a_size_that_does_not_depend_on_the_sign(size):
    for show in (duration, figures, percent):
        up, down = show(size), show(-size)
        assert "e-" not in up + down and "e+" not in up + down
        assert down.strip("> ").startswith("-")
    assert duration(-size).strip("> -") == duration(size).strip("< ")
    assert duration(1.7e-72) == "< 1 ns" and duration(-0.106085) == "-106 ms"
    assert (percent(-0.0123), percent(-0.00001)) == ("-1.3 %", "-0.1 %")


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("lengths: {prompt: 8000, output: 200}", "poisson arrivals, lengths 8,000 in, 200 out: "),
        (
            "lengths: {prompt: {lognormal: {mean: 1000, cv: 1.2}, max: 8000}, output: {uniform: [10, 20]}}",
            "lengths log-normal 1,000 (CV 1.2) in, 10 to 20 out: ",
        ),
        ("lengths: azure-code", "lengths azure-code: "),
    ],
)
def test_traffic_says_its_lengths(workload, said):
    text = f"workload: {{requests: 20, arrivals: {{process: poisson, rate: 1 req/s}}, {workload}}}\n"
    assert said in " ".join(screen(simulate(load_text(text + TEXT.splitlines()[1]))).split())


def test_traffic_of_classes_with_arrivals_of_their_own():
    loop = "arrivals: {process: closed_loop, clients: 2, think_time: 1 s}, requests: 10"
    text = f"workload: {{lengths: {{prompt: 10, output: 5}}, classes: {{a: {{{loop}}}, b: {{{loop}}}}}}}\n"
    shown = screen(simulate(load_text(text + TEXT.splitlines()[1])))
    assert "each class's own arrivals, lengths 10 in, 5 out" in shown


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("engine.tensor_parallel_size", "'tensor_parallel_size' stands at the top level, not under engine"),
        ("engine.replicas", "'replicas' stands at the top level, not under engine"),
        ("engine.tp", "'tensor_parallel_size' stands at the top level, not under engine"),
        ("max_num_seqs", "did you mean 'engine.max_num_seqs'?"),
        ("workload.max_num_seqs", "did you mean 'engine.max_num_seqs'?"),
        ("qps", "did you mean 'workload.arrivals.rate'?"),
    ],
)
def test_a_key_in_the_wrong_place_is_told_its_place(key, told):
    with pytest.raises(ScenarioError) as caught:
        load_text(TEXT, sets={key: 2})
    assert told in str(caught.value)


def test_an_unknown_model_names_the_nearest_and_the_command_that_lists_all():
    with pytest.raises(ScenarioError) as caught:
        simulate(load_text("model: lama-3.1-8b\ngpu: h100-sxm\n" + TEXT.splitlines()[0]))
    said = str(caught.value)
    assert "did you mean 'llama-3.1-8b'?" in said and "`llmqsim presets` lists all" in said
    assert len(said) < 300 and "opt-66b" not in said
    assert or_nearest("x", ["a", "b"]) == or_known("x", ["a", "b"])


def test_check_theory_prints_no_wait_below_nothing_and_says_where_formulas_end(tmp_path):
    """A wait, a batch and a share are never negative (their definition); beyond load 1 there is no mean wait (M/G/k)."""
    path = tmp_path / "s.yaml"
    for rate, stable in ((12, True), (30, False)):
        path.write_text(
            f"workload: {{requests: 200, arrivals: {{process: poisson, rate: {rate} req/s}}, "
            "lengths: {prompt: {lognormal: {mean: 100, cv: 1}}, output: {lognormal: {mean: 20, cv: 1}}}}\n"
            "cost: {model: affine, base: 0.01, per_prefill_token: 0.0001}\nengine: {max_num_seqs: 4}\n"
        )
        told = check_theory(path, replications=3)
        values = [row["theory"] for row in told["rows"]]
        values += [row["simulated"][end] for row in told["rows"] if row["simulated"] for end in ("mean", "low", "high")]
        assert all(value is None or value >= 0 for value in values)
        text = theory_text(told)
        assert not re.search(r"\[-|\s-\d", text)
        (wait,) = (row for row in told["rows"] if row["quantity"] == "wait for a place")
        assert (wait["theory"] is not None) == stable == ("no steady state" not in wait["source"])
        assert ("no steady state: the load is 1." in text) == (not stable)


@pytest.mark.parametrize(("months", "said"), [(7.3, "7.30 months"), (0.0, "no time left"), (0.05, "some 2 days")])
def test_time_that_is_left_is_told_in_the_unit_that_fits(months, said):
    assert _time_left(months) == said


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ("{warmup: {time: 1 h}}", "no request is left to judge;"),
        ("{until: 1500 ms}", "– of arrivals (asked for 95 %: undecided: 100 % are under way, not late yet and left out); goodput"),
    ],
)
def test_nobody_to_judge_is_said_in_words(run, told):
    """All cut by the warm-up; or one request, sent at 1 s, whose first token comes at 2 s: no share for any target."""
    text = f"{TEXT}slo: {{ttft: 10 s, tpot: 2 s, attainment: 0.95}}\nrun: {run}\n"
    shown = " ".join(screen(simulate(load_text(text))).split())
    assert told in shown and "; ;" not in shown
