"""`llmqsim bench`: its cases run, agree with `llmqsim run` and with the reference engine, and are named when skipped."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from llmqsim import benchmark
from llmqsim.benchmark import measure
from llmqsim.cli import main

SMALL = "workload.requests=300"


@pytest.mark.parametrize("name", benchmark.CASES)
def test_the_hash_is_that_of_llmqsim_run_with_either_engine(name, tmp_path, capsys):
    hashes = set()
    with resources.as_file(resources.files("llmqsim.presets") / "benchmarks.yaml") as path:
        for engine in ("compiled", "reference"):
            out = tmp_path / f"{engine}.json"
            command = ["run", str(path), "--variant", name, "--set", SMALL, "--set", f"run.engine={engine}"]
            assert main([*command, "--json", str(out)]) == 0
            told = json.loads(out.read_text())
            assert told["engine"] == engine
            hashes.add(measure.result_hash(told))
    assert hashes == {measure.result_hash(measure.simulate(measure.scenario(name, SMALL)).summary())}


def test_case_c_preempts():
    assert measure.simulate(measure.scenario("c", "workload.requests=2000")).summary()["preemptions"] > 0


def test_what_is_not_in_scope_is_named_and_skipped(monkeypatch, capsys):
    figures = {"simpy_timeouts_per_cpu_s": 1_000_000, "numba_steps_per_cpu_s": 2_000_000}
    monkeypatch.setattr(benchmark, "_in_its_own_process", lambda name: figures)
    assert main(["bench", "--case", "d16"]) == 0
    assert "d16    skipped: reference engine only (prefix cache, 16-token blocks)" in capsys.readouterr().out


def test_an_unknown_case_is_refused(capsys):
    assert main(["bench", "--case", "aa"]) == 2
    assert "--case aa: unknown case" in capsys.readouterr().err
