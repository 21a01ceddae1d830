"""Result files of vLLM bench serve, GuideLLM and AIPerf, made up here, to cases; files of other tools are refused."""

from __future__ import annotations

import json

import pytest

from llmqsim.errors import DataError
from llmqsim.validate import command
from llmqsim.validate.figures import Figure, figures
from llmqsim.validate.runs import Run, plan

SERVER = "config: {engine: vllm, engine_version: 0.15.1, gpu: H100-SXM-80GB, model: llama-3.1-8b, tp: 1}\n"
BENCH = {
    "backend": "vllm", "model_id": "meta-llama/Llama-3.1-8B-Instruct", "num_prompts": 100, "request_rate": 4.0, "burstiness": 1.0,
    "max_concurrency": None, "duration": 25.0, "completed": 98, "total_input_tokens": 98 * 500, "total_output_tokens": 98 * 50,
    "request_throughput": 3.9, "output_throughput": 196.0, "total_token_throughput": 2160.0, "mean_ttft_ms": 30.0,
    "median_ttft_ms": 28.0, "std_ttft_ms": 5.0, "p99_ttft_ms": 60.0, "mean_tpot_ms": 8.0, "median_itl_ms": 7.5, "mean_e2el_ms": 420.0,
}  # fmt: skip
SUMMARY = {"mean": 30.0, "median": 28.0, "std_dev": 2.0, "max": 60, "count": 80, "percentiles": {"p90": 40.0, "p99": 55.0}}
GUIDE = {
    "metadata": {"guidellm_version": "0.3.0"},
    "benchmarks": [{
        "args": {"strategy": {"type_": "concurrent", "streams": 8}},
        "metrics": {
            "prompt_token_count": {"successful": {"mean": 256.0, "std_dev": 0.0, "max": 256, "count": 80}},
            "output_token_count": {"successful": {"mean": 128.0, "std_dev": 0.0, "max": 128, "count": 80}},
            "time_to_first_token_ms": {"successful": SUMMARY},
            "inter_token_latency_ms": {"successful": {"mean": 7.0, "percentiles": {}}},
            "time_per_output_token_ms": {"successful": {"mean": 7.3, "percentiles": {}}},
            "request_latency": {"successful": {"mean": 0.95, "median": 0.94, "percentiles": {"p99": 1.2}}},
            "requests_per_second": {"successful": {"mean": 8.3}},
        },
    }],
}  # fmt: skip


def record(i, **metadata):
    def metric(value, unit):
        return {"value": value, "unit": unit}

    return {
        "metadata": {"request_start_ns": 10**18 + i * 5 * 10**8, "benchmark_phase": "profiling", **metadata},
        "metrics": {"time_to_first_token": metric(30.0 + i, "ms"), "request_latency": metric(0.5, "s"), "inter_token_latency": metric(8000.0, "us"),
                    "input_sequence_length": metric(100 + i, "tokens"), "output_sequence_length": metric(50, "tokens")},
        "error": None,
    }  # fmt: skip


def read(tmp_path, content, server=SERVER, name="run.json"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    (tmp_path / "server.yaml").write_text(server)
    return command.read([path], server=tmp_path / "server.yaml")


def only_run(case):
    (planned,) = plan(case)
    assert isinstance(planned, Run), planned.reason
    return planned


def test_vllm_bench(tmp_path):
    (case,) = read(tmp_path, BENCH)
    found = {(f.metric, f.stat): f.measured for f in figures(case.entries[0])}
    assert found[("ttft", "p50")] == 28.0 and found[("e2e", "mean")] == 420.0 and ("ttft", "std") not in found
    assert found[("n_failed", "value")] == 2 and found[("total_tok_s", "value")] == 2160.0
    work = only_run(case).scenario["workload"]
    assert work["requests"] == 100 and work["arrivals"]["rate"] == 4.0 and work["lengths"] == {"prompt": 500, "output": 50}


@pytest.mark.parametrize(
    ("changed", "arrivals"),
    [
        ({"request_rate": "inf"}, {"process": "burst"}),
        ({"request_rate": "inf", "max_concurrency": 16}, {"process": "closed_loop", "clients": 16}),
        ({"burstiness": 0.5}, {"process": "gamma", "burstiness": 0.5, "rate": 4.0}),
    ],
)
def test_loads_of_vllm_bench(tmp_path, changed, arrivals):
    assert only_run(read(tmp_path, {**BENCH, **changed})[0]).scenario["workload"]["arrivals"] == arrivals


def test_several_results_in_one_file(tmp_path):
    cases = read(tmp_path, json.dumps(BENCH) + "\n" + json.dumps({**BENCH, "request_rate": 8.0}))
    assert [case.id for case in cases] == ["run", "run-2"]


def test_guidellm_names_are_translated(tmp_path):
    (case,) = read(tmp_path, GUIDE)
    found = list(figures(case.entries[0]))
    assert Figure("tpot", "mean", 7.0) in found and Figure("ntpot", "mean", 7.3) in found
    assert Figure("e2e", "p99", 1200.0) in found and Figure("req_s", "value", 8.3) in found
    work = only_run(case).scenario["workload"]
    assert work["arrivals"] == {"process": "closed_loop", "clients": 8} and work["requests"] == 80


def test_aiperf_records(tmp_path):
    lines = [record(0, benchmark_phase="warmup"), *(record(i) for i in range(1, 9)), record(9, was_cancelled=True)]
    text = "\n".join(json.dumps(line) for line in lines)
    (case,) = read(tmp_path, text, name="profile_export.jsonl")
    found = {(f.metric, f.stat): f.measured for f in figures(case.entries[0])}
    assert found[("n_ok", "value")] == 8 and found[("ttft", "mean")] == pytest.approx(34.5)
    assert found[("e2e", "p50")] == pytest.approx(500.0) and found[("tpot", "mean")] == pytest.approx(8.0)
    assert found[("req_s", "value")] == pytest.approx(8 / 4.0)
    sent = only_run(case).sent
    assert sent.arrival_s.tolist() == pytest.approx([0.5 * i for i in range(8)]) and sent.prompt_tokens[0] == 101
    (looped,) = read(tmp_path, text, SERVER + "workload: {arrival: {process: closed_loop, concurrency: 4}}\n", "p.jsonl")
    assert only_run(looped).scenario["workload"]["arrivals"]["clients"] == 4


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"avg_latency": 1.0, "latencies": []}, "vLLM `bench latency`"),
        ({"load_summary": {}, "successes": {}}, "inference-perf"),
        ({"experiments": [], "service_kind": "openai"}, "GenAI-Perf"),
        ({"foo": 1}, "is of no tool that is read"),
        ("{", "run.json:1: not JSON"),
        ("", "is empty"),
        ("[1]", "must be a JSON object"),
        ({**BENCH, "completed": 0}, "completed: no request"),
        ({**BENCH, "total_output_tokens": None}, "total_output_tokens: missing"),
        ({**BENCH, "request_rate": "fast"}, "request_rate: must be a rate or inf"),
        ({"metadata": {"guidellm_version": "9.9"}, "benchmarks": [{"stats": {}}]}, "version 9.9"),
        ({"benchmarks": []}, "benchmarks: none"),
        ({**record(1), "metrics": {}}, "metrics.input_sequence_length: missing"),
    ],
)
def test_what_is_refused(tmp_path, content, fault):
    with pytest.raises(DataError, match=fault):
        read(tmp_path, content)


@pytest.mark.parametrize(("server", "fault"), [("a: 1", "config: missing"), ("config: {engine: vllm}", "config.gpu: missing")])
def test_the_server_has_to_be_described(tmp_path, server, fault):
    with pytest.raises(DataError, match=fault):
        read(tmp_path, BENCH, server)


def test_a_tool_file_without_a_server(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(BENCH))
    with pytest.raises(DataError, match="says nothing about the server; give --server"):
        command.read([path])
