"""Runs whose requests come and go: the same requests, the same exact figures, percentiles within what is stated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from llmqsim import long_runs, passing
from llmqsim.cluster import compiled
from llmqsim.metrics.folded import bins_of
from llmqsim.records import gap_bin
from llmqsim.report.tables import screen
from llmqsim.scenario.load import load_text
from llmqsim.simulation import prepare
from llmqsim.workload.build import build
from llmqsim.workload.stretches import Stretches, why_not

SCENARIO = """
workload:
  requests: 6000
  arrivals: {{process: poisson, rate: {rate}}}
  lengths: azure-conversation
model: llama-3.1-8b
gpu: a100-sxm-80gb
replicas: 2
engine: {{max_num_seqs: 64, max_model_len: 8192, enable_prefix_caching: false}}
slo: {{ttft: 500 ms, tpot: 50 ms, ttft_p99: 2 s}}
"""


@pytest.fixture
def short_pieces(monkeypatch):
    for module in (long_runs, passing, compiled):
        monkeypatch.setattr(module, "PIECE_ROWS", 1024)
    monkeypatch.setattr(passing, "PAGE_ROWS", 1)


@pytest.mark.parametrize("rate", (9, 24))
def test_figures_are_those_of_the_whole_table(rate, short_pieces, monkeypatch):
    prepared = prepare(load_text(SCENARIO.format(rate=rate)))
    result = prepared.run(3, 0)
    whole = result.summary()
    monkeypatch.setattr(long_runs, "ABOVE", 1000)
    folded_run = prepared.run(3, 0, keep="summary")
    folded = folded_run.summary()
    assert folded["estimated"]["percentiles_within"] == 0.002
    assert set(folded) == {*whole, "estimated"}
    for key in ("requests", "attainment", "goodput_per_s", "throughput", "utilisation", "routing", "waiting_for"):
        assert folded[key] == whole[key], key
    for key in ("slo", "itl_s", "prefix_cache", "preempted_requests", "end_s", "completed", "duration", "warnings"):
        assert folded[key] == whole[key], key
    for metric in ("ttft_s", "e2e_s", "wait_s"):
        for name in ("n", "max", "mean"):
            assert folded[metric][name] == whole[metric][name], metric
    done = result.table.outcome == 1
    ttft = (result.table.first_token_ns - result.table.arrival_ns)[done] / 1e9
    for percent in (50, 90, 95, 99):  # the middle of the bin that the order statistic lies in
        told, low = folded["ttft_s"][f"p{percent}"], np.sort(ttft)[int((len(ttft) - 1) * percent / 100) :][:2]
        assert low.min() * 0.997 <= told <= low.max() * 1.003
    assert folded["std_ttft_ms"] == pytest.approx(whole["std_ttft_ms"], rel=0.004)
    assert folded["stability"]["verdict"] == whole["stability"]["verdict"]
    for name in ("in_system_peak", "in_system_end", "window_s", "drain_s"):  # a look at each arrival here
        assert folded["stability"][name] == whole["stability"][name]
    assert folded["stability"]["signal"] == pytest.approx(whole["stability"]["signal"], abs=1e-9)
    shown = " ".join(screen(folded_run).split())
    assert "percentiles within 0.2 %" in shown and "who starved not counted" in shown


def test_rows_drawn_in_stretches_are_the_rows():
    given = {
        "requests": 1000,
        "arrivals": {"process": "gamma", "rate": 3.0, "cv": 2.0},
        "lengths": "azure-conversation",
    }
    whole = build(given, seed=5, replication=1, base_folder=".", max_model_len=4096).table
    parts = Stretches(given, 5, 1, Path("."), 4096)
    drawn = np.concatenate([parts.draw(rows).data for rows in (1, 255, 256, 488)], axis=1)
    assert drawn.tobytes() == np.ascontiguousarray(whole.data).tobytes()


def test_what_needs_all_requests_is_told():
    open_traffic = {"requests": 10, "arrivals": {"process": "poisson", "rate": 1.0}, "lengths": "azure-code"}
    assert why_not(open_traffic) is None
    assert why_not({**open_traffic, "prefix": {"groups": 3}}) == "workload.prefix"
    assert why_not({**open_traffic, "arrivals": {"process": "closed_loop", "clients": 3}}) == "arrivals closed_loop"
    stages = {**open_traffic["arrivals"], "stages": [{"rate": 1.0, "duration": 3.0}]}
    assert why_not({**open_traffic, "arrivals": stages}) == "workload.arrivals.stages"


def test_bins_are_those_of_the_gap_histogram():
    values = [0, 1, 255, 256, 257, 511, 512, 513, *(2**k + d for k in range(10, 52) for d in (-1, 0, 1))]
    assert bins_of(np.array(values)).tolist() == [gap_bin(value) for value in values]
