"""What validate reads: each file by its own tool's keys, every key of a case or a word that it isn't, no zero as a
measurement, no overloaded queue in a mean, and no success where nothing ran.

Shapes of files are those that the tools publish; means are counted by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml

from llmqsim.cli import main
from llmqsim.errors import DataError
from llmqsim.validate import command, keys
from llmqsim.validate.cases import Case, read_cases
from llmqsim.validate.errors_table import Row, rows
from llmqsim.validate.execute import Outcomes
from llmqsim.validate.figures import Figure, figures
from llmqsim.validate.groups import closed_loop_case, static_batch_case
from llmqsim.validate.peers import null_model
from llmqsim.validate.runs import CannotRun, Run, plan
from llmqsim.validate.sent import read_sent
from llmqsim.validate.summary import group, overloaded, summary
from tests.unit.test_validate_cases import CONFIG, ENTRY, WORK, case, write
from tests.unit.test_validate_tools import BENCH, read

SERVING = Path(__file__).parents[3] / "shared" / "data" / "serving"
SGLANG = {
    "backend": "sglang", "dataset_name": "random", "request_rate": 4.0, "max_concurrency": None,
    "sharegpt_output_len": None,
    "random_input_len": 500, "random_output_len": 50, "random_range_ratio": 1.0, "duration": 25.0, "completed": 100,
    "total_input_tokens": 50_000, "total_output_tokens": 5_000, "total_output_tokens_retokenized": 4_998,
    "request_throughput": 3.9, "input_throughput": 1950.0, "output_throughput": 196.0, "mean_e2e_latency_ms": 420.0,
    "median_e2e_latency_ms": 410.0, "mean_ttft_ms": 0.0, "median_ttft_ms": 0.0, "p99_ttft_ms": 0.0, "mean_tpot_ms": 8.0,
    "mean_itl_ms": 8.1, "concurrency": 1.6,
}  # fmt: skip


def run_of(made: Case) -> Run:
    (planned,) = plan(made)
    assert isinstance(planned, Run), planned.reason
    return planned


# whose file is it ------------------------------------------------------------------------------------------------


def test_a_result_of_sglang_is_read_by_sglangs_keys(tmp_path):
    (made,) = read(tmp_path, SGLANG)
    assert made.workload["tool"] == "sglang bench_serving"
    entry = made.entries[0]
    assert entry["e2e_ms"] == {"mean": 420.0, "p50": 410.0} and entry["n_ok"] == 100 and "n_failed" not in entry
    assert run_of(made).scenario["workload"]["lengths"] == {"prompt": 500, "output": 50}
    (closed,) = read(tmp_path, {**SGLANG, "request_rate": float("inf"), "max_concurrency": 8})
    assert run_of(closed).scenario["workload"]["arrivals"] == {"process": "closed_loop", "clients": 8}


def test_a_copy_that_has_neither_tools_own_keys_is_of_no_tool(tmp_path):
    for absent in ("num_prompts", "request_throughput"):
        with pytest.raises(DataError, match="is of no tool that is read"):
            read(tmp_path, {key: value for key, value in BENCH.items() if key != absent})
    with pytest.raises(DataError, match="Mooncake trace"):
        read(tmp_path, {"timestamp": 1, "input_length": 2, "output_length": 3})


def test_a_latency_of_zero_is_no_measurement(tmp_path):
    (made,) = read(tmp_path, SGLANG)
    run = run_of(made)
    values = {0: [5.0] * len(list(figures(made.entries[0])))}
    told = {(row.figure.metric, row.figure.stat): row for row in rows([run], [Outcomes(values)])}
    ttft, e2e = told["ttft", "mean"], told["e2e", "mean"]
    assert ttft.predicted is None and ttft.error_pct is None and "ttft mean of 0 is no measurement" in ttft.reason
    assert not ttft.in_envelope and e2e.predicted == 5.0
    assert group((), [ttft, told["ttft", "p99"]]).covered == 0


# keys ------------------------------------------------------------------------------------------------------------


def test_every_key_of_the_measured_runs_is_known():
    """Each key there is read, a label, or left aside with a reason: none is 'no such key'."""
    if not (SERVING / "cases.yaml").is_file():
        pytest.skip("../shared/data/serving is absent")
    cases = command.read(
        [SERVING / "cases.yaml"], None, [SERVING / "closed_loop_dev.csv"], [SERVING / "static_batch_dev.csv"]
    )
    told = dict(keys.told(cases))
    assert not [text for text in told if "no such key" in text]
    assert any(text.startswith("config.kv_blocks_estimate is not read: the capacity model") for text in told)


def test_a_key_that_nobody_reads_is_named_in_the_reason_and_on_the_screen(tmp_path, capsys):
    config = {**CONFIG, "max_num_seq": 7, "cpu_kv_offload": True, "cpu_kv_blocks": 0, "eval_id": 3}
    work = {**WORK, "prefx": {"groups": 1}, "arrival": {**WORK["arrival"], "jitter": 2}, "slo": {"ttft_p99_ms": 5}}
    made = case(config=config, workload=work, measured=[{"stage": "all", **ENTRY, "engine_log": {"max_running": 3}}])
    (read_back,) = read_cases(write(tmp_path, cases=[{**made, "notes": "x", "extra": 1}]))
    found = {one.key: one for one in keys.unread(read_back)}
    assert set(found) == {
        "extra", "config.max_num_seq", "config.cpu_kv_offload", "workload.prefx", "workload.arrival.jitter",
        "workload.slo", "measured.engine_log",
    }  # fmt: skip
    assert found["config.max_num_seq"].why == "no such key; did you mean 'max_num_seqs'?"
    notes = run_of(read_back).notes
    assert any("max_num_seq " in note for note in notes) and not any("engine_log" in note for note in notes)
    path = write(tmp_path, cases=[case(config={**CONFIG, "max_num_seq": 7})])
    assert main(["validate", str(path), "--out", str(tmp_path / "out"), "--workers", "1"]) == 0
    assert "1 × config.max_num_seq is not read: no such key" in capsys.readouterr().out
    assert "config.max_num_seq is not read" in (tmp_path / "out" / "errors.csv").read_text()


@pytest.mark.parametrize("name", ["kv_precision", "kv_cache_dtype", "kv_dtype"])
def test_the_type_of_the_kv_cache_by_any_name(tmp_path, name):
    for said, ours in (("fp8", "fp8"), ("FP8_E4M3", "fp8"), ("bf16", "bfloat16"), ("auto", "auto")):
        made = read_cases(write(tmp_path, cases=[case(config={**CONFIG, name: said})]))[0]
        assert run_of(made).scenario["engine"]["kv_cache_dtype"] == ours
    (refused,) = plan(read_cases(write(tmp_path, cases=[case(config={**CONFIG, name: "int3"})]))[0])
    assert isinstance(refused, CannotRun) and f"{name}: unknown type of KV cache (got 'int3')" in refused.reason


def test_two_types_of_the_kv_cache_contradict_each_other(tmp_path):
    config = {**CONFIG, "kv_precision": "fp8", "kv_cache_dtype": "bf16"}
    (refused,) = plan(read_cases(write(tmp_path, cases=[case(config=config)]))[0])
    assert "kv_cache_dtype: bf16 and kv_precision: fp8 contradict each other" in refused.reason


GROUP = {"model": "Qwen3-32B", "gpu": "H100-SXM-80GB", "engine": "vllm", "engine_version": "0.12.0", "tp": 2,
         "points": [[4, 90.0, 12.0]]}  # fmt: skip


@pytest.mark.parametrize(
    "placed",
    [
        {"isl": 1000, "osl": 100},
        {"config": {"isl": 1000, "osl": 100}},
        {"workload": {"isl": 1000, "osl": 100}},
        {"workload": {"input_tokens": 1000, "output_tokens": 100}},
        {"workload": {"prompt_tokens": {"exact": 1000}, "output_tokens": {"exact": 100, "ignore_eos": True}}},
        {"isl": 1000, "workload": {"osl": 100}},
    ],
)
def test_lengths_of_a_closed_loop_wherever_they_stand(placed):
    run = run_of(closed_loop_case({**GROUP, **placed}, "f:1", 0))
    assert run.scenario["workload"]["lengths"] == {"prompt": 1000, "output": 100}
    assert not keys.unread(run.case)


def test_what_else_a_group_says_of_its_workload_counts():
    work = {"isl": 1000, "osl": 100, "n_requests": 33, "prefix": {"distinct_prompts": 5}, "think": 3}
    run = run_of(closed_loop_case({**GROUP, "workload": work}, "f:1", 0))
    assert run.scenario["workload"]["requests"] == 33 and run.scenario["workload"]["prefix"]["distinct_prompts"] == 5
    assert [one.key for one in keys.unread(run.case)] == ["workload.think"]
    (wrong,) = plan(closed_loop_case({**GROUP, "isl": 500, "osl": 100, "workload": {"isl": 1000}}, "f:1", 0))
    assert "f:1: isl 500 and workload.isl 1000 contradict each other; state one" in wrong.reason
    (none,) = plan(closed_loop_case(GROUP, "f:1", 0))
    assert "f:1: isl: missing" in none.reason
    static = static_batch_case({**GROUP, "points": [[512, 8, 128, 9.0, 1.0]], "workload": "big"}, "f:2", 0)
    assert "f:2: workload: must be a mapping" in plan(static)[0].reason


# means -----------------------------------------------------------------------------------------------------------


def made_row(name: str, metric: str, measured: float, predicted: float | None, late: bool = False) -> Row:
    one = Case(name, "inference-perf-x", "open_loop", {}, {}, ({},), gpu="g", model="m")
    return Row(one, 0, Figure(metric, "mean", measured), predicted, True, "", overloaded=late)


def test_queues_of_overloaded_runs_are_in_no_mean_and_told_apart():
    """TTFT errors 10 and 30 % of two calm runs, 900 % of an overloaded one: the mean is 20, and 900 stands apart. TPOT
    holds no queue, so all three count: 10, 10 and 40 % make 20."""
    told = [
        made_row("a", "ttft", 100, 110), made_row("b", "ttft", 100, 70), made_row("c", "ttft", 100, 1000, late=True),
        made_row("a", "tpot", 10, 11), made_row("b", "tpot", 10, 9), made_row("c", "tpot", 10, 14, late=True),
        made_row("c", "e2e", 100, 300, late=True), made_row("d", "ttft", 100, None, late=True),
    ]  # fmt: skip
    broad = {one.key[4]: one for one in summary(told) if one.key[1] == "all"}
    assert broad["ttft"].mean == pytest.approx(20) and broad["tpot"].mean == pytest.approx(20)
    assert (broad["ttft"].n, broad["ttft"].covered, broad["ttft"].apart) == (4, 2, 1)
    assert broad["e2e"].mean is None and broad["tpot"].apart == 0
    assert {one.key[4]: one.mean for one in overloaded(told)} == pytest.approx({"ttft": 900, "e2e": 200})
    assert null_model(told)[0].n == 2


def test_an_overloaded_run_of_a_file_goes_apart(tmp_path, capsys):
    """40 requests a second of 200 answer tokens on one GPU with 4 slots: no 8B model serves a tenth of that."""
    arrival = {"process": "poisson", "stages": [{"rate_per_s": 40, "duration_s": 15, "n": 600}]}
    work = {**WORK, "arrival": arrival, "output_tokens": {"exact": 200, "ignore_eos": True}, "client_timeout_s": None}
    measured = [{"stage": "all", "ttft_ms": {"mean": 9000.0}, "tpot_ms": {"mean": 7.0}}]
    path = write(tmp_path, cases=[case(config={**CONFIG, "max_num_seqs": 4}, workload=work, measured=measured)])
    assert main(["validate", str(path), "--out", str(tmp_path / "o"), "--page", str(tmp_path / "p.md")]) == 0
    assert "overloaded runs, apart" in capsys.readouterr().out
    assert "## Overloaded runs, apart" in (tmp_path / "p.md").read_text()
    found = {(g["gpu"], g["metric"]): g for g in csv.DictReader((tmp_path / "o" / "summary.csv").open())}
    assert (found["all", "ttft"]["mean_ape_pct"], found["all", "ttft"]["overloaded_apart"]) == ("", "1")
    assert found["all", "tpot"]["mean_ape_pct"] != "" and found["all", "tpot"]["overloaded_apart"] == "0"


# nothing ran, and tables -----------------------------------------------------------------------------------------


def test_nothing_that_could_be_run_is_no_success(tmp_path, capsys):
    path = write(tmp_path, cases=[case("a", config=None), case("b", config={**CONFIG, "max_num_seqs": -3})])
    assert main(["validate", str(path), "--out", str(tmp_path / "out"), "--workers", "1"]) == 2
    said = capsys.readouterr().err
    assert "none of 2 cases could be run" in said and "a: not run:" in said and "engine.max_num_seqs" in said
    assert len(list(csv.DictReader((tmp_path / "out" / "errors.csv").open()))) == 30
    empty = tmp_path / "none.yaml"
    empty.write_text(yaml.safe_dump({"schema_version": 1, "cases": []}))
    assert main(["validate", str(empty), "--out", str(tmp_path / "out")]) == 2


def test_a_request_table_in_another_unit_waits_for_its_unit(tmp_path):
    table = tmp_path / "r.csv"
    table.write_text("arrival_s,prompt_tokens,output_tokens\n340,10,5\n0,10,5\n120,10,5\n")
    with pytest.raises(DataError, match="as milliseconds .* a second: state the unit, workload.time_unit: ms, or s"):
        read_sent(table)
    assert read_sent(table, "ms").arrival_s.tolist() == [0, 0.12, 0.34]
    (tmp_path / "requests").mkdir()
    table.rename(tmp_path / "requests" / "one.csv")
    made = case(request_table="requests/one.csv", workload={**WORK, "time_unit": "ms"})
    run = run_of(read_cases(write(tmp_path, cases=[made]))[0])
    assert run.sent.arrival_s.tolist() == [0, 0.12, 0.34] and run.scenario["workload"]["trace"]["time_unit"] == "s"
    table.write_text("arrival_s,prompt_tokens,output_tokens\n0,many,5\n")
    with pytest.raises(DataError, match=r"r.csv: row 0: prompt_tokens: must be a number .got 'many'"):
        read_sent(table)
    table.write_text(json.dumps({"resourceSpans": []}))
    with pytest.raises(DataError, match="OpenTelemetry"):
        read_sent(table)
