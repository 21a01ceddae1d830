"""`llmqsim bench`: its cases run, agree with `llmqsim run` and with the reference engine."""

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


def test_cases_have_what_they_are_for():
    usage = {name: measure.simulate(measure.scenario(name, "workload.requests=2000")).usage for name in ("c", "c-swap", "d16")}
    assert usage["c"][0].preemptions > 0
    assert usage["c-swap"][0].swapped_blocks > 0
    assert usage["d16"][0].cached_tokens > 0


def test_an_unknown_case_is_refused(capsys):
    assert main(["bench", "--case", "aa"]) == 2
    assert "--case aa: unknown case" in capsys.readouterr().err


def test_the_exponent_is_fitted_and_starts_are_shown(monkeypatch, capsys):
    def measured(name, **environment):
        if name == "machine":
            return {"simpy_timeouts_per_cpu_s": 1_000_000, "numba_steps_per_cpu_s": 2_000_000}
        if name == "compile":
            return {"cpu_s": 20.0, "wall_s": 21.0} if "NUMBA_CACHE_DIR" in environment else {}
        if name == "a":
            figures = dict.fromkeys(("requests", "requests_per_cpu_s", "tokens_per_cpu_s", "peak_rss_bytes"), 1)
            check = {"requests": 1, "requests_per_cpu_s": 1, "same_result": True}
            names = {"case": "a", "engine": "compiled", "result_hash": "0"}
            return {**figures, **names, "cpu_s": 1.0, "parts_cpu_s": {}, "reference": check}
        requests = int(name.removeprefix("scale:"))
        return {"requests": requests, "cpu_s": 1e-7 * requests**1.1, "peak_rss_bytes": 10**9}

    monkeypatch.setattr(benchmark, "_in_its_own_process", measured)
    monkeypatch.setattr(benchmark.subprocess, "run", lambda *_, **__: None)
    told = benchmark.bench(["a"], scale=True, start=True)
    assert told["scale"]["exponent"] == pytest.approx(1.1) and told["scale"]["exponent_large"] == pytest.approx(1.1)
    assert [point["requests"] for point in told["scale"]["points"]] == [10**4, 10**5, 10**6, 10**7]
    shown = benchmark.bench_text(told)
    assert "exponent 1.10, 1.10 from 100,000 on" in shown
    assert "compiling all kernels 20.0 s of CPU (21.0 s)" in shown


def test_a_size_of_the_scale_is_measured():
    told = measure.scale(2000)
    assert told["requests"] == 2000 and told["cpu_s"] > 0 and told["peak_rss_bytes"] > 10**7


def test_the_cases_that_compile_call_every_kernel():
    """A kernel that none of them calls would be compiled later, unannounced."""
    from llmqsim.engine.compiled import loop, sending
    from llmqsim.metrics import kernels as figures
    from llmqsim.workload import kernels as lengths

    measure.compile_all()
    tops = (sending.entry, loop.entry, figures.add_floats, figures.count_up_to, lengths.draw)
    assert all(getattr(top, "signatures", True) for top in tops)
