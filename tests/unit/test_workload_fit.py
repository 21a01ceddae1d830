"""The fit of a length table: dependence found where it is and nowhere else, presets true to their traces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from llmqsim.errors import DataError
from llmqsim.workload.fit import fit_file, fit_lengths, split_in_time
from llmqsim.workload.fit_report import compare, ks_distance, rank_correlation
from llmqsim.workload.table_file import load_preset, load_table
from llmqsim.workload.trace import Trace, read_trace

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "../shared/data/traces"
PRESETS = {
    "azure-conversation": "azure2023_conv.csv.gz",
    "azure-code": "azure2023_code.csv.gz",
    "mooncake-conversation": "mooncake_conversation.csv.gz",
}
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the public traces (../shared/data/traces) are absent")


def write_trace(path: Path, rows: int, seed: int = 0, times: bool = True) -> Path:
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(size=rows))
    prompt, output = rng.integers(1, 5000, rows), rng.integers(1, 800, rows)
    lines = [f"{a if times else ''},{p},{o}" for a, p, o in zip(arrival, prompt, output, strict=True)]
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(lines) + "\n")
    return path


def test_a_sharp_dependence_is_found():
    rng = np.random.default_rng(0)
    prompt = rng.integers(1, 10_000, 6000)
    kind = (prompt > 2500).astype(int) + (prompt > 2700)
    output = np.choose(kind, [rng.integers(1, 50, 6000), rng.integers(400, 500, 6000), rng.integers(90, 200, 6000)])
    table = fit_lengths(prompt, output)
    p, o = table.draw(*rng.random((2, 40_000)))
    # Ranges end at bin edges, so up to a bin (1/128 of the rows) of the neighbour mixes in: look at medians.
    for low, high, exact in ((0, 2500, 25), (2500, 2700, 449.5), (2700, 10_000, 144.5)):
        assert np.median(o[(p > low) & (p <= high)]) == pytest.approx(exact, rel=0.1)


def test_no_dependence_is_invented():
    rng = np.random.default_rng(1)
    split = 0
    for _ in range(60):
        prompt, output = (np.maximum(rng.lognormal(m, 1, 1500), 1).astype(int) for m in (6, 5))
        split += len(fit_lengths(prompt, output).outputs) > 1
    # One in a hundred is expected to split by chance; 5 of 60 has a probability below 1e-3 then.
    assert split < 5


def test_rank_correlation_and_ks_by_hand():
    a = np.array([1, 2, 2, 3])
    assert rank_correlation(a, a) == pytest.approx(1)
    assert rank_correlation(a, -a) == pytest.approx(-1)
    assert rank_correlation(a, np.ones(4)) == 0
    table = fit_lengths(np.array([10, 20] * 100), np.array([5] * 200))
    assert ks_distance(np.array([10, 20]), table.marginal("prompt_tokens")) == pytest.approx(0)
    assert ks_distance(np.array([10, 10, 10, 20]), table.marginal("prompt_tokens")) == pytest.approx(0.25)
    assert ks_distance(np.array([11]), table.marginal("prompt_tokens")) == pytest.approx(0.5)


def test_the_last_third_is_in_time_not_in_rows():
    arrival = np.concatenate([np.linspace(0, 10, 1000), np.linspace(20.1, 30, 200)])
    ones = np.ones(1200, dtype=int)
    assert split_in_time(Trace(arrival, ones, ones, "")) == (slice(0, 1000), slice(1000, None))
    assert split_in_time(Trace(np.full(1200, np.nan), ones, ones, "")) == (slice(0, 800), slice(800, None))


def test_fit_file_writes_a_table_and_reports_both_errors(tmp_path):
    out = tmp_path / "lengths.yaml"
    report = fit_file(write_trace(tmp_path / "t.csv", 900), out)
    for word in ("mean", "CV", "P50", "P99", "KS distance", "last third", "rank correlation", "tokens > P99"):
        assert word in report
    assert max(map(len, report.splitlines())) <= 100 + len(str(tmp_path))
    about = load_table(out).about
    assert about["rows"] == 900 and about["fit"]["in_sample"]["prompt_tokens"]["mean_percent"] == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lengths.yaml", "t.csv"]


def test_fit_file_takes_lengths_without_times(tmp_path):
    fit_file(write_trace(tmp_path / "t.csv", 300, times=False), tmp_path / "lengths.yaml")
    assert load_table(tmp_path / "lengths.yaml").about["rows"] == 300


def test_fit_file_refuses_few_rows_and_leaves_what_was_there(tmp_path):
    out = tmp_path / "lengths.yaml"
    out.write_text("mine")
    with pytest.raises(DataError, match="has 99 rows; at least 100"):
        fit_file(write_trace(tmp_path / "t.csv", 99), out)
    assert out.read_text() == "mine"
    with pytest.raises(DataError, match="make it first"):
        fit_file(write_trace(tmp_path / "t.csv", 200), tmp_path / "no" / "lengths.yaml")
    with pytest.raises(DataError, match="is a folder"):
        fit_file(write_trace(tmp_path / "t.csv", 200), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lengths.yaml", "t.csv"]


@needs_traces
@pytest.mark.parametrize("name", PRESETS)
def test_presets_reproduce_their_traces(name):
    trace = read_trace(TRACES / PRESETS[name])
    figures = compare(load_preset(name), trace.prompt_tokens, trace.output_tokens)
    for column in ("prompt_tokens", "output_tokens"):
        f = figures[column]
        assert f["mean"][1] == pytest.approx(f["mean"][0], rel=1e-4)
        assert f["cv"][1] == pytest.approx(f["cv"][0], rel=0.01)
        assert f["max"][0] == f["max"][1]
        for quantile in ("p50", "p90", "p95", "p99"):
            assert f[quantile][1] == pytest.approx(f[quantile][0], rel=0.02)
        assert f["tokens_beyond"][1] == pytest.approx(f["tokens_beyond"][0], rel=0.05)
        # Far below what two samples of this size differ by: the table adds next to nothing to the sample's own noise.
        assert f["ks"] < f["ks_noise"] / 2
    assert figures["rank_correlation"][1] == pytest.approx(figures["rank_correlation"][0], abs=0.02)


@needs_traces
@pytest.mark.parametrize("name", PRESETS)
def test_presets_keep_how_outputs_depend_on_prompts(name):
    trace = read_trace(TRACES / PRESETS[name])
    prompt, output = load_preset(name).draw(*np.random.default_rng(4).random((2, 400_000)))
    edges = np.quantile(trace.prompt_tokens, np.linspace(0, 1, 11)[1:-1])
    tenth, tenth_drawn = np.searchsorted(edges, trace.prompt_tokens), np.searchsorted(edges, prompt)
    for i in range(10):
        rows = trace.output_tokens[tenth == i]
        # The heavy tail makes one tenth's own spread unreliable: take the larger of its own and the trace's.
        error = max(rows.std(), trace.output_tokens.std()) / np.sqrt(len(rows))
        assert output[tenth_drawn == i].mean() == pytest.approx(rows.mean(), abs=4 * error)


@needs_traces
def test_pile_ups_of_the_azure_traces_are_kept():
    u = np.random.default_rng(4).random((2, 400_000))
    for name, low, high in (("azure-conversation", 4070, 4140), ("azure-code", 7435, 7437)):
        rows = read_trace(TRACES / PRESETS[name]).prompt_tokens
        drawn = load_preset(name).draw(*u)[0]
        share = np.mean((rows >= low) & (rows <= high))
        assert share > 0.03
        assert np.mean((drawn >= low) & (drawn <= high)) == pytest.approx(share, rel=0.03)


@needs_traces
def test_presets_are_what_the_script_writes(tmp_path):
    script = ROOT / "calibration/fit_workloads.py"
    done = subprocess.run([sys.executable, script, "--out", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in PRESETS:
        shipped = ROOT / f"llmqsim/presets/workloads/{name}.yaml"
        assert (tmp_path / shipped.name).read_bytes() == shipped.read_bytes()
