"""`explain`: values, origins, KV account and step costs, as data and as a page."""

from __future__ import annotations

import json
import re

import pytest

from llmqsim import registry
from llmqsim.errors import ScenarioError
from llmqsim.cost.store import shipped
from llmqsim.hardware.data import read_preset
from llmqsim.report.explain import explain
from llmqsim.report.explain_page import explain_text
from llmqsim.report.explain_show import exact_seconds, shown
from llmqsim.report.presets import presets_text
from llmqsim.scenario.load import from_mapping, load
from llmqsim.units import parse_seconds
from llmqsim.workload.table_file import preset_names

QWEN = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
}
TRAFFIC = {
    "requests": 50,
    "arrivals": {"process": "poisson", "rate": 2.0},
    "lengths": {"prompt": {"lognormal": {"mean": 900, "cv": 1}, "max": 4000}, "output": 250},
}
CONSTANT = {"cost": {"model": "constant", "step": 0.05}}
LLAMA = {"model": "llama-3.1-8b", "gpu": "a100-sxm-80gb"}


def told(**keys):
    """`explain` of a scenario given by keys, the traffic being TRAFFIC unless said."""
    return explain(from_mapping({"workload": TRAFFIC, **keys}))


def flat(page: str) -> str:
    """The page without its line breaks and columns."""
    return " ".join(page.split())


@pytest.fixture
def qwen(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN))
    return {"model": {"config": str(path)}}


def test_s01_the_kv_formula_is_shown_with_its_numbers(qwen):
    found = told(**qwen, **CONSTANT, engine={"kv_cache_memory_bytes": 10 * 2**30, "max_model_len": 8192})
    kv, page = found["kv"], flat(explain_text(found))
    assert (kv["bytes_per_token"], kv["blocks"], kv["tokens"]) == (57_344, 11_702, 187_232)
    assert "2 x 28 layers x 4 KV heads x 128 head size x 2 bytes = 57,344 bytes" in page
    assert "10,737,418,240 // 917,504 bytes = 11,702 blocks" in page
    assert "11,702 blocks x 16 = 187,232 tokens" in page


def test_s02_the_guaranteed_concurrency_stands_beside_max_model_len():
    found = told(**CONSTANT, engine={"num_gpu_blocks_override": 2360, "max_model_len": 8192})
    kv, page = found["kv"], flat(explain_text(found))
    assert (kv["blocks"], kv["tokens"], kv["max_model_len"]) == (2360, 37_760, 8192)
    assert kv["guaranteed_concurrency"] == 37_760 / 8192
    assert "2,360 blocks x 16 = 37,760 tokens" in page
    assert "guaranteed concurrency 37,760 / 8,192 = 4.61 requests of max_model_len, 8,192 tokens (a floor" in page
    assert kv["bytes_per_token"] is None and "not known without a model" in page


def test_s02_an_8_bit_cache_of_the_same_bytes_doubles_the_blocks_and_leaves_the_weights(qwen):
    engine = {"kv_cache_memory_bytes": 10 * 2**30, "max_model_len": 8192}
    wide = told(**qwen, **CONSTANT, engine=engine)
    narrow = told(**qwen, **CONSTANT, engine={**engine, "kv_cache_dtype": "fp8"})
    assert narrow["kv"]["bytes_per_token"] * 2 == wide["kv"]["bytes_per_token"]
    assert narrow["kv"]["blocks"] == 10 * 2**30 // (917_504 // 2) == 23_405
    assert narrow["model"] == wide["model"]
    assert narrow["kv"]["items"] == wide["kv"]["items"]


@pytest.mark.parametrize("tp", [1, 2])
def test_the_items_of_the_memory_account_add_up_to_the_blocks(tp):
    kv = told(**LLAMA, tensor_parallel_size=tp)["kv"]
    *taken, pool = kv["items"]
    assert sum(item["bytes"] for item in taken) == pool["bytes"]
    assert kv["blocks"] == pool["bytes"] // kv["bytes_per_block_per_gpu"]
    division = f"{pool['bytes']:,} // {kv['bytes_per_block_per_gpu']:,} bytes"
    assert kv["blocks_formula"] == f"{division} = {kv['blocks']:,} blocks"
    assert f"x {8 // tp} KV heads x 128 head size x 2 bytes x 16 tokens" in kv["bytes_per_block_per_gpu_formula"]


FILE = """\
workload:
  requests: 20
  arrivals: {process: burst}
  lengths: {prompt: 100, output: 10}
model: llama-3.1-8b
gpu: a100-sxm-40gb
engine:
  max_num_seqs: 64
  async_scheduling: false
  enforce_eager: true
  host: {per_step: 1 ms}
variants:
  wide: {replicas: 3, engine.block_size: 32}
"""


def test_every_value_names_where_it_was_set(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(FILE)
    found = explain(load(path, variant="wide", sets=["engine.ordering=fcfs", "engine.gpu_memory_utilization=0.8"]))
    options, values = found["engine"], found["values"]

    def origin(entry):
        return entry["value"], entry["origin"].replace(f"{tmp_path}/", "")

    assert origin(values["name"]) == ("x", "default: the file's name")
    assert origin(values["workload.requests"]) == (20, "x.yaml:2")
    assert origin(values["replicas"]) == (3, "variant wide (x.yaml:13)")
    assert origin(values["run.seed"]) == (0, "default")
    assert origin(options["max_num_seqs"]) == (64, "x.yaml:8")
    assert origin(options["block_size"]) == (32, "variant wide (x.yaml:13)")
    assert origin(options["gpu_memory_utilization"]) == (0.8, "--set")
    assert origin(options["ordering"]) == ("fcfs", "--set")
    assert origin(options["in_flight"]) == (1, "x.yaml:9 (async_scheduling: false)")
    assert origin(options["cudagraph_capture_sizes"]) == ([], "x.yaml:10 (enforce_eager: true)")
    assert origin(options["enable_chunked_prefill"]) == (True, "preset vllm-0.19")
    assert "engine_presets" in options["enable_chunked_prefill"]["source"]
    assert origin(found["host"]["per_step"]) == (1e-3, "x.yaml:11")
    assert origin(found["host"]["per_running"]) == (1.7e-6, "preset vllm-0.19")
    assert origin(found["model"]["name"]) == ("llama-3.1-8b", "x.yaml:5")
    assert found["model"]["figures"]["layers"] == {
        "value": 32,
        "origin": "num_hidden_layers",
        "source": read_preset("models.yaml")["models"]["llama-3.1-8b"]["source"],
    }
    assert origin(found["gpu"]["name"]) == ("a100-sxm-40gb", "x.yaml:6")
    assert all(entry["source"] for entry in found["gpu"]["figures"].values())


def test_a_length_cut_to_the_pool_says_so():
    small = {"model": "llama-3.1-8b", "gpu": "a100-sxm-40gb", "engine": {"gpu_memory_utilization": 0.5}}
    limit = told(**small)["engine"]["max_model_len"]
    assert limit["value"] < 131_072
    assert limit["origin"] == "longest sequence of llama-3.1-8b, 131,072, cut to what the KV pool holds"
    uncut = told(**LLAMA)["engine"]["max_model_len"]
    assert (uncut["value"], uncut["origin"]) == (131_072, "longest sequence of llama-3.1-8b")


DEPLOYMENTS = {
    "llama-3.1-8b on A100": LLAMA,
    "llama-2-70b on 4 H100, 8-bit KV": {
        "model": "llama-2-70b",
        "gpu": "h100-sxm",
        "tensor_parallel_size": 4,
        "engine": {"kv_cache_dtype": "fp8", "preset": "vllm-0.8"},
    },
    "opt-13b on A100-40": {"model": "opt-13b", "gpu": "a100-sxm-40gb"},
    "few slots": {**LLAMA, "engine": {"max_num_seqs": 3, "max_num_batched_tokens": 100, "max_model_len": 600}},
}


@pytest.mark.parametrize("keys", DEPLOYMENTS.values(), ids=DEPLOYMENTS)
def test_the_operators_add_up_to_what_a_run_charges(keys):
    for step in told(**keys)["steps"]:
        operators = step["operators"]
        assert step["seconds"] == pytest.approx(sum(op["seconds"] for op in operators))
        assert step["seconds"] == pytest.approx(step["simulated_seconds"], rel=0.01)
        assert sum(op["share"] for op in operators) == pytest.approx(1.0)
        assert all(op["seconds"] >= 0 and op["calls"] >= 1 and op["formula"] for op in operators)


def test_the_products_of_a_prefill_step_cost_two_flop_a_weight_and_token():
    decode, prefill = told(**LLAMA)["steps"]
    weights = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    for step in (decode, prefill):
        products = [op for op in step["operators"] if op["formula"].startswith("[") and op["name"] != "LM head"]
        assert sum(op["flops"] for op in products) == 2 * weights * step["padded_tokens"]
    attention = next(op for op in decode["operators"] if op["name"] == "decode attention")
    assert attention["bytes"] == pytest.approx(32 * 1000 * 131_072, rel=0.01)


def test_a_step_is_cut_to_what_the_servers_take_and_padded_as_they_pad():
    decode, prefill = told(**DEPLOYMENTS["few slots"])["steps"]
    assert decode["shape"] == {"decode_requests": 3, "decode_context_tokens": 600, "prefill_tokens": 0}
    assert (decode["tokens"], decode["padded_tokens"]) == (3, 4)
    assert (prefill["tokens"], prefill["padded_tokens"]) == (100, 100)
    eager = told(**LLAMA, engine={"max_num_seqs": 3, "enforce_eager": True})["steps"][0]
    assert (eager["tokens"], eager["padded_tokens"]) == (3, 3)


def test_an_affine_step_is_explained_term_by_term():
    found = told(cost={"model": "affine", "base": 0.9, "per_prefill_token": "0.1 s / 1024", "per_kv_token": 1e-6})
    decode, prefill = found["steps"]
    assert (decode["seconds"], prefill["seconds"]) == pytest.approx((0.9 + 32 * 1000 * 1e-6, 1.1))
    assert prefill["simulated_seconds"] == 1.1
    assert [(op["name"], op["calls"]) for op in decode["operators"]] == [("base", 1), ("per_kv_token", 32_000)]
    assert prefill["operators"][1]["formula"] == "2,048 x 97.65625 us"
    assert (found["model"], found["gpu"], found["kv"]) == (None, None, None)
    assert found["cost"]["box"] == dict.fromkeys(found["cost"]["box"])
    page = explain_text(found)
    assert "not limited" in page and "97.65625 us" in page and "1,100 ms" in page


def test_a_constant_step_takes_its_time_whatever_it_holds():
    decode, prefill = told(**CONSTANT)["steps"]
    assert decode["simulated_seconds"] == prefill["simulated_seconds"] == decode["seconds"] == 0.05


def test_the_error_of_the_coefficients_and_the_measured_box_are_told():
    cost = told(**LLAMA)["cost"]
    data = read_preset("coefficients/a100-sxm-80gb.yaml")
    assert cost["box"] == data["box"]
    wanted = {"gpu": "A100-SXM-80GB", "backend": "vllm", "backend_version": "0.14.0", "dtype": "bfloat16"}
    gemm = shipped().find("gemm", {**wanted, "timing": "graph"}).facts
    assert cost["families"]["gemm"] == {"fitted": True, **gemm["held_out"], "rows": gemm["rows"]}
    assert cost["families"]["elementwise"]["fitted"] is False
    page = explain_text(told(**LLAMA))
    assert f"{gemm['held_out']['median_percent']:.1f} %" in page
    assert f"step tokens {data['box']['step tokens']:,}" in page


def test_the_workload_is_told_by_its_lengths_and_rate():
    many = {**TRAFFIC, "requests": 4000, "lengths": "azure-code"}
    load_ = explain(from_mapping({"workload": many, **LLAMA}))["workload"]
    drawn, exact = load_["lengths"]["prompt_tokens"], load_["table"]["lengths"]["prompt_tokens"]
    assert load_["offered_rate_per_s"] == 2.0
    assert load_["offered_tokens_per_s"]["prompt_tokens"] == 2.0 * drawn["mean"]
    assert drawn["mean"] == pytest.approx(exact["mean"], rel=0.05)
    assert exact["p50"] <= exact["p90"] <= exact["p95"] <= exact["p99"] <= exact["max"]
    assert load_["table"]["about"]["licence"] == "CC-BY 4.0"


def test_a_burst_has_no_rate_and_a_trace_no_table(tmp_path):
    burst = told(**CONSTANT, workload={"requests": 5, "arrivals": {"process": "burst"}, "lengths": TRAFFIC["lengths"]})
    assert burst["workload"]["offered_rate_per_s"] is None and "all at once" in explain_text(burst)
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0.5,100,10\n1.5,300,30\n")
    replay = told(**CONSTANT, workload={"trace": str(trace)})["workload"]
    assert replay["table"] is None and replay["requests"] == 2
    assert replay["lengths"]["prompt_tokens"]["mean"] == 200 and replay["offered_rate_per_s"] == 1.0


PRESET_LENGTHS = {**LLAMA, "workload": {**TRAFFIC, "lengths": "azure-code"}}
PAGES = {**DEPLOYMENTS, "constant": CONSTANT, "preset lengths": PRESET_LENGTHS}


@pytest.mark.parametrize("keys", PAGES.values(), ids=PAGES)
def test_the_page_fits_a_terminal_and_leaves_nothing_out(keys):
    found = told(**keys)
    page = explain_text(found)
    assert max(len(line) for line in page.split("\n")) <= 100
    assert not re.search(r"\b(None|nan|inf)\b", page)
    for key in (*found["values"], *found["engine"], *(f"host.{k}" for k in found["host"])):
        assert key in page, key
    marks = {int(n) for n in re.findall(r" \[(\d+)\]", page)}
    listed = [int(n) for n in re.findall(r"^  \[(\d+)\] \S", page, re.MULTILINE)]
    assert listed == list(range(1, len(listed) + 1)) and marks <= set(listed)
    assert explain_text(json.loads(json.dumps(found, allow_nan=False))) == page


def test_what_cannot_run_is_not_explained():
    with pytest.raises(ScenarioError, match="does not fit"):
        told(model="llama-2-70b", gpu="a100-sxm-80gb")


@pytest.mark.parametrize("seconds", [0.0, 0.5, 0.1 / 1024, 1.7e-6, 90.0, 3600.0, 0.0123456789])
def test_times_are_shown_so_that_they_can_be_written_back(seconds):
    assert parse_seconds(exact_seconds(seconds)) == pytest.approx(seconds, rel=1e-8)


def test_values_are_shown_in_their_units():
    assert shown("slo.ttft", 0.5) == "500 ms"
    assert shown("workload.arrivals.rate", 6.4567) == "6.4567 req/s"
    assert shown("kv_cache_memory_bytes", 10 * 2**30) == "10 GiB"
    assert shown("enable_chunked_prefill", True) == "true"
    assert shown("max_model_len", None) == "no limit"
    assert shown("cudagraph_capture_sizes", list(range(1, 9))) == "8 from 1 to 8"


def test_presets_lists_every_name_and_alias():
    page = presets_text()
    words = set(re.split(r"[\s;,]+", page))
    for file, kind in (("models.yaml", "models"), ("gpus.yaml", "gpus"), ("engines.yaml", "engines")):
        for name, entry in read_preset(file)[kind].items():
            assert {name, *entry.get("aliases", ())} <= words, name
    kinds = ("routing", "batching", "ordering", "preemption")
    assert {*preset_names(), *(name for kind in kinds for name in registry.names(kind))} <= words
    assert max(len(line) for line in page.split("\n")) <= 100
