"""From made-up files of measured runs to scenarios: what is read, what is refused, and that one bad case stops no other."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import yaml

from llmqsim.cli import main
from llmqsim.errors import DataError
from llmqsim.scenario.build import build_servers, build_workload
from llmqsim.scenario.load import from_mapping
from llmqsim.validate import command
from llmqsim.validate.cases import read_cases
from llmqsim.validate.errors_table import COLUMNS
from llmqsim.validate.figures import Figure, figures
from llmqsim.validate.groups import read_closed_loop, read_static_batches
from llmqsim.validate.runs import CannotRun, Run, plan
from tests.pages.markup import Page

CONFIG = {"engine": "vllm", "engine_version": "0.15.1", "model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "H100-SXM-80GB",
          "precision": "bf16", "n_gpus": 1, "tp": 1, "max_num_seqs": 64, "kv_blocks": 20000}  # fmt: skip
WORK = {
    "tool": "inference-perf",
    "arrival": {"process": "poisson_fixed_count", "stages": [{"rate_per_s": 2, "duration_s": 20, "n": 40}, {"rate_per_s": 4, "duration_s": 10, "n": 40}]},
    "prompt_tokens": {"exact": 300}, "output_tokens": {"exact": 20, "ignore_eos": True},
    "prefix": {"groups": 2, "distinct_prompts": 10, "shared_system_tokens": 64, "order": "round_robin_period_10"},
    "client_timeout_s": 300,
}  # fmt: skip
ENTRY = {"ttft_ms": {"mean": 20.0, "p99": 40.0}, "tpot_ms": {"mean": 7.0, "mean_as_published": 7.1}, "e2e_ms": {"mean": 160.0},
         "throughput": {"req_s": 2.6}, "n_ok": 80}  # fmt: skip


def case(name="one", **changed):
    made = {"id": name, "family": "inference-perf-vllm", "regime": "open_loop", "config": dict(CONFIG), "workload": dict(WORK),
            "measured": [{"stage": "all", **ENTRY}, {"stage": 0, **ENTRY}, {"stage": 1, "ttft_ms": {"mean": 21.0}}]}  # fmt: skip
    return {**made, **changed}


def write(tmp_path, **sections):
    path = tmp_path / "cases.yaml"
    path.write_text(yaml.safe_dump({"schema_version": 1, **sections}, sort_keys=False))
    return path


def first_run(made, **changed):
    (planned,) = plan(made)
    assert isinstance(planned, Run), planned.reason
    return planned


def test_figures_are_spelled_as_in_the_long_table():
    assert list(figures({"stage": "all", "concurrency": 4, "isl": 9, **ENTRY, "makespan_s": 3.5, "send_lag_s": {"mean": 1}})) == [
        Figure("ttft", "mean", 20.0), Figure("ttft", "p99", 40.0), Figure("tpot", "mean", 7.0),
        Figure("tpot", "mean_as_published", 7.1), Figure("e2e", "mean", 160.0), Figure("req_s", "value", 2.6),
        Figure("n_ok", "value", 80.0), Figure("makespan_s", "value", 3.5),
    ]  # fmt: skip


def test_a_staged_run_becomes_one_scenario(tmp_path):
    run = first_run(read_cases(write(tmp_path, cases=[case()]))[0])
    scenario = from_mapping(run.scenario)
    table = build_workload(scenario, build_servers(scenario), 0, 0).table
    assert run.stage_rows == (40, 40) and run.entries == (0, 1, 2)
    assert table.arrival_ns[39] == 20 * 10**9 and table.arrival_ns[79] == 30 * 10**9
    assert (table.prompt_tokens == 300).all() and table.prefixes is not None
    assert scenario.spec.engine.num_gpu_blocks_override == 20000 and scenario.spec.workload.clients.timeout == 300
    assert scenario.spec.engine.preset == "vllm-0.14"


def test_a_request_table_gives_arrivals_and_lengths_and_nothing_else(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"arrival_s": [5.0, 6.5, 9.0], "prompt_tokens": [10, 20, 30], "output_tokens": [4, 5, 6],
                          "tenant": ["a", "b", "a"], "ttft_ms": [9e9] * 3, "e2e_ms": [9e9] * 3})  # fmt: skip
    (tmp_path / "requests").mkdir()
    frame.to_parquet(tmp_path / "requests" / "one.parquet")
    made = read_cases(write(tmp_path, cases=[case(request_table="requests/one.parquet")]))[0]
    sent = first_run(made).sent
    assert sent.arrival_s.tolist() == [0.0, 1.5, 4.0] and sent.output_tokens.tolist() == [4, 5, 6]
    assert "9000000000" not in sent.csv()
    assert first_run(read_cases(write(tmp_path, cases=[case(request_table="requests/none.parquet")]))[0]).sent is None


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"config": {**CONFIG, "model": "acme/Frob-9B"}}, "dimensions of 'acme/Frob-9B' are not known"),
        ({"config": {**CONFIG, "gpu": "Gaudi3"}}, "gpu: unknown"),
        ({"config": {k: v for k, v in CONFIG.items() if k != "engine"}}, "engine: missing"),
        ({"config": {**CONFIG, "engine": "tgi"}}, "engine: unknown"),
        ({"config": None}, "config: missing"),
        ({"workload": "many"}, "workload: must be a"),
        ({"workload": {**WORK, "prompt_tokens": None}}, "workload.prompt_tokens: lengths missing"),
        ({"workload": {**WORK, "output_tokens": {}}}, "workload.output_tokens: lengths missing"),
        ({"workload": {**WORK, "arrival": {"process": "martian"}}}, "no arrivals that are known"),
        ({"workload": {**WORK, "arrival": None}}, "no arrivals that are known"),
        ({"config": {**CONFIG, "n_gpus": 3, "tp": 2}}, "config.n_gpus: 3 contradicts tp x pp x dp, 2"),
        ({"config": {**CONFIG, "kv_tokens": 1000}}, "config.kv_tokens: 1000 contradicts kv_blocks x block_size, 320000"),
        ({"workload": {**WORK, "arrival": {"stages": [{"rate_per_s": 5, "duration_s": 60, "n": 30}]}}}, r"stages[0].n: 30 contradicts"),
        ({"workload": {**WORK, "arrival": {"process": "poisson", "stages": [{"rate_per_s": "many"}]}}}, "can't be read"),
    ],
)
def test_a_case_that_cannot_run_says_why(tmp_path, changed, reason):
    (planned,) = plan(read_cases(write(tmp_path, cases=[case(**changed)]))[0])
    assert isinstance(planned, CannotRun) and reason in planned.reason and planned.entries == (0, 1, 2)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"ttft_ms": {"mean": 30.0}, "e2e_ms": {"mean": 2.1}}, "is above that of e2e_ms"),
        ({"ttft_ms": {"mean": 30.0}, "ttft_s": {"mean": 30.0}}, "contradict each other"),
        ({"ttft_ms": {"mean": 0.03}, "tpot_ms": {"mean": 0.008}, "e2e_ms": {"mean": 200.0}}, "in the same unit?"),
        ({"ttft_ms": {"mean": -3.0}}, "must not be negative"),
    ],
)
def test_figures_in_contradictory_units_are_named_and_the_other_entries_run(tmp_path, entry, reason):
    made = read_cases(write(tmp_path, cases=[case(measured=[{"stage": "all", **ENTRY}, {"stage": 1, **entry}])]))[0]
    wrong, run = plan(made)
    assert isinstance(wrong, CannotRun) and wrong.entries == (1,) and reason in wrong.reason
    assert isinstance(run, Run) and run.entries == (0,)


def test_latencies_that_were_not_measured_contradict_nothing(tmp_path):
    """Tools write 0 for TTFT and TPOT of answers that were not streamed; E2E is then what it is."""
    entry = {"ttft_ms": {"mean": 0.0}, "tpot_ms": {"mean": 0.0}, "e2e_ms": {"mean": 1500.0}}
    (run,) = plan(read_cases(write(tmp_path, cases=[case(measured=[{"stage": "all", **entry}])]))[0])
    assert isinstance(run, Run)


def test_a_bad_case_keeps_its_rows_and_the_others_run(tmp_path, capsys):
    wrong = case("bad", config={**CONFIG, "max_num_seqs": -3})
    path = write(tmp_path, cases=[case("worse", config=None), case("good"), wrong])
    kept = ["--json", str(tmp_path / "v.json"), "--figure", str(tmp_path / "v.svg")]
    assert main(["validate", str(path), "--out", str(tmp_path / "out"), "--workers", "1", *kept]) == 0
    rows = list(csv.DictReader((tmp_path / "out" / "errors.csv").open()))
    assert tuple(rows[0]) == COLUMNS and len(rows) == 3 * 15
    told = json.loads((tmp_path / "v.json").read_text())
    assert [(r["case"], r["metric"], r["stat"], r["reason"]) for r in told["figures"]] == [
        (r["case_id"], r["metric"], r["stat"], r["reason"]) for r in rows
    ]
    assert [r["predicted"] and f"{r['predicted']:.6g}" for r in told["figures"]] == [r["predicted"] or None for r in rows]
    assert main(["report", str(tmp_path / "v.json"), "-o", str(tmp_path / "v.html")]) == 0
    found = Page((tmp_path / "v.html").read_text(encoding="utf-8"))
    found.check_read_aloud()
    assert found.data["answer-0"] == told and "15 of 45 measured figures were predicted" in "".join(found.text)
    by_case = {name: [row for row in rows if row["case_id"] == name] for name in ("worse", "good", "bad")}
    assert all(row["predicted"] == "" and row["in_envelope"] == "false" for row in by_case["worse"] + by_case["bad"])
    assert all("engine.max_num_seqs" in row["reason"] for row in by_case["bad"])
    assert all(float(row["predicted"]) > 0 for row in by_case["good"])
    served = next(row for row in by_case["good"] if row["metric"] == "n_ok")
    assert (served["stage"], served["predicted"], served["ape_pct"]) == ("all", "80", "0")
    parts = {row["stage"]: float(row["predicted"]) for row in by_case["good"] if (row["metric"], row["stat"]) == ("ttft", "mean")}
    assert parts["all"] == pytest.approx((parts["0"] + parts["1"]) / 2, rel=1e-6)
    groups = list(csv.DictReader((tmp_path / "out" / "summary.csv").open()))
    whole = [g for g in groups if (g["gpu"], g["metric"], g["stat"]) == ("all", "ttft", "mean")]
    assert [(g["n"], g["covered"]) for g in whole] == [("3", "1")]
    assert "null model" in (tmp_path / "out" / "beside.csv").read_text()
    assert "3 cases" in capsys.readouterr().out


def test_groups_in_the_file_and_in_csv_are_the_same(tmp_path):
    group = {"group_id": "g1", "model": "Qwen3-32B", "gpu": "H100-SXM-80GB", "engine": "vllm", "engine_version": "0.12.0",
             "isl": 1000, "osl": 100, "tp": 2, "points": [[4, 90.0, 12.0], [16, 200.0, 15.0]]}  # fmt: skip
    inside = read_cases(write(tmp_path, closed_loop_groups=[group]))[0]
    table = tmp_path / "loop.csv"
    table.write_text(
        "model,gpu,engine,engine_version,isl,osl,tp,concurrency,ttft_ms,tpot_ms,group_id\n"
        "Qwen3-32B,H100-SXM-80GB,vllm,0.12.0,1000,100,2,4,90,12,g1\nQwen3-32B,H100-SXM-80GB,vllm,0.12.0,1000,100,2,16,200,15,g1\n"
    )
    outside = read_closed_loop(table)[0]
    assert inside.stages == outside.stages == ("concurrency:4", "concurrency:16")
    assert [r.scenario for r in plan(inside)] == [r.scenario for r in plan(outside)]
    assert plan(inside)[1].scenario["workload"]["arrivals"] == {"process": "closed_loop", "clients": 16}
    disaggregated = read_cases(write(tmp_path, closed_loop_groups=[{**group, "points": [[None, 1.0, 2.0], 7]}]))[0]
    assert "points[1]" in plan(disaggregated)[0].reason


def test_split_workers_become_pools(tmp_path):
    group = {"id": "pd", "model": "Qwen3-32B", "gpu": "H200-SXM-141GB", "engine": "sglang", "engine_version": "0.5.8", "mode": "disagg",
             "isl": 1000, "osl": 100, "prefill_tp_size": 4, "decode_tp_size": 8, "decode_num_workers": 2,
             "points": [[8, 100.0, 9.0], [None, 1.0, 1.0]]}  # fmt: skip
    run, unknown = sorted(plan(read_cases(write(tmp_path, closed_loop_groups=[group]))[0]), key=lambda item: item.entries)
    assert run.scenario["pools"] == {"prefill": {"replicas": 1, "tensor_parallel_size": 4}, "decode": {"replicas": 2, "tensor_parallel_size": 8}}
    assert run.gpus == 20 and run.case.regime == "closed_loop_disaggregated" and "prefill workers are not counted" in run.outside[0]
    assert from_mapping(run.scenario).spec.handoff.preset == "vllm_nixl"
    assert isinstance(unknown, CannotRun) and "concurrency: missing" in unknown.reason


def test_static_batches(tmp_path):
    table = tmp_path / "static.csv"
    table.write_text("model,gpu,tp,prompt_tokens,batch_size,output_tokens,prefill_ms,decode_ms_per_token\nllama2-70b,A100-SXM-80GB,4,512,8,128,1233,45.8\n")
    run = plan(read_static_batches(table)[0])[0]
    assert run.case.stages == ("prompt:512,batch:8,output:128",)
    engine = run.scenario["engine"]
    assert (engine["preset"], engine["batching"], engine["max_num_seqs"]) == ("static-2023", "static", 8)
    assert run.scenario["workload"]["requests"] == 8 and run.gpus == 4


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: [1", "cases.yaml:2: not YAML"),
        ("schema_version: 7\ncases: []", "cases.yaml:1: schema_version: known is 1"),
        ("foo: 1", "has none of the keys cases"),
        ("cases: {a: 1}", "cases.yaml:1: cases: must be a list"),
        ("cases:\n- 7", "cases.yaml:2: cases: each must be a mapping"),
    ],
)
def test_a_file_that_is_none_of_cases(tmp_path, text, fault):
    (tmp_path / "cases.yaml").write_text(text)
    with pytest.raises(DataError, match=fault):
        read_cases(tmp_path / "cases.yaml")


def test_nothing_to_validate(tmp_path, capsys):
    assert main(["validate", "--out", str(tmp_path)]) == 2
    assert main(["validate", str(write(tmp_path, cases=[case()])), "--case", "no*", "--out", str(tmp_path)]) == 2
    assert "nothing fits no*" in capsys.readouterr().err


def test_cut_answers_keep_their_mean():
    from llmqsim.validate.lengths import output_length

    shape, _ = output_length({}, {"osl": 1000, "output_tokens_total": 80_000, "n_ok": 100})
    draws = np.minimum(-shape["exponential"]["mean"] * np.log(np.random.default_rng(0).random(200_000)), shape["max"])
    assert draws.mean() == pytest.approx(800, rel=0.01)
    assert command.chosen([], []) == []
