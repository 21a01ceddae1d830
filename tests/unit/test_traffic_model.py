"""Traffic models: closed forms of what is drawn, fits that find what was planted, files that come back, faults by key."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from llmqsim.cli import main
from llmqsim.errors import DataError, ScenarioError
from llmqsim.workload.build import build
from llmqsim.workload.inspection import demand
from llmqsim.workload.inspection.arrivals import dispersion, of_arrivals
from llmqsim.workload.lengths import Constant, Lognormal
from llmqsim.workload.model import score
from llmqsim.workload.model.candidates import candidates
from llmqsim.workload.model.file import is_model, load_model, parse_model
from llmqsim.workload.model.laws import Gaps, Regimes, gap_table
from llmqsim.workload.model.mixes import Pair, even_lengths, fit_mix, kv_p99, length_figures
from llmqsim.workload.model.score import fit_again, fit_traffic
from llmqsim.workload.model.shape import Flash, Growth, Ramp, Shape
from llmqsim.workload.model.text import model_text
from llmqsim.workload.model.traffic import Layer, Stream, TrafficModel, draw_traffic
from llmqsim.workload.trace import Trace, read_trace

RNG = np.random.default_rng
SHORT = (Pair(Constant(100), Constant(10)),)


def plain(rate: float = 10.0, gaps: Gaps = Gaps("poisson"), shape: Shape = Shape(), **more) -> TrafficModel:  # noqa: B008
    return TrafficModel((Stream("all", rate, gaps, SHORT),), shape, **more)


def counted(model: TrafficModel, begin: float, end: float, duration: float, seeds: int = 1) -> float:
    """Requests from begin to end, mean over seeds."""
    found = [draw_traffic(model, seed, 0, None, duration).arrival_s for seed in range(seeds)]
    return float(np.mean([((t >= begin) & (t < end)).sum() for t in found]))


def near(count: float, expected: float, seeds: int = 1) -> bool:
    """Within four standard deviations of a Poisson count."""
    return abs(count - expected) < 4 * math.sqrt(expected / seeds)


def test_plain_traffic_is_a_poisson_process():
    times = draw_traffic(plain(50.0), 0, 0, None, 2000.0).arrival_s
    assert near(len(times), 100_000) and of_arrivals(times).gap_cv == pytest.approx(1, abs=0.02)
    one = dispersion(times, 10.0)
    assert abs(one.index - 1) < 4 * one.noise
    assert len(draw_traffic(plain(50.0), 0, 0, 700, None)) == 700
    assert np.array_equal(draw_traffic(plain(50.0), 0, 0, 700, None).arrival_s, times[:700])
    with pytest.raises(ScenarioError, match="requests"):
        draw_traffic(plain(), 0, 0, None, None)


def test_gaps_keep_mean_one_and_their_cv():
    u = (np.arange(40_000) + 0.5) / 40_000
    assert Gaps("gamma", 2.0).quantile(u).mean() == pytest.approx(1, rel=1e-3)
    seen = RNG(0).gamma(0.25, 1, 100_000)
    law = gap_table(seen)
    drawn = law.quantile(u)
    assert drawn.mean() == pytest.approx(1, rel=2e-3) and drawn.std() == pytest.approx(seen.std() / seen.mean(), rel=0.05)


def test_regimes_alternate_as_their_chain_says():
    """Two regimes that last 1 / 0.2 and 1 / 0.1 windows: shares 1/3 and 2/3. Counts of long windows disperse by
    1 + 2 Σ p_i (r_i - 1)² λ w Σ_k ρ^k of a two-state chain with ρ = 1 - 0.2 - 0.1."""
    next_ = np.array([[0.8, 0.2], [0.1, 0.9]])
    rate = np.array([2.0, 0.5])
    regimes = Regimes(10.0, rate, next_, np.zeros(2, dtype=np.int64))
    assert regimes.stationary() == pytest.approx([1 / 3, 2 / 3])
    path = regimes.path(60_000, RNG(1))
    assert np.mean(path == 0) == pytest.approx(1 / 3, abs=0.02)
    assert np.mean(path[1:][path[:-1] == 0] == 1) == pytest.approx(0.2, abs=0.01)
    model = TrafficModel((Stream("all", 5.0, Gaps("poisson"), SHORT, regimes),))
    times = draw_traffic(model, 0, 0, None, 100_000.0).arrival_s
    assert len(times) / 100_000 == pytest.approx(5.0, rel=0.03)
    spread, rho = (1 / 3) * 1.0 + (2 / 3) * 0.25, 0.7
    windows = 20
    chain = 1 + 2 * sum((1 - k / windows) * rho**k for k in range(1, windows))
    assert dispersion(times, 200.0).index == pytest.approx(1 + 5.0 * 10.0 * spread * chain, rel=0.2)


def test_each_regime_has_its_own_mix_of_lengths():
    mixes = (Pair(Constant(10), Constant(1)), Pair(Constant(900), Constant(7)))
    regimes = Regimes(10.0, np.array([2.0, 0.5]), np.array([[0.8, 0.2], [0.1, 0.9]]), np.array([0, 1]))
    made = draw_traffic(TrafficModel((Stream("all", 5.0, Gaps("poisson"), mixes, regimes),)), 0, 0, None, 20_000.0)
    # requests of regime 0: 1/3 of the time at twice the rate
    assert np.mean(made.prompt_tokens == 10) == pytest.approx(2 / 3, abs=0.03)
    counts = np.bincount((made.arrival_s // 10).astype(int))
    assert counts[np.unique((made.arrival_s[made.prompt_tokens == 10] // 10).astype(int))].mean() > 80


def test_shapes_do_what_they_say():
    ramp = plain(shape=Shape(ramps=(Ramp(1000, 2000, 3.0),)))
    assert near(counted(ramp, 0, 1000, 3000), 10_000) and near(counted(ramp, 2000, 3000, 3000), 30_000)
    assert near(counted(ramp, 1000, 2000, 3000), 20_000)
    crowd = plain(shape=Shape(flashes=(Flash(500, 5.0, 100, 300, 200),)))
    assert near(counted(crowd, 600, 900, 2000), 15_000) and near(counted(crowd, 500, 600, 2000), 3_000)
    assert near(counted(crowd, 900, 1100, 2000), 6_000) and near(counted(crowd, 1100, 2000, 2000), 9_000)
    hours = [0.5] * 24
    hours[9] = 4.0
    week = plain(0.2, shape=Shape(tuple(hours), (2.0, 1, 1, 1, 1, 1, 0.0), start_s=4 * 86_400.0))  # a Monday
    day = 86_400
    assert near(counted(week, 9 * 3600, 10 * 3600, 7 * day), 0.2 * 3600 * 4 * 2)
    assert near(counted(week, day + 9 * 3600, day + 10 * 3600, 7 * day), 0.2 * 3600 * 4)
    assert counted(week, 6 * day, 7 * day, 7 * day) == 0
    for model in (ramp, crowd, week):
        few, many = (draw_traffic(model, 0, 0, n, None).arrival_s for n in (300, 9000))
        assert np.array_equal(few, many[:300])


def test_three_kinds_of_growth_are_three_things():
    """Per year of 1,000 s and 100 %: twice the clients, twice the requests of each, or prompts twice as long."""
    span = 1000.0
    for growth in (Growth(clients=1.0, every_s=span), Growth(per_client=1.0, every_s=span)):
        # rate r · 2^(t / span): r · span / ln 2 in the first span
        assert near(counted(plain(shape=Shape(growth=growth)), 0, span, span), 10 * span / math.log(2))
    even = Gaps("gamma", 0.2)
    indexes = {}
    for name, growth in (("clients", Growth(clients=1.0, every_s=100.0)), ("each", Growth(per_client=1.0, every_s=100.0))):
        made = draw_traffic(plain(2.0, even, Shape(growth=growth)), 0, 0, None, 600.0)
        late = made.arrival_s[made.arrival_s > 500]
        indexes[name] = np.diff(late).std() / np.diff(late).mean()
    # many clients that are regular each are Poisson together (Palm and Khinchin); one that sends as much stays regular
    assert indexes["clients"] > 0.85 and indexes["each"] < 0.3
    made = draw_traffic(plain(shape=Shape(growth=Growth(prompts=1.0, every_s=span))), 0, 0, None, 2 * span)
    assert made.prompt_tokens[0] == 100 and abs(made.prompt_tokens[-1] - 400) <= 1
    assert near(len(made), 20 * span)


def test_prefix_layers_are_found_by_the_cache():
    model = plain(layers=(Layer(512, 1), Layer(1024, 3)))
    model = TrafficModel((Stream("all", 10.0, Gaps("poisson"), (Pair(Constant(2000), Constant(5)),)),), layers=model.layers)
    made = draw_traffic(model, 0, 0, 400, None)
    assert all(len(row) == 3 and row[0] == 0 for row in made.prefix_ids)
    assert len({tuple(row) for row in made.prefix_ids}) == 3 and made.hash_tokens == 512
    short = TrafficModel((Stream("all", 10.0, Gaps("poisson"), (Pair(Constant(700), Constant(5)),)),), layers=model.layers)
    assert all(row == [0] for row in draw_traffic(short, 0, 0, 5, None).prefix_ids)


def test_streams_draw_the_same_whatever_others_there_are():
    one = Stream("a", 5.0, Gaps("gamma", 2.0), SHORT)
    alone = draw_traffic(TrafficModel((one,)), 3, 1, None, 100.0)
    both = draw_traffic(TrafficModel((Stream("b", 9.0, Gaps("poisson"), SHORT), one)), 3, 1, None, 100.0)
    assert np.array_equal(both.arrival_s[both.labels["tenant"] == "a"], alone.arrival_s)
    assert not np.array_equal(draw_traffic(TrafficModel((one,)), 4, 1, None, 100.0).arrival_s[:5], alone.arrival_s[:5])


@pytest.mark.long
def test_a_mix_keeps_marginals_and_the_heavy_tail():
    rng = RNG(5)
    prompt = np.maximum(rng.lognormal(6, 1.3, 6000), 1).astype(np.int64)
    output = np.maximum(rng.lognormal(3, 1.5, 6000), 1).astype(np.int64)
    drawn = even_lengths(fit_mix(prompt, output), 200_000)
    seen = length_figures(prompt, output)
    assert all(abs(value / seen[name] - 1) <= 0.02 for name, value in length_figures(*drawn).items())
    assert abs(kv_p99(*drawn) / kv_p99(prompt, output) - 1) <= 0.06


@pytest.fixture
def few_drawings(monkeypatch):
    monkeypatch.setattr(score, "DRAWS", 8)


def planted(kind: str, rows: int = 12_000) -> Trace:
    """Traffic whose law is known: "poisson", "gamma", or two regimes whose lengths differ."""
    mixes = (Pair(Lognormal(500, 0.8), Lognormal(100, 0.8)),)
    regimes = None
    gaps = Gaps("gamma", 4.0) if kind == "gamma" else Gaps("poisson")
    if kind == "regimes":
        mixes = (*mixes, Pair(Lognormal(3000, 0.5), Lognormal(30, 0.8)))
        step = np.array([[0.95, 0.05], [0.05, 0.95]])
        regimes = Regimes(20.0, np.array([0.4, 1.6]), step, np.array([0, 1]))
    return draw_traffic(TrafficModel((Stream("all", 10.0, gaps, mixes, regimes),)), 7, 0, rows, None)


@pytest.mark.long
def test_the_smallest_model_that_was_planted_is_chosen(few_drawings):
    fit = fit_traffic(planted("poisson", 40_000))
    assert fit.chosen == "two" and [one.name for one in fit.scored][:5] == ["means", "two", "poisson", "gamma", "gaps"]
    errors = {one.name: one for one in fit.scored}
    assert all(errors[name].lengths_error < 0.02 and abs(errors[name].wait_error) < 0.2 for name in ("two", "poisson"))
    assert errors["means"].lengths_error > 0.3
    fit = fit_traffic(planted("gamma"))
    assert not fit.scored[2].wait_met and fit.scored[2].name == "poisson"
    assert fit.chosen in ("gamma", "gaps")


@pytest.mark.long
def test_regimes_are_found_where_rate_and_mix_move_together(few_drawings):
    trace = planted("regimes", 60_000)
    fit = fit_traffic(trace)
    assert fit.chosen.startswith("regimes")
    model = fit_again(trace, fit)
    drawn = draw_traffic(model, 1, 0, 200_000, None)
    for made in (trace, drawn):  # in busy windows prompts are long
        window = (made.arrival_s // 20).astype(int)
        counts = np.bincount(window)
        means = np.bincount(window, weights=made.prompt_tokens) / np.maximum(counts, 1)
        assert np.corrcoef(counts[counts > 0], means[counts > 0])[0, 1] > 0.6
    index = [dispersion(made.arrival_s, 60.0).index for made in (trace, drawn)]
    assert index[1] == pytest.approx(index[0], rel=0.4)


def test_a_model_comes_back_from_its_file(tmp_path):
    trace = planted("regimes", 4000)
    found = {one.key: one.model for one in candidates(trace, None)}
    model = next(model for key, model in found.items() if key.startswith("regimes"))
    model = TrafficModel(model.streams, Shape((1.0,) * 24, (1.0,) * 7, (Ramp(0.0, 9.0, 2.0),), (Flash(5.0, 2.0),), Growth(0.1, 0.2, 0.3),
                         60.0), (Layer(1024, 3, 1.0),), {"source": "t"})  # fmt: skip
    path = tmp_path / "m.yaml"
    path.write_text(model_text(model))
    again = load_model(path)
    assert is_model(path) and again.shape == model.shape and again.layers == model.layers and again.about == model.about
    first, second = draw_traffic(model, 0, 0, 2000, None), draw_traffic(again, 0, 0, 2000, None)
    assert second.arrival_s == pytest.approx(first.arrival_s, rel=1e-6)
    assert np.abs(first.prompt_tokens - second.prompt_tokens).max() <= 1 and first.prefix_ids == second.prefix_ids


HAND = """\
kind: traffic
streams:
  - {name: chat, rate: 4, gaps: {law: gamma, cv: 2}, lengths: azure-conversation}
  - {name: batch, rate: 0.5, lengths: {prompt: {lognormal: {mean: 4000, cv: 0.5}}, output: 50}}
shape: {flash_crowds: [{at: 60, factor: 4}], growth: {clients: 0.1, every: 86400}}
prefix: [{tokens: 512, groups: 1}, {tokens: 1024, groups: 20, skew: 1}]
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: traffic", "kind: trafic", "kind: must be 'traffic'"),
        ("rate: 4,", "rate: -4,", "streams[0].rate: must be a number from 1e-12 to 1e+09 (got -4)"),
        ("rate: 4,", "rate: .nan,", "streams[0].rate"),
        ("law: gamma", "law: gama", "streams[0].gaps.law: unknown; did you mean 'gamma'?"),
        (", cv: 2", "", "streams[0].gaps.cv"),
        ("azure-conversation", "azure-conv", "unknown preset"),
        ("output: 50", "output: 0", "streams[1].lengths.output"),
        ("name: batch", "name: chat", "must have different names"),
        ("factor: 4", "factr: 4", "shape.flash_crowds[0].factr: unknown key; did you mean 'factor'?"),
        ("tokens: 512", "tokens: 500", "prefix[0].tokens"),
        ("tokens: 1024", "tokens: 1000", "prefix[1].tokens: must be a multiple of 512"),
        ("streams:", "stream:", "streams: must be a list"),
        ("rate: 4,", "rate: [4,", "m.yaml:"),
    ],
)
def test_a_model_by_hand_is_checked_key_by_key(old, new, said):
    assert old in HAND
    with pytest.raises(DataError) as error:
        parse_model(HAND.replace(old, new), "m.yaml")
    assert said in "\n".join(error.value.faults) and all(fault.startswith("m.yaml") for fault in error.value.faults)


def test_the_model_of_the_docs_is_one():
    page = (Path(__file__).parents[2] / "docs" / "workload.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(kind: traffic\n.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    made = draw_traffic(parse_model(block, "m.yaml"), 0, 0, 500, None)
    assert len(made) == 500 and set(made.labels["tenant"]) == {"chat", "batch"} and made.prefix_ids is not None


def test_a_scenario_draws_the_model_anew_for_each_replication(tmp_path):
    (tmp_path / "m.yaml").write_text(HAND)
    workload = {"trace": {"file": "m.yaml"}, "requests": 300}

    def table(replication: int):
        return build(workload, seed=0, replication=replication, base_folder=tmp_path, max_model_len=None).table

    assert len(table(0).arrival_ns) == 300 and np.array_equal(table(0).arrival_ns, table(0).arrival_ns)
    assert not np.array_equal(table(0).arrival_ns, table(1).arrival_ns)
    assert table(0).tenants == ("batch", "chat") and table(0).prefixes is not None


@pytest.mark.long
def test_fit_generate_inspect_is_a_round_trip(few_drawings, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made = planted("gamma", 6000)
    lines = zip(made.arrival_s.tolist(), made.prompt_tokens.tolist(), made.output_tokens.tolist(), strict=True)
    Path("t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{a},{p},{o}\n" for a, p, o in lines))
    assert main(["workload", "fit", "t.csv", "--traffic", "m.yaml", "--json", "f.json"]) == 0
    out = capsys.readouterr().out
    chosen = re.search(r"chosen: (.*?),", out)[1]
    told = json.loads(Path("f.json").read_text())
    assert told["chosen"] == chosen and told["floor"]["name"] == "resampled"
    assert yaml.safe_load(Path("m.yaml").read_text())["fit"]["model"] == chosen
    assert main(["workload", "generate", "m.yaml", "g.csv", "--requests", "60000", "--seed", "3"]) == 0
    again = read_trace("g.csv")
    # 60,000 drawn ones know quantiles to about 1 %, on top of the printed errors
    printed = next(one for one in told["scored"] if one["name"] == chosen)
    seen, drawn = (length_figures(t.prompt_tokens, t.output_tokens) for t in (made, again))
    assert all(abs(drawn[name] / seen[name] - 1) < printed["lengths_error"] + 0.03 for name in seen)
    assert kv_p99(again.prompt_tokens, again.output_tokens) / kv_p99(made.prompt_tokens, made.output_tokens) == (
        pytest.approx(1, abs=abs(printed["kv_error"]) + 0.06)
    )
    assert of_arrivals(again.arrival_s).gap_cv == pytest.approx(of_arrivals(made.arrival_s).gap_cv, rel=0.15)
    for argv, said in (
        (["fit", "t.csv"], "give -o"),
        (["fit", "t.csv", "--traffic", "t.csv"], "input"),
        (["generate", "m.yaml", "g2.csv"], "say when to stop"),
        (["generate", "m.yaml", "g2.txt", "--requests", "5"], "name the trace"),
        (["generate", "t.csv", "g2.csv", "--requests", "5"], "traffic model"),
    ):
        assert main(["workload", *argv]) == 2 and said in capsys.readouterr().err and not Path("g2.csv").exists()


def test_drawing_is_quick():
    """Fifteen seconds for ten million are allowed; a million takes a tenth of a second and some."""
    import time

    regimes = Regimes(60.0, np.array([0.5, 1.5]), np.full((2, 2), 0.5), np.zeros(2, dtype=np.int64))
    model = TrafficModel((Stream("all", 100.0, Gaps("poisson"), (Pair(Lognormal(500, 1), Lognormal(100, 1)),), regimes),))
    start = time.process_time()
    assert len(draw_traffic(model, 0, 0, 1_000_000, None)) == 1_000_000
    assert time.process_time() - start < 4
    assert demand.kv_time(np.array([1]), np.array([1]))[0] == 2
