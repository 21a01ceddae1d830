"""Sweeps: which points a grid has, that the store forgets and doubles nothing, what is refused and how."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from llmqsim import load, simulate
from llmqsim.errors import UserError
from llmqsim.sweep import Swept, read_grid, sweep, table
from llmqsim.sweep.axes import Axis
from llmqsim.sweep.pareto import front
from llmqsim.sweep.points import make_point
from tests.cli.commands import ROOT, llmqsim, python_environment, strict_json
from tests.sweep.scenarios import GRID, SCENARIO, write_grid


def settings(swept: Swept) -> list[dict]:
    return [row.settings for row in swept.rows]


def refused(tmp_path, text: str, scenario: str = SCENARIO) -> str:
    """What `llmqsim sweep` says to a faulty grid; nothing may be left behind."""
    path = write_grid(tmp_path, text, scenario)
    before = set(os.listdir(tmp_path))
    said = llmqsim("sweep", path, "--store", tmp_path / "s.sqlite")
    assert said.code == 2 and said.out == ""
    assert set(os.listdir(tmp_path)) == before
    return said.err


OVERLOADED = """\
workload:
  requests: 150
  arrivals: {process: poisson, rate: 5 req/s}
  lengths: {prompt: {exponential: {mean: 1000}}, output: 1}
cost: {model: affine, per_prefill_token: 0.1 ms}
engine: {max_num_seqs: 1, max_num_batched_tokens: 1000000}
slo: {e2e: 4 s, attainment: 0.8}
"""
"""one server that completes ten a second; 150 requests are over before waits of 4 s have built up"""


def test_bisection_never_ends_above_what_a_server_completes(tmp_path):
    """The utilisation law: above 10 req/s a server of 0.1 s mean work overloads, whatever 150 requests show."""
    text = """\
scenario: scenario.yaml
method: adaptive
axes: {workload.arrivals.rate: {from: 4, to: 16}}
refine: {axis: workload.arrivals.rate, figure: attainment, target: 0.8, tolerance: 0.5}
"""
    said = []
    swept = sweep(write_grid(tmp_path, text, OVERLOADED), tmp_path / "s.sqlite", tell=said.append)
    kept = [r.settings["workload.arrivals.rate"] for r in swept.rows if r.decided and r.mean("attainment") >= 0.8]
    assert 7 < max(kept) <= 10 and any("runs lengthened to" in line for line in said)
    longer = [row for row in swept.rows if row.times > 1]
    assert longer and all(row.mean("requests.arrived") == 150 * row.times for row in longer)
    assert "were run longer, up to" in table.screen(swept)
    again = sweep(write_grid(tmp_path, text, OVERLOADED), tmp_path / "s.sqlite")
    assert again.ran == 0 and [r.times for r in again.rows] == [r.times for r in swept.rows]


# Which points.


def test_a_grid_is_every_combination_and_each_point_is_what_run_gives(tmp_path):
    swept = sweep(write_grid(tmp_path), tmp_path / "s.sqlite")
    assert [(s["engine.max_num_seqs"], s["workload.arrivals.rate"]) for s in settings(swept)] == [
        (1, 1), (1, 9), (2, 1), (2, 9), (4, 1), (4, 9)
    ]  # fmt: skip
    for row in swept.rows:
        alone = simulate(load(tmp_path / "scenario.yaml", sets=row.settings)).summary()
        assert row.mean("ttft_s.p99") == alone["ttft_s"]["p99"]


def test_replications_are_means_of_independent_runs(tmp_path):
    path = write_grid(tmp_path, "scenario: scenario.yaml\nreplications: 3\naxes: {engine.max_num_seqs: [2]}\n")
    (row,) = sweep(path, tmp_path / "s.sqlite").rows
    each = [summary["ttft_s"]["mean"] for summary in row.summaries]
    assert len(set(each)) == 3 and row.mean("ttft_s.mean") == pytest.approx(sum(each) / 3)
    assert row.seeds == ((0, 0), (0, 1), (0, 2))


def test_variants_may_be_an_axis(tmp_path):
    path = write_grid(tmp_path, "scenario: scenario.yaml\naxes: {variant: [[], wide]}\n")
    _narrow, wide = sweep(path, tmp_path / "s.sqlite").rows
    assert wide.summaries[0]["ttft_s"] == simulate(load(tmp_path / "scenario.yaml", variant="wide")).summary()["ttft_s"]


def test_a_list_of_points_may_set_different_keys(tmp_path):
    text = "scenario: scenario.yaml\nmethod: list\npoints:\n  - {engine.max_num_seqs: 1}\n  - {workload.arrivals.rate: 2}\n"
    assert settings(sweep(write_grid(tmp_path, text), tmp_path / "s.sqlite")) == [
        {"engine.max_num_seqs": 1},
        {"workload.arrivals.rate": 2},
    ]


def test_a_latin_hypercube_has_one_point_in_every_slice_of_every_axis(tmp_path):
    text = (
        "scenario: scenario.yaml\nmethod: latin_hypercube\nsamples: 10\naxes:\n"
        "  workload.arrivals.rate: {from: 1, to: 11}\n  engine.max_num_seqs: [1, 2]\n"
    )
    swept = sweep(write_grid(tmp_path, text), tmp_path / "s.sqlite")
    assert sorted(int(s["workload.arrivals.rate"]) for s in settings(swept)) == list(range(1, 11))
    assert sorted(s["engine.max_num_seqs"] for s in settings(swept)) == [1] * 5 + [2] * 5
    again = sweep(str(tmp_path / "grid.yaml"), tmp_path / "s.sqlite")
    assert settings(again) == settings(swept) and again.ran == 0


def test_adaptive_brackets_the_rate_at_which_the_target_is_missed(tmp_path):
    text = (
        "scenario: scenario.yaml\nmethod: adaptive\n"
        "axes:\n  engine.max_num_seqs: [1, 2]\n  workload.arrivals.rate: {from: 0.5, to: 12}\n"
        "refine: {axis: workload.arrivals.rate, figure: attainment, target: 0.9, tolerance: 0.2}\n"
    )
    swept = sweep(write_grid(tmp_path, text), tmp_path / "s.sqlite")
    for seats in (1, 2):
        line = sorted(
            (r.settings["workload.arrivals.rate"], r.mean("attainment"))
            for r in swept.rows
            if r.settings["engine.max_num_seqs"] == seats
        )
        met = [rate for rate, attained in line if attained >= 0.9]
        missed = [rate for rate, attained in line if attained < 0.9]
        assert 0 < min(missed) - max(met) <= 0.2
    assert len(swept.rows) < 2 * 12  # a grid this fine would have 2 x 58


def test_adaptive_ends_where_nothing_is_crossed(tmp_path):
    text = (
        "scenario: scenario.yaml\nmethod: adaptive\naxes:\n  workload.arrivals.rate: {from: 0.1, to: 0.2}\n"
        "refine: {axis: workload.arrivals.rate, target: 0.5, tolerance: 0.01}\n"
    )
    assert len(sweep(write_grid(tmp_path, text), tmp_path / "s.sqlite").rows) == 2


def test_optuna_searches_and_the_same_search_comes_from_the_store(tmp_path):
    pytest.importorskip("optuna")
    text = (
        "scenario: scenario.yaml\nmethod: optuna\ntrials: 12\nbatch: 4\nobjective: {attainment: high}\naxes:\n"
        "  engine.max_num_seqs: {from: 1, to: 32, whole: true, scale: log}\n  workload.arrivals.rate: {from: 4, to: 9}\n"
    )
    path = write_grid(tmp_path, text)
    first = sweep(path, tmp_path / "s.sqlite")
    again = sweep(path, tmp_path / "s.sqlite")
    assert len(first.rows) <= 12 and first.ran == len(first.rows)
    assert again.ran == 0 and settings(again) == settings(first)


def test_the_front_by_hand():
    rows = [[1, 0.9], [2, 0.95], [2, 0.9], [3, None], [3, 0.95], [1, 0.9]]
    assert front(rows, ["low", "high"]) == [True, True, False, False, False, True]


# The store.


def test_no_point_runs_twice_whatever_the_grid(tmp_path):
    path, store = write_grid(tmp_path), tmp_path / "s.sqlite"
    assert sweep(path, store).ran == 6
    (tmp_path / "grid.yaml").write_text(GRID.replace("[1, 2, 4]", "[1, 2, 4, 8, 16]").replace("steps: 2", "steps: 3"))
    larger = sweep(path, store)
    assert (larger.ran, larger.found, len(larger.rows)) == (9, 6, 15)


def test_the_key_says_all_that_a_result_rests_on(tmp_path):
    write_grid(tmp_path)

    def key(old: str = "", new: str = "") -> str:
        (tmp_path / "scenario.yaml").write_text(SCENARIO.replace(old, new))
        return make_point(read_grid(tmp_path / "grid.yaml"), {"engine.max_num_seqs": 4}).tasks[0].key

    base = key()
    assert key("workload:", "name: another\nquestion: Why?\nworkload:") == base  # words change no result
    assert key("arrivals: {process: poisson, rate: 4}", "arrivals: {rate: 4.0 req/s, process: poisson}") == base
    assert key("10 ms", "11 ms") != base
    assert key("max_num_seqs: 8", "max_num_seqs: 9") == base  # the point sets it


def test_the_key_follows_the_content_of_a_trace(tmp_path):
    scenario = "workload: {trace: t.csv}\ncost: {model: constant, step: 10 ms}\nengine: {max_num_seqs: 4}\n"
    path = write_grid(tmp_path, "scenario: scenario.yaml\naxes: {engine.max_num_seqs: [1]}\n", scenario)
    keys = []
    for last in (6, 7):
        (tmp_path / "t.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,20,{last}\n")
        keys.append(make_point(read_grid(path), {"engine.max_num_seqs": 1}).tasks[0].key)
    assert keys[0] != keys[1]


def test_a_killed_sweep_goes_on_where_it_was(tmp_path):
    grid = GRID.replace("[1, 2, 4]", "[1, 2, 3, 4, 5, 6, 7, 8]").replace("steps: 2", "steps: 30")
    path, store = write_grid(tmp_path, grid), tmp_path / "s.sqlite"
    command = [sys.executable, "-m", "llmqsim.cli", "sweep", path, "--store", str(store)]
    leader = subprocess.Popen(command, env=python_environment(), stdout=subprocess.DEVNULL)
    end = time.monotonic() + 100
    while time.monotonic() < end and _rows(store) < 5:
        time.sleep(0.02)
    leader.send_signal(signal.SIGKILL)
    leader.wait()
    kept = _rows(store)
    assert 5 <= kept < 240
    rest = sweep(path, store)
    assert (rest.found, rest.ran) == (kept, 240 - kept)
    assert table.told(rest)["points"] == table.told(sweep(path, tmp_path / "fresh.sqlite"))["points"]


def _rows(store) -> int:
    if not store.exists():
        return 0
    try:
        with sqlite3.connect(store) as data:
            return data.execute("SELECT count(*) FROM runs").fetchone()[0]
    except sqlite3.Error:
        return 0


def test_two_processes_give_the_same_table(tmp_path):
    path = write_grid(tmp_path)
    one = llmqsim("sweep", path, "--store", tmp_path / "1.sqlite", "--csv", tmp_path / "1.csv")
    two = llmqsim("sweep", path, "--store", tmp_path / "2.sqlite", "--csv", tmp_path / "2.csv", "--jobs", 2)
    assert one.out == two.out
    assert (tmp_path / "1.csv").read_text() == (tmp_path / "2.csv").read_text()


def test_points_that_cannot_run_are_kept_with_their_reason(tmp_path):
    scenario = SCENARIO.replace("cost:", "model: llama-3.1-8b\ngpu: a100-sxm-80gb\n#cost:").replace(
        "num_gpu_blocks_override: 2000", "max_model_len: 4096"
    )
    path = write_grid(
        tmp_path, "scenario: scenario.yaml\naxes: {engine.gpu_memory_utilization: [0.1, 0.9]}\n", scenario
    )
    said = llmqsim("sweep", path, "--store", tmp_path / "s.sqlite", "--json", tmp_path / "o.json")
    assert said.code == 0
    too_small, fine = strict_json(tmp_path / "o.json")["points"]
    assert "gpu_memory_utilization" in too_small["refused"] and fine["refused"] is None
    assert "1 points could not be run" in said.out


# The table.


def test_the_table_for_machines(tmp_path):
    path = write_grid(tmp_path)
    out = tmp_path / "o.csv"
    said = llmqsim("sweep", path, "--store", tmp_path / "s.sqlite", "--csv", out, "--json", tmp_path / "o.json")
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    told = json.loads((tmp_path / "o.json").read_text())
    assert len(rows) == len(told["points"]) == 6
    assert [float(row["ttft_s.p99"]) for row in rows] == [p["figures"]["ttft_s.p99"] for p in told["points"]]
    assert (
        sum(p["on_front"] for p in told["points"]) == sum(line.startswith("* ") for line in said.out.splitlines()) - 1
    )


# What is refused.

FAULTS = {
    "an axis that does not exist": (
        GRID.replace("max_num_seqs", "max_num_seq"),
        "grid.yaml:3: engine.max_num_seq: unknown key",
        "max_num_seqs",
    ),
    "a value that does not fit": (GRID.replace("[1, 2, 4]", "[1, 0]"), "grid.yaml:3: engine.max_num_seqs:", "(got 0)"),
    "no axes": ("scenario: scenario.yaml\n", "grid.yaml:1: axes:", "engine.max_num_seqs: [64, 128]"),
    "an empty axis": (GRID.replace("[1, 2, 4]", "[]"), "grid.yaml:3: axes.engine.max_num_seqs:", "list of values"),
    "an axis of one word": (
        GRID.replace("[1, 2, 4]", "many"),
        "grid.yaml:3: axes.engine.max_num_seqs:",
        "(got 'many')",
    ),
    "a value twice": (GRID.replace("[1, 2, 4]", "[1, 1]"), "grid.yaml:3: axes.engine.max_num_seqs:", "twice"),
    "a span that falls": (GRID.replace("from: 1", "from: 10"), "grid.yaml:4: axes.workload.arrivals.rate:", "below"),
    "a span of text": (
        GRID.replace("from: 1", "from: 1 req/s"),
        "grid.yaml:4: axes.workload.arrivals.rate:",
        "SI unit",
    ),
    "a log scale from nothing": (GRID.replace("from: 1", "scale: log, from: 0"), "grid.yaml:4:", "above 0"),
    "an unknown method": (GRID + "method: gird\n", "grid.yaml:5: method:", "did you mean 'grid'"),
    "samples with a grid": (GRID + "samples: 3\n", "grid.yaml:5: samples:", "latin_hypercube"),
    "a scenario key outside axes": (GRID + "engine.block_size: 16\n", "grid.yaml:5: engine.block_size:", "under axes"),
    "no scenario": (GRID.replace("scenario: scenario.yaml\n", ""), "grid.yaml:1: scenario:", "relative to this file"),
    "a scenario that is not there": (GRID.replace(": scenario.yaml", ": none.yaml"), "none.yaml: no such file", ""),
    "an unknown variant": (GRID + "variant: wid\n", "unknown variant (got 'wid')", "wide"),
    "no refine": (GRID + "method: adaptive\n", "grid.yaml:1: refine: missing", "tolerance"),
    "a refined axis that is a list": (
        GRID + "method: adaptive\nrefine: {axis: engine.max_num_seqs, target: 1, tolerance: 1}\n",
        "refine.axis:",
        "workload.arrivals.rate",
    ),
    "too many points": (
        GRID.replace("[1, 2, 4]", "{from: 1, to: 2, steps: 2000}").replace("steps: 2}", "steps: 2000}"),
        "axes: 4,000,000 points",
        "latin_hypercube",
    ),
    "a direction that is none": (GRID + "pareto: {gpus: least}\n", "grid.yaml:5: pareto:", "low or high"),
    "not a mapping": ("- 1\n", "grid.yaml:1:", "scenario and axes"),
    "an empty list of points": (
        "scenario: scenario.yaml\nmethod: list\npoints: []\n",
        "grid.yaml:3: points:",
        "list of points",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_grid_is_refused_with_its_line(tmp_path, name):
    text, start, hint = FAULTS[name]
    told = refused(tmp_path, text)
    assert start in told and hint in told, told


def test_an_unknown_figure_is_refused_and_the_points_stay(tmp_path):
    path, store = write_grid(tmp_path, GRID + "figures: [ttft.p99]\n"), tmp_path / "s.sqlite"
    said = llmqsim("sweep", path, "--store", store)
    assert said.code == 2 and "grid.yaml:5: figures: unknown figure (got 'ttft.p99')" in said.err
    assert "ttft_s.p99" in said.err and _rows(store) == 6


def test_a_store_of_another_version_or_kind_is_refused_and_stays_as_it_is(tmp_path):
    path, store = write_grid(tmp_path), tmp_path / "s.sqlite"
    sweep(path, store)
    with sqlite3.connect(store) as data:
        data.execute("UPDATE about SET value = '0.0.1' WHERE name = 'version'")
    data.close()
    before = store.read_bytes()
    said = llmqsim("sweep", path, "--store", store)
    assert said.code == 2 and "0.0.1" in said.err and "--store" in said.err and store.read_bytes() == before
    store.write_text("no database, but of some length " * 100)
    said = llmqsim("sweep", path, "--store", store)
    assert said.code == 2 and "s.sqlite" in said.err and store.read_text().startswith("no database")
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("CREATE TABLE t (x)")
    other.close()
    said = llmqsim("sweep", path, "--store", tmp_path / "other.sqlite")
    assert said.code == 2 and "no store of a sweep" in said.err


def test_a_full_disk_is_told_and_finished_points_stay(tmp_path, monkeypatch):
    path, store = write_grid(tmp_path), tmp_path / "s.sqlite"
    from llmqsim.sweep.store import Store

    whole = Store.__init__

    def small(self, *a):
        whole(self, *a)
        pages = self._data.execute("PRAGMA page_count").fetchone()[0]
        self._data.execute(f"PRAGMA max_page_count = {pages + 4}")  # SQLite then says what it says of a full disk

    monkeypatch.setattr(Store, "__init__", small)
    said = llmqsim("sweep", path, "--store", store)
    assert said.code == 2 and "full" in said.err and "stay" in said.err
    kept = _rows(store)
    monkeypatch.undo()
    assert 0 < kept < 6 and sweep(path, store).found == kept


@pytest.mark.parametrize("jobs", ["0", "two", "-1"])
def test_jobs_must_be_a_number(tmp_path, jobs):
    said = llmqsim("sweep", write_grid(tmp_path), "--store", tmp_path / "s.sqlite", f"--jobs={jobs}")
    assert said.code == 2 and "--jobs" in said.err and not (tmp_path / "s.sqlite").exists()


def test_workers_that_are_killed_again_and_again_are_told(tmp_path, monkeypatch):
    from llmqsim.sweep import local

    grid = read_grid(write_grid(tmp_path))
    monkeypatch.setattr(local, "run_task", _die)
    with pytest.raises(UserError, match="killed 3 times"):
        sweep(grid, tmp_path / "s.sqlite", local.LocalWorkers(2))


def _die(task) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios" / "sweeps").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_grids_of_this_project_run(tmp_path, path):
    grid = read_grid(path)
    one = replace(grid, axes=(*grid.axes, Axis("workload.requests", (50,), str(path))), replications=1)
    assert all(row.refused is None for row in sweep(one, tmp_path / "s.sqlite").rows)
