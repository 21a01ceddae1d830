"""Stages, fixed counts, Weibull gaps, closed loops, classes and tenants: what is drawn, and that it is drawn alike."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from llmqsim.errors import DataError, ScenarioError
from llmqsim.requests import UNSET
from llmqsim.rng import stream
from llmqsim.workload.arrivals import arrival_ns, mean_rate
from llmqsim.workload.build import build
from llmqsim.workload.gaps import weibull_cv, weibull_shape
from llmqsim.workload.think import think_ns

ROWS = 40_000
KS_BOUND = np.sqrt(-np.log(1e-5 / 2) / 2 / ROWS)
STAGES = [{"rate": 2.0, "duration": 100.0}, {"rate": 20.0, "duration": 50.0}, {"rate": 5.0, "duration": 200.0}]


def draw(arrivals: dict, requests: int | None = None, duration: float | None = None, seed: int = 1) -> np.ndarray:
    return arrival_ns(arrivals, requests, duration, stream(seed, 0, "arrivals"))


def made(folder="", seed: int = 0, **workload):
    return build(workload, seed=seed, replication=0, base_folder=folder, max_model_len=None)


# Arrivals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.0, 5.0])
def test_weibull_gaps_have_the_cv_the_mean_and_the_law(cv):
    shape = weibull_shape(cv)
    assert weibull_cv(shape) == pytest.approx(cv, rel=1e-9)
    g = np.diff(draw({"process": "weibull", "rate": 4.0, "cv": cv}, ROWS), prepend=0) / 1e9
    assert g.mean() == pytest.approx(0.25, rel=5 * cv / np.sqrt(ROWS))
    law = stats.weibull_min(shape, scale=0.25 * stats.weibull_min(shape).mean() ** -1)
    assert law.mean() == pytest.approx(0.25)
    assert stats.kstest(g[g > 1e-6], lambda x: (law.cdf(x) - law.cdf(1e-6)) / law.sf(1e-6)).statistic < 1.2 * KS_BOUND


def test_weibull_of_cv_one_is_poisson():
    weibull, poisson = draw({"process": "weibull", "rate": 2.0, "cv": 1.0}, 500), draw({"process": "poisson", "rate": 2.0}, 500)
    assert np.abs(weibull - poisson).max() < 1000  # ns: the shape is found to some 1e-12


@pytest.mark.parametrize("process", [{"process": "poisson"}, {"process": "gamma", "cv": 2.0}, {"process": "constant"}])
def test_stages_stretch_one_pattern_piece_by_piece(process):
    one = {"process": process["process"], **process}
    staged = draw({**one, "stages": STAGES})
    plain = draw({**one, "rate": 2.0}, 5000)
    first = plain[plain < 100 * 10**9]
    assert np.abs(staged[: len(first)] - first).max() <= 1
    assert staged[-1] < 350 * 10**9
    counts = np.histogram(staged / 1e9, [0, 100, 150, 350])[0]
    slack = 1 if process["process"] == "constant" else 5 * 2.0 * np.sqrt([200, 1000, 1000])
    assert (np.abs(counts - [200, 1000, 1000]) <= slack).all()
    assert np.array_equal(draw({**one, "stages": STAGES}, 150), staged[:150])
    assert np.array_equal(draw({**one, "stages": STAGES}, None, 120.0), staged[staged < 120 * 10**9])


def test_one_stage_is_a_rate_and_a_duration():
    staged = draw({"process": "poisson", "stages": [{"rate": 3.0, "duration": 200.0}]})
    plain = draw({"process": "poisson", "rate": 3.0}, None, 200.0)
    assert len(staged) == len(plain) and np.abs(staged - plain).max() <= 1
    assert mean_rate({"process": "poisson", "stages": STAGES}) == pytest.approx(2200 / 350)


def test_fixed_counts_fill_each_stage_exactly_and_look_poisson_inside():
    times = draw({"process": "poisson", "stages": STAGES, "fixed_count": True})
    assert [int(((times > a * 10**9) & (times <= b * 10**9)).sum()) for a, b in ((0, 100), (100, 150), (150, 350))] == [
        200, 1000, 1000,
    ]  # fmt: skip
    assert [times[199], times[1199], times[2199]] == [100 * 10**9, 150 * 10**9, 350 * 10**9]
    gaps = np.diff(times[200:1200])
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=5 / np.sqrt(len(gaps)))
    by_count = draw({"process": "poisson", "rate": 5.0, "fixed_count": True}, 300)
    by_time = draw({"process": "poisson", "rate": 5.0, "fixed_count": True}, None, 60.0)
    assert len(by_count) == 300 and by_count[-1] == 60 * 10**9 and np.array_equal(by_count, by_time)


def test_arrivals_that_cannot_be_are_refused():
    with pytest.raises(ScenarioError, match="no request arrives in its stages"):
        made(arrivals={"process": "constant", "stages": [{"rate": 0.1, "duration": 1.0}]}, lengths=LENGTHS)
    with pytest.raises(ScenarioError, match=r"cv: weibull gaps need a cv from"):
        draw({"process": "weibull", "rate": 1.0, "cv": 90.0}, 5)
    with pytest.raises(ScenarioError, match="stage 1 holds no request"):
        draw({"process": "poisson", "stages": [{"rate": 0.01, "duration": 10.0}], "fixed_count": True})


# Closed loops ---------------------------------------------------------------------------------------------------

LENGTHS = {"prompt": {"exponential": {"mean": 100}}, "output": {"uniform": [1, 9]}}


def test_a_closed_loop_draws_lengths_and_think_times_up_front():
    arrivals = {"process": "closed_loop", "clients": 4, "think_time": {"exponential": {"mean": 2.0}}, "ramp_up": 8.0}
    workload = made(requests=3000, arrivals=arrivals, lengths=LENGTHS, clients={"turnaround": 0.001, "timeout": 5.0})
    table, (loop,) = workload.table, workload.clients.loops
    assert (table.arrival_ns == UNSET).all() and loop.rows.tolist() == list(range(3000))
    assert (loop.clients, loop.ramp_up_ns, workload.clients.turnaround_ns) == (4, 8 * 10**9, 10**6)
    assert workload.clients.timeout_ns == 5 * 10**9
    assert table.think_ns.mean() / 1e9 == pytest.approx(2, rel=5 / np.sqrt(3000))
    shorter = made(requests=10, arrivals=arrivals, lengths=LENGTHS).table
    opened = made(requests=3000, arrivals={"process": "poisson", "rate": 1.0}, lengths=LENGTHS).table
    for name in ("prompt_tokens", "output_tokens", "think_ns"):
        assert np.array_equal(getattr(shorter, name), getattr(table, name)[:10])
    assert np.array_equal(opened.prompt_tokens, table.prompt_tokens), "the same rows as in an open loop"


def test_think_times_follow_their_law():
    u = stream(3, 0, "think_times").random(ROWS)
    seconds = think_ns({"lognormal": {"mean": 3.0, "cv": 0.8}}, u, "k") / 1e9
    assert seconds.mean() == pytest.approx(3, rel=5 * 0.8 / np.sqrt(ROWS))
    assert seconds.std() / seconds.mean() == pytest.approx(0.8, rel=0.05)
    assert set(think_ns(1.5, u, "k").tolist()) == {1_500_000_000}
    endless = {"process": "closed_loop", "clients": 1, "think_time": 1e9}
    with pytest.raises(ScenarioError, match="think_time: all think times together may pass the end of the clock"):
        made(requests=100, arrivals=endless, lengths=LENGTHS)
    with pytest.raises(ScenarioError, match=r"k\.think_time"):
        think_ns({"weird": 1}, u, "k")


# Classes and tenants --------------------------------------------------------------------------------------------

CHAT = {"share": 0.7, "lengths": {"prompt": 100, "output": 10}, "tenant": "acme"}
BATCH = {"share": 0.3, "lengths": {"prompt": 4000, "output": 20}, "priority": 2}


def shared(**classes):
    return made(requests=4000, arrivals={"process": "poisson", "rate": 5.0}, classes=classes).table


def test_classes_share_one_stream_by_their_shares():
    table = shared(chat=CHAT, batch=BATCH)
    assert table.classes == ("chat", "batch") and table.tenants == ("acme", "all")
    assert (table.class_id == 0).mean() == pytest.approx(0.7, abs=5 * np.sqrt(0.21 / 4000))
    assert (table.prompt_tokens == np.where(table.class_id == 0, 100, 4000)).all()
    assert (table.priority == np.where(table.class_id == 0, 0, 2)).all()
    assert (table.tenant_id == table.class_id).all()
    plain = made(requests=4000, arrivals={"process": "poisson", "rate": 5.0}, lengths=LENGTHS).table
    assert np.array_equal(plain.arrival_ns, table.arrival_ns)


def test_classes_with_arrivals_of_their_own_are_superposed_and_do_not_shift_each_other():
    def stream_of(rate, prompt):
        return {"arrivals": {"process": "poisson", "rate": rate}, "lengths": {"prompt": prompt, "output": 1}}

    two = made(requests=3000, classes={"a": stream_of(3.0, LENGTHS["prompt"]), "b": stream_of(1.0, 7)}).table
    alone = made(duration=1000.0, classes={"a": stream_of(3.0, LENGTHS["prompt"])}).table
    a = two.class_id == 0
    assert (np.diff(two.arrival_ns) >= 0).all() and len(two) == 3000
    assert a.mean() == pytest.approx(0.75, abs=5 * np.sqrt(0.1875 / 3000))
    for name in ("arrival_ns", "prompt_tokens"):
        assert np.array_equal(getattr(two, name)[a], getattr(alone, name)[: a.sum()])
    gaps = np.diff(two.arrival_ns)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=5 / np.sqrt(len(gaps)))


def test_a_closed_loop_beside_open_traffic():
    workload = made(
        classes={
            "loop": {"arrivals": {"process": "closed_loop", "clients": 3}, "requests": 20, "lengths": LENGTHS},
            "open": {"arrivals": {"process": "constant", "rate": 1.0}, "requests": 5, "lengths": LENGTHS},
        }
    )
    assert workload.table.arrival_ns[:5].tolist() == [i * 10**9 for i in range(1, 6)]
    assert workload.clients.loops[0].rows.tolist() == list(range(5, 25))
    assert (workload.table.class_id[5:] == 0).all() and np.isnan(workload.offered_rate_per_s)


def trace(folder, header: str, *rows: str):
    (folder / "t.csv").write_text("\n".join([f"arrival_s,prompt_tokens,output_tokens,{header}", *rows]) + "\n")
    return {"trace": "t.csv", "folder": folder}


def test_a_trace_names_classes_tenants_and_priorities(tmp_path):
    rows = ("0,10,1,chat,acme,3", "1,20,2,batch,globex,-1", '2,30,3,"chat",acme,0')
    table = made(**trace(tmp_path, "class,tenant,priority", *rows), classes={"chat": {"priority": 9}}).table
    assert table.classes == ("chat", "batch") and table.class_id.tolist() == [0, 1, 0]
    assert [table.tenants[i] for i in table.tenant_id] == ["acme", "globex", "acme"]
    assert table.priority.tolist() == [3, -1, 0], "the trace's own priorities win"
    by_class = made(**trace(tmp_path, "class", "0,10,1,chat", "1,20,2,bot"), classes={"bot": {"priority": 4, "tenant": "x"}})
    assert by_class.table.priority.tolist() == [0, 4]
    assert [by_class.table.tenants[i] for i in by_class.table.tenant_id] == ["all", "x"]


@pytest.mark.parametrize(
    ("header", "row", "classes", "said"),
    [
        ("priority", "high", {}, r"column 'priority', request 1: must be a whole number \(got 'high'\)"),
        ("class", "", {}, "column 'class', request 1: is empty"),
        ("class,class", "a,b", {}, "column 'class' stands twice"),
        ("colour", "red", {"chat": {}}, "workload.classes: the trace has no column 'class'"),
    ],
)
def test_labels_that_make_no_sense_are_refused(tmp_path, header, row, classes, said):
    with pytest.raises((DataError, ScenarioError), match=said):
        made(**trace(tmp_path, header, f"0,10,1,{row}"), classes=classes)
