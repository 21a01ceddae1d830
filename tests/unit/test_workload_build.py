"""`build`: one request table from a scenario's workload, with the same rows whatever else changes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from llmqsim.errors import DataError, ScenarioError
from llmqsim.workload.build import build
from llmqsim.workload.lengths import MAX_TOKENS

POISSON = {"process": "poisson", "rate": 4.0}
LENGTHS = {"prompt": {"lognormal": {"mean": 700, "cv": 1.0}}, "output": {"exponential": {"mean": 90}}}


def made(folder=".", max_model_len=None, seed=0, replication=0, **workload):
    return build(workload, seed=seed, replication=replication, base_folder=folder, max_model_len=max_model_len)


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0.5,100,10\n1.0,200,20\n1.0,300,600\n4.5,400,40\n")
    return path


@pytest.mark.parametrize("lengths", [LENGTHS, "azure-conversation"], ids=str)
def test_request_i_is_the_same_whatever_the_rate_the_number_or_the_duration(lengths):
    long = made(requests=2000, arrivals=POISSON, lengths=lengths).table
    variants = (
        made(requests=300, arrivals=POISSON, lengths=lengths).table,
        made(duration=60.0, arrivals=POISSON, lengths=lengths).table,
        made(requests=300, arrivals={"process": "gamma", "rate": 9.0, "cv": 2.0}, lengths=lengths).table,
        made(requests=300, arrivals={"process": "burst"}, lengths=lengths).table,
    )
    for table in variants:
        assert np.array_equal(table.prompt_tokens, long.prompt_tokens[: len(table)])
        assert np.array_equal(table.output_tokens, long.output_tokens[: len(table)])
    assert np.array_equal(variants[0].arrival_ns, long.arrival_ns[:300])


def test_same_seed_same_table_and_others_differ():
    a, b = (made(requests=200, arrivals=POISSON, lengths=LENGTHS).table for _ in range(2))
    assert np.array_equal(a.data, b.data)
    for how in ({"seed": 1}, {"replication": 1}):
        c = made(requests=200, arrivals=POISSON, lengths=LENGTHS, **how).table
        assert not np.array_equal(a.prompt_tokens, c.prompt_tokens) and not np.array_equal(a.arrival_ns, c.arrival_ns)


def test_distributions_share_random_numbers():
    short = made(requests=500, arrivals=POISSON, lengths={"prompt": {"exponential": {"mean": 100}}, "output": 1}).table
    long = made(requests=500, arrivals=POISSON, lengths={"prompt": {"exponential": {"mean": 900}}, "output": 5}).table
    assert np.all(long.prompt_tokens >= short.prompt_tokens)
    order = np.lexsort((short.prompt_tokens, long.prompt_tokens))
    assert np.all(np.diff(short.prompt_tokens[order]) >= 0)


def test_max_tokens_model_output_and_number():
    how = {"requests": 400, "arrivals": POISSON, "lengths": LENGTHS}
    unknown = made(**how).table
    assert set(unknown.max_tokens) == {MAX_TOKENS}
    model = made(max_model_len=1000, **how).table
    assert np.array_equal(model.max_tokens, np.maximum(1000 - model.prompt_tokens, model.output_tokens))
    assert np.array_equal(model.output_tokens, unknown.output_tokens)
    foreseen = made(max_tokens="output", **how).table
    assert np.array_equal(foreseen.max_tokens, foreseen.output_tokens)
    cut = made(max_tokens=64, **how)
    assert np.array_equal(cut.table.output_tokens, np.minimum(unknown.output_tokens, 64))
    assert set(cut.table.max_tokens) == {64}
    assert cut.notes == (f"{np.count_nonzero(unknown.output_tokens > 64)} outputs cut at max_tokens 64",)


def test_limits_of_lengths_are_told():
    lengths = {"prompt": {"lognormal": {"mean": 700, "cv": 1.0}, "max": 800}, "output": 5}
    (note,) = made(requests=400, arrivals=POISSON, lengths=lengths).notes
    assert "prompt lengths were set to min or max" in note
    calm = {"prompt": {"uniform": [5, 10], "max": 800}, "output": 5}
    assert made(requests=400, arrivals=POISSON, lengths=calm).notes == ()


def test_source_and_rate():
    w = made(requests=9, arrivals={"process": "gamma", "rate": 6.45, "cv": 2}, lengths="azure-code")
    assert w.offered_rate_per_s == 6.45 and w.source == "gamma arrivals, 6.45 req/s, cv 2; lengths azure-code"
    burst = made(requests=9, arrivals={"process": "burst"}, lengths={"prompt": 5, "output": 6})
    assert burst.offered_rate_per_s == math.inf and "burst" in burst.source


def test_replay(trace):
    w = made(trace.parent, trace={"file": "t.csv", "format": "auto", "rate_scale": 1.0})
    assert w.table.arrival_ns.tolist() == [500_000_000, 10**9, 10**9, 4_500_000_000]
    assert w.table.prompt_tokens.tolist() == [100, 200, 300, 400]
    assert w.offered_rate_per_s == pytest.approx(3 / 4) and w.source == "trace t.csv"
    assert np.array_equal(made(trace.parent, trace="t.csv").table.data, w.table.data)
    assert np.array_equal(made("/", trace=str(trace)).table.data, w.table.data)


def test_replay_faster_shorter_and_fewer(trace):
    fast = made(trace.parent, trace={"file": "t.csv", "rate_scale": 2.0})
    assert fast.table.arrival_ns.tolist() == [250_000_000, 500_000_000, 500_000_000, 2_250_000_000]
    assert fast.offered_rate_per_s == pytest.approx(3 / 2) and "2 times its rate" in fast.notes[0]
    assert len(made(trace.parent, trace="t.csv", requests=2).table) == 2
    assert len(made(trace.parent, trace="t.csv", duration=1.0).table) == 1
    assert len(made(trace.parent, trace="t.csv", duration=1.1).table) == 3
    more = made(trace.parent, trace="t.csv", requests=99)
    assert len(more.table) == 4 and more.notes == ("99 requests asked for; the trace has 4",)
    assert made(trace.parent, trace="t.csv", max_tokens=100).table.output_tokens.tolist() == [10, 20, 100, 40]


def test_lengths_from_a_file_are_relative_to_the_scenario(tmp_path):
    text = "kind: bins\nprompt: {low: [7], high: [7], weight: [1]}\noutput: [{low: [3], high: [3], weight: [1]}]\n"
    (tmp_path / "lengths.yaml").write_text(text)
    w = made(tmp_path, requests=5, arrivals=POISSON, lengths={"file": "lengths.yaml"})
    assert set(w.table.prompt_tokens) == {7} and set(w.table.output_tokens) == {3}
    with pytest.raises(DataError, match="no such file"):
        made(tmp_path, requests=5, arrivals=POISSON, lengths={"file": "other.yaml"})


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ({"duration": 1e-6, "arrivals": POISSON, "lengths": LENGTHS}, "no request arrives before"),
        ({"requests": 5, "arrivals": POISSON}, "workload.lengths"),
        ({"requests": 5, "arrivals": POISSON, "lengths": {"prompt": 5}}, "prompt and output"),
        ({"requests": 5, "arrivals": POISSON, "lengths": LENGTHS, "max_tokens": 0}, "workload.max_tokens"),
        ({"requests": 5, "arrivals": POISSON, "lengths": LENGTHS, "max_tokens": True}, "workload.max_tokens"),
        ({"requests": 5, "lengths": LENGTHS}, "workload.arrivals.process"),
        ({"trace": "t.csv", "arrivals": POISSON}, "replaces arrivals and lengths"),
        ({"trace": {"file": "t.csv", "rate_scale": 0.0}}, "rate_scale"),
        ({"trace": {"file": "t.csv", "format": "azur"}}, "did you mean 'azure'"),
        ({"trace": "t.csv", "duration": 0.1}, "no request arrives before"),
    ],
)
def test_what_makes_no_sense_is_refused_by_key(trace, workload, said):
    with pytest.raises(ScenarioError, match=said):
        made(trace.parent, **workload)
