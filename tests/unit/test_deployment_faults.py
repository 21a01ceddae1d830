"""What can't be deployed is refused with file, line, key and what would be right; what can round-trips."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmqsim.errors import ScenarioError
from llmqsim.hardware.hf_config import model_from_config
from llmqsim.hardware.model import Model
from llmqsim.report.explain import explain
from llmqsim.report.explain_page import explain_text
from llmqsim.scenario.build import build_servers
from llmqsim.scenario.load import from_mapping, load_text

BASE = """\
workload:
  requests: 10
  arrivals: {process: poisson, rate: 1 req/s}
  lengths: {prompt: 100, output: 10}
model: mixtral-8x7b
gpu: h100-sxm
tensor_parallel_size: 2
engine: {preset: vllm-0.19, max_num_seqs: 16}
"""


def fault(*sets: str, text: str = BASE) -> str:
    with pytest.raises(ScenarioError) as error:
        build_servers(load_text(text, "x.yaml", sets=sets))
    return "\n".join(error.value.faults)


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        (["engine.kv_offloading_size=10 B"], r"--set: engine.kv_offloading_size: holds no KV block \(got 10 bytes\)"),
        (
            ["engine.kv_offloading_size=4 GiB", "engine.enable_prefix_caching=false"],
            "engine.kv_offloading_size: keeps cached blocks, and engine.enable_prefix_caching is off",
        ),
        (["tensor_parallel_size=1"], r"--set: tensor_parallel_size: mixtral-8x7b does not fit on 1 x h100-sxm .*86.99 GiB"),
        (["engine.max_num_seqs=16", "model=yi-34b", "tensor_parallel_size=16"], "56 attention heads of yi-34b"),
        (["tensor_parallel_size=16", "engine.enable_expert_parallel=true"], "8 experts of mixtral-8x7b can't be spread"),
        (["pipeline_parallel_size=3"], "--set: pipeline_parallel_size: 32 layers of mixtral-8x7b"),
        (["model=llama-2-7b", "engine.enable_expert_parallel=true"], "llama-2-7b has no experts"),
        (["engine.watermark=0.1"], "engine.watermark: vllm-0.19 .* does not have it .got 0.1"),
        (["engine.swap_space=1 GiB"], "engine.swap_space: vllm-0.19 .* does not have it"),
        (["engine.preset=vllm-0.6", "engine.async_scheduling=true"], "engine.async_scheduling: vllm-0.6"),
        (["engine.preset=vllm-0.99"], "engine.preset: unknown preset .got 'vllm-0.99'"),
        (["interconnect=nvlnk4"], "interconnect: unknown preset .got 'nvlnk4'.; did you mean 'nvlink4'"),
        (["gpu={like: h100}", "gpu.like=h1000"], "gpu.like: unknown preset"),
        (["gpu={name: mine, memory: 80 GiB}"], "gpu.memory_bandwidth: missing"),
        (["cost={model: constant, step: 10 ms}", "pipeline_parallel_size=2"], "stages are not modelled with a constant"),
    ],
)
def test_what_can_not_be_deployed(sets, sentence):
    import re

    assert re.search(sentence, fault(*sets), re.S)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"interconnect": "pcie4"}, "interconnect: links GPUs, and the scenario names none"),
        ({"engine": {"quantization": "fp8"}}, "engine.quantization: needs a model"),
    ],
)
def test_what_means_nothing_alone(keys, sentence):
    workload = {"requests": 5, "arrivals": {"process": "burst"}, "lengths": {"prompt": 100, "output": 10}}
    made = from_mapping({"workload": workload, "cost": {"model": "constant", "step": "10 ms"}, **keys})
    with pytest.raises(ScenarioError, match=sentence):
        build_servers(made)


def test_faults_name_the_line():
    text = BASE.replace("max_num_seqs: 16", "watermark: 0.2").replace("size: 2", "size: 16")
    assert fault(text=text.replace("mixtral-8x7b", "yi-34b")).startswith("x.yaml:7: tensor_parallel_size: 56 attention")
    assert fault(text=text.replace("size: 16", "size: 2")).startswith("x.yaml:8: engine.watermark: vllm-0.19")


OWN = {
    "name": "mine",
    "memory": "96 GiB",
    "memory_bandwidth": "3 TB/s",
    "flops": {"bfloat16": "800 TFLOP/s"},
}


def scenario(**keys):
    workload = {"requests": 5, "arrivals": {"process": "burst"}, "lengths": {"prompt": 100, "output": 10}}
    return from_mapping({"workload": workload, "model": "mixtral-8x7b", "gpu": OWN, "tensor_parallel_size": 2, **keys})


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"gpu": {"like": "h100-sxm", "l2": "60 MiB"}},
        {"interconnect": {"latency": "5 us", "bandwidth": "25 GB/s"}},
        {"interconnect": "pcie5", "pipeline_parallel_size": 2, "engine": {"quantization": "awq"}},
    ],
)
def test_resolved_scenarios_round_trip_and_explain(keys):
    made = scenario(**keys)
    assert from_mapping(made.to_dict()).spec == made.spec
    told = explain(made)
    assert told["gpu"]["figures"]["interconnect"]["value"] and max(map(len, explain_text(told).splitlines())) <= 100


def test_values_of_a_gpu_of_ones_own_say_where_they_are_from():
    figures = explain(scenario())["gpu"]["figures"]
    assert figures["memory_bytes"]["source"] == "written in the scenario"
    assert figures["l2_bytes"]["origin"] == "its relative" and figures["l2_bytes"]["source"].startswith("as h100-sxm")


def test_quantization_changes_the_weights_alone():
    wide, narrow = (build_servers(scenario(engine=e)) for e in ({}, {"quantization": "gptq"}))
    assert narrow.model.parameters == wide.model.parameters
    assert narrow.deployment.capacity.blocks > 1.5 * wide.deployment.capacity.blocks
    assert narrow.deployment.capacity.bytes_per_token == wide.deployment.capacity.bytes_per_token


KEYS = (
    "hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim intermediate_size vocab_size "
    "max_position_embeddings num_local_experts num_experts_per_tok moe_intermediate_size n_shared_experts "
    "first_k_dense_replace decoder_sparse_step mlp_only_layers kv_lora_rank q_lora_rank qk_nope_head_dim "
    "qk_rope_head_dim v_head_dim sliding_window layer_types quantization_config torch_dtype text_config model_type"
).split()
VALUES = st.one_of(
    st.integers(-2, 300), st.sampled_from([None, True, 1.5, "x", "mixtral", "qwen2", "gpt_oss", "llama4_text", [], [1], {}]),
    st.sampled_from([{"quant_method": "fp8"}, {"quant_method": 3}, {"bits": "4", "quant_method": "awq"}, ["full_attention"]]),
)


WHOLE = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 128,
    "vocab_size": 500,
    "max_position_embeddings": 256,
}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([{}, WHOLE]), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6))
def test_any_config_is_read_or_refused_in_words(base, changes):
    try:
        made = model_from_config(base | changes)
    except ScenarioError as error:
        assert all(": " in sentence for sentence in error.faults)
    else:
        assert isinstance(made, Model) and made.parameters > 0 and made.weight_bytes(2, 1) > 0
        assert 0 <= made.windowed_layers <= made.layers and 0 <= made.dense_layers < made.layers
