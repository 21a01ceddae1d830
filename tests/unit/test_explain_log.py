"""`explain --log`: start-up lines as vLLM prints them, beside what is worked out.

Right values: the figures of real starts (../shared/data/startup_logs.csv: w01, h05, d03), put into the wording of their
releases; the arithmetic is checked in test_startup_logs.py.
"""

from __future__ import annotations

import json

import pytest

from llmqsim import load_text
from llmqsim.cli import main
from llmqsim.errors import DataError, NoRoom, ScenarioError
from llmqsim.report.explain_log import beside_log
from llmqsim.report.explain_log_page import beside_log_text
from llmqsim.report.startup_lines import parse, read_startup_log
from llmqsim.scenario.build import build_servers

TEXT = """\
workload: {requests: 4, arrivals: {process: constant, rate: 1 req/s}, lengths: {prompt: 800, output: 20}}
model: gemma-3-27b
gpu: mi300x
engine: {preset: vllm-0.11, max_model_len: 4096}
"""
GEMMA = """\
INFO vLLM API server version 0.11.0rc2.dev98+g1234
INFO non-default args: {'model_tag': 'google/gemma-3-27b-it', 'max_model_len': 4096, 'gpu_memory_utilization': 0.9}
INFO Chunked prefill is enabled with max_num_batched_tokens=8192.
INFO Initializing a V1 LLM engine (v0.11.0rc2.dev98) with config: model='google/gemma-3-27b-it', max_seq_len=4096, \
tensor_parallel_size=1, kv_cache_dtype=auto, enable_prefix_caching=True
INFO Model loading took 51.7891 GiB and 40.2 seconds
INFO Available KV cache memory: 109.86 GiB
WARNING Add 8 padding layers, may waste at most 15.38% KV cache memory
INFO GPU KV cache size: 205,696 tokens
INFO Maximum concurrency for 4,096 tokens per request: 50.05x
INFO Graph capturing finished in 61 secs, took 1.02 GiB
"""
QWEN = """\
(Worker_TP0) INFO Model loading took 14.10 GiB memory and 8.1 seconds
(Worker_TP1) INFO Model loading took 14.12 GiB memory and 8.2 seconds
INFO engine (v0.24.0) with config: model='Qwen/Qwen3.6-27B-FP8', speculative_config=SpeculativeConfig(method='mtp', \
num_spec_tokens=3), max_seq_len=262144, tensor_parallel_size=2, kv_cache_dtype=fp8, max_num_batched_tokens=8192
INFO Setting attention block size to 1600 tokens to ensure that attention page size is >= mamba page size.
(Worker_TP0) INFO Available KV cache memory: 5.34 GiB
(Worker_TP1) INFO Available KV cache memory: 5.33 GiB
INFO GPU KV cache size: 300,220 tokens
INFO Maximum concurrency for 262,144 tokens per request: 1.15x
"""


def lines(told: dict) -> dict[tuple[str, str | None], dict]:
    return {(one["name"], one["note"]): one for one in told["lines"]}


def test_a_windowed_model_line_by_line():
    told = beside_log(load_text(TEXT), parse(GEMMA))
    found = lines(told)
    assert found["weights on each GPU", None]["log"] == pytest.approx(51.7891 * 2**30)
    assert abs(found["concurrency x length", "from the log's KV memory"]["relative_difference"]) < 0.001
    assert found["GPU KV cache size", "pages // groups x block"]["ours"] == 205_696
    assert found["padding layers", None]["ours"] == 8
    assert told["settings"] == []
    assert told["keys"]["engine.memory.weights"] == "51.7891 GiB"
    page = beside_log_text(told)
    assert "205,696" in page and "engine.memory.other" in page


def test_the_keys_make_the_pool_agree():
    keys = beside_log(load_text(TEXT), parse(GEMMA))["keys"]
    memory = {key: value for key, value in keys.items() if key.startswith("engine.memory")}
    told = lines(beside_log(load_text(TEXT, sets=memory), parse(GEMMA)))
    assert told["KV memory on each GPU", None]["relative_difference"] == pytest.approx(0, abs=1e-4)
    assert abs(told["concurrency x length", "from the configuration alone"]["relative_difference"]) < 0.001


def test_settings_that_differ_are_named_with_their_line():
    sets = {"engine.preset": "vllm-0.19", "engine.max_model_len": 8192, "engine.kv_cache_dtype": "fp8"}
    told = beside_log(load_text(TEXT, sets=sets), parse(GEMMA))
    assert {one["key"]: (one["log"], one["line"]) for one in told["settings"]} == {
        "engine.preset": ("vllm-0.11", 1),
        "engine.max_model_len": (4096, 2),
        "engine.kv_cache_dtype": ("auto", 4),
    }


def test_ranks_states_and_drafts():
    """The smallest pool and the largest weights of two ranks; MTP adds a full layer and longer states."""
    log = parse(QWEN)
    assert log.get("kv") == pytest.approx(5.33 * 2**30) and log.get("weights") == pytest.approx(14.12 * 2**30)
    sets = {"model": "qwen3.5-27b", "gpu": "rtx-3090", "tensor_parallel_size": 2, "engine.preset": "vllm-0.24"}
    sets |= {"engine.kv_cache_dtype": "fp8", "engine.max_model_len": 262_144, "engine.quantization": "fp8"}
    sets |= {"engine.max_num_batched_tokens": 8192}
    told = beside_log(load_text(TEXT, sets=sets), log)
    found = lines(told)
    assert found["attention block", None]["ours"] == 1600
    assert found["GPU KV cache size", "concurrency x length"]["ours"] == 300_220
    assert any("3 tokens a step and 1 more layers" in note for note in told["notes"])


def test_a_plain_model_and_older_wordings():
    text = """\
INFO Loading model weights took 14.9888 GB
INFO total_gpu_memory (79.11GiB) x gpu_memory_utilization (0.90) = 71.20GiB
INFO model weights take 14.99GiB; non_torch_memory takes 0.15GiB; PyTorch activation peak memory takes 1.23GiB; \
the rest of the memory reserved for KV Cache is 54.83GiB.
INFO # cuda blocks: 28072, # CPU blocks: 2048
INFO Maximum concurrency for 131072 tokens per request: 3.43x
"""
    sets = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "engine.preset": "vllm-0.6", "engine.max_model_len": 131_072}
    told = beside_log(load_text(TEXT, sets=sets), parse(text))
    found = lines(told)
    assert found["beside weights and KV", "activation + non-torch memory"]["log"] == pytest.approx(1.38 * 2**30)
    assert abs(found["concurrency x length", "from the log's blocks"]["relative_difference"]) < 0.001
    assert told["keys"]["engine.memory.activation"] == "1.2300 GiB"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("hello", "no start-up log of a vLLM server: it has none of 'Model loading took'"),
        ("KV Cache is allocated. #tokens: 367404", "a log of SGLang; only the start-up lines of vLLM are read"),
        ("[TensorRT-LLM] engine built", "a log of TensorRT-LLM"),
        ("", "no start-up log"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path, content, why):
    path = tmp_path / "server.log"
    path.write_text(content)
    with pytest.raises(DataError, match=why):
        read_startup_log(path)


def test_the_command_and_its_json(tmp_path, capsys):
    log, scenario, out = tmp_path / "server.log", tmp_path / "s.yaml", tmp_path / "o.json"
    log.write_text(GEMMA)
    scenario.write_text(TEXT)
    assert main(["explain", str(scenario), "--log", str(log), "--json", str(out)]) == 0
    assert "padding layers" in capsys.readouterr().out
    assert json.loads(out.read_text())["engine_version"].startswith("0.11.0")
    assert main(["explain", str(scenario), "--log", str(tmp_path / "absent")]) != 0
    assert "no such file" in capsys.readouterr().err


def test_a_scenario_without_a_model_has_nothing_to_compare():
    text = (
        TEXT.replace("model: gemma-3-27b\n", "").replace("gpu: mi300x\n", "") + "cost: {model: constant, step: 1 ms}\n"
    )
    with pytest.raises(ScenarioError, match="model: missing; a log is compared with a model on a GPU"):
        beside_log(load_text(text), parse(GEMMA))


def test_a_server_that_does_not_start_is_compared_all_the_same():
    text = "INFO Model loading took 65.9651 GiB and 9 seconds\nINFO Available KV cache memory: -2.14 GiB\n"
    sets = {"model": "gpt-oss-120b", "gpu": "h100-sxm", "engine.max_model_len": 131_072}
    told = beside_log(load_text(TEXT, sets=sets), parse(text))
    kv = lines(told)["KV memory on each GPU", "negative: the server does not start"]
    assert kv["log"] == pytest.approx(-2.14 * 2**30)
    assert "engine.kv_cache_memory_bytes" not in told["keys"]


def test_measured_memory_takes_the_place_of_what_is_worked_out():
    sets = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "engine.preset": "vllm-0.19", "engine.memory.weights": "16 GiB"}
    sets |= {"engine.memory.activation": "2 GiB", "engine.memory.other": "1 GiB", "engine.memory.graphs": "0.5 GiB"}
    capacity = build_servers(load_text(TEXT, sets=sets)).deployment.capacity
    taken = {item.name: -item.bytes / 2**30 for item in capacity.items[1:-1]}
    assert taken == {"weights": 16, "activations": 2, "context and communication": 1, "CUDA graphs": 0.5}
    assert capacity.items[-1].bytes == capacity.items[0].bytes - int(19.5 * 2**30)


def test_a_model_that_does_not_fit_names_the_smallest_layout():
    sets = {"model": "deepseek-v3", "gpu": "h100-sxm", "tensor_parallel_size": 8, "engine.preset": "vllm-0.19"}
    with pytest.raises(NoRoom, match="the smallest that fits: tensor_parallel_size 16"):
        build_servers(load_text(TEXT, sets=sets))


def test_chunked_attention_says_that_releases_keep_the_manager_off():
    sets = {"model": "llama-4-scout-17b-16e", "gpu": "b200", "tensor_parallel_size": 8, "engine.preset": "vllm-0.19"}
    text = "INFO Available KV cache memory: 100.0 GiB\nINFO Maximum concurrency for 131,072 tokens per request: 9.00x\n"
    told = beside_log(load_text(TEXT, sets=sets | {"engine.max_model_len": 131_072}), parse(text))
    assert any("every layer counts in full, unless" in note for note in told["notes"])
