"""Sizes that no memory or clock holds are refused before the run, with the number that would be needed."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim import UserError, load_text, memory, simulate
from llmqsim.cli import main
from llmqsim.cluster import choose

SCENARIO = """
workload: {requests: 400, arrivals: {process: poisson, rate: 6 req/s}, lengths: {prompt: 4000, output: 200}}
model: llama-3.1-8b
gpu: a100-sxm-80gb
"""
LOOP = "workload.arrivals={process: closed_loop, clients: 5000}"
TOO_MUCH = {
    "requests": (60_000, [], {"keep": "summary"}, "workload: about 400 requests need 85.9 KiB of memory (88,000 bytes), and 58.6"),
    "kept requests": (100_000, [], {}, "workload: 400 requests that are all kept need 312 KiB of memory (320,000 bytes)"),
    "a duration": (
        2_000_000, ["workload.requests=null", "workload.duration=10 h"], {},
        "workload: about 216,000 requests need 45.3 MiB of memory (47,520,000 bytes)",
    ),
    "stages": (
        2_000_000,
        ["workload.requests=null", "workload.arrivals={process: poisson, stages: [{rate: 6 req/s, duration: 10 h}]}"], {},
        "workload: about 216,000 requests need",
    ),
    "a fixed count": (
        2_000_000, ["workload.requests=null", "workload.duration=10 h", "workload.arrivals.fixed_count=true"], {},
        "workload: about 216,000 requests need",
    ),
    "requests in a loop": (60_000, [LOOP], {"keep": "summary"}, "workload: about 400 requests need 85.9 KiB of memory"),
    "clients in a loop": (
        1_000_000, [LOOP], {}, "workload.arrivals.clients: 5,000 clients need 14.3 MiB of memory (15,000,000 bytes)"
    ),
    "shared prefixes": (
        1_000_000, ["workload.prefix={shared_tokens: 4000}"], {},
        "workload.prefix: hashes of 100,000 KV blocks that prompts share need 2.29 MiB of memory (2,400,000 bytes)",
    ),
    "a step log": (
        1_000_000, ["workload.lengths.output=5000"], {"keep_steps": True},
        "keep_steps: 7,813 steps in the log (at least: all answers in 256 slots that are always full) need 2.98 MiB",
    ),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_beyond_memory(case, monkeypatch):
    have, sets, options, said = TOO_MUCH[case]
    monkeypatch.setattr(choose, "_compiled", None)  # nothing runs
    monkeypatch.setattr(memory, "available_bytes", lambda: have)
    with pytest.raises(UserError) as caught:
        simulate(load_text(SCENARIO, sets=sets), **options)
    (fault,) = caught.value.faults
    assert said in fault and f"({have:,} bytes) are available; " in fault, fault


def test_what_fits_runs(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 400_000)
    assert simulate(load_text(SCENARIO)).summary()["completed"] == 400


def test_a_trace_beyond_memory(tmp_path, monkeypatch, capsys):
    trace, scenario = tmp_path / "t.csv", tmp_path / "x.yaml"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n" + "1,10,10\n" * 1000)
    scenario.write_text(SCENARIO)
    for have, said in ((20_000, "of trace need 31.4 KiB of memory (32,152 bytes), and 19.5 KiB (20,000 bytes) are"),):
        monkeypatch.setattr(memory, "available_bytes", lambda have=have: have)
        assert main(["run", str(scenario), "--trace", str(trace)]) == 2
        assert said in capsys.readouterr().err


LATE = {
    "arrivals": (["workload.arrivals.rate=1e-9 req/s"], "the last arrival would be at "),
    "steps": (
        ["cost={model: constant, step: 1e6 s}", "workload.lengths.output=100000", "model=llama-3.1-8b"],
        "cost: 156,250 steps of 1,000,000,000,000,000 ns (the fewest and the shortest that can be) take "
        "156,250,000,000,000,000,000 ns (4,951 years), and the clock ends at 2^62 = 4,611,686,018,427,387,904 ns",
    ),
}


@pytest.mark.parametrize("case", LATE)
def test_beyond_the_clock(case, monkeypatch):
    sets, said = LATE[case]
    text = SCENARIO if case == "arrivals" else "workload: {requests: 400, arrivals: {process: burst}, lengths: {prompt: 9, output: 2}}\n"
    monkeypatch.setattr(choose, "_compiled", None)  # nothing runs
    with pytest.raises(UserError) as caught:
        simulate(load_text(text, sets=sets))
    assert said in str(caught.value)
    assert "2^63" in str(caught.value)


def test_clients_that_start_over_a_time_whose_product_is_beyond_int64():
    loop = "workload.arrivals={process: closed_loop, clients: 50, ramp_up: 1e9 s}"
    runs = [simulate(load_text(SCENARIO, sets=[loop, "workload.requests=40", f"run.engine={engine}"])) for engine in ("compiled", "reference")]
    assert np.array_equal(runs[0].table.data, runs[1].table.data)
    assert np.diff(runs[0].table.intended_ns).max() <= 1e9 * 1e9 / 50


def test_the_machine_says_how_much_there_is():
    assert 1 << 26 < memory.available_bytes() < 1 << 50
