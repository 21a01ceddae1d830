"""Models: dimensions from a config.json, parameters, bytes, and what is refused."""

from __future__ import annotations

import json

import pytest

from llmqsim.errors import ScenarioError
from llmqsim.hardware.hf_config import model_from_config
from llmqsim.hardware.model import model, model_names

QWEN = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "hidden_act": "silu",
    "use_sliding_window": False,
    "sliding_window": 131072,
}
NEMO = {
    "model_type": "mistral",
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "vocab_size": 131072,
    "max_position_embeddings": 131072,
    "hidden_act": "silu",
    "sliding_window": None,
}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("opt-13b", 12_853_473_280),
    ],
)
def test_parameter_counts_are_the_published_ones(name, parameters):
    assert model(name).parameters == parameters


def test_parameter_counts_of_other_families():
    assert model_from_config(QWEN).parameters == 7_615_616_512
    assert model_from_config(NEMO).parameters == 12_247_782_400


def test_kv_bytes_follow_the_kv_heads():
    qwen = model_from_config(QWEN)
    assert qwen.kv_bytes_per_token() == 57_344
    assert qwen.kv_bytes_per_token(1) == 28_672
    assert qwen.kv_dtype_bytes("auto") == 2 and qwen.kv_dtype_bytes("fp8") == 1
    assert model("llama-2-7b").kv_bytes_per_token() == 524_288


def test_a_missing_kv_head_count_means_one_per_head():
    assert model("opt-13b").kv_heads == 40


def test_an_explicit_head_size_wins():
    nemo = model_from_config(NEMO)
    assert nemo.query_width == 4096 != nemo.hidden
    assert model_from_config(QWEN).head_dim == 128


def test_tied_embeddings_are_stored_once():
    once = model_from_config({**QWEN, "tie_word_embeddings": True})
    assert model_from_config(QWEN).parameters - once.parameters == 152064 * 3584


def test_weights_under_tensor_parallelism():
    big = model("llama-2-70b")
    norms = 2 * big.norm_parameters()
    assert big.weight_bytes(4) == pytest.approx((2 * big.parameters - norms) / 4 + norms, abs=2)
    assert big.kv_heads_per_gpu(16) == 1
    # 16 GPUs hold 16 copies of 8 KV heads
    assert 16 * big.weight_bytes(16) > 2 * big.parameters + 15 * norms


def test_tensor_parallel_faults():
    assert model("llama-2-70b").tensor_parallel_fault(8) is None
    assert "28 attention heads" in model_from_config(QWEN).tensor_parallel_fault(8)


@pytest.mark.parametrize("name", model_names())
def test_every_dimension_has_a_source(name):
    sources = model(name).sources
    assert all(len(sources[field]) > 20 for field in ("hidden", "layers", "heads", "kv_heads", "intermediate", "vocab"))


def test_aliases_and_unknown_models():
    assert model("meta-llama/Llama-3.1-8B-Instruct") == model("LLAMA-3.1-8B")
    with pytest.raises(ScenarioError, match="did you mean 'llama-2-7b'"):
        model("lama-2-7b")


def test_a_file_is_as_good_as_a_mapping(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN))
    assert model_from_config(path).parameters == model_from_config(QWEN).parameters


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_local_experts": 8}, "num_local_experts: mixture of experts is not modelled"),
        ({"kv_lora_rank": 512}, "kv_lora_rank: multi-head latent attention"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: quantised weights"),
        ({"use_sliding_window": True, "sliding_window": 4096}, "sliding_window: windowed attention"),
        ({"hidden_size": "big"}, "hidden_size: must be a whole number"),
        ({"num_hidden_layers": True}, "num_hidden_layers: must be a whole number"),
        ({"num_key_value_heads": 5}, "num_key_value_heads: must divide"),
        ({"vocab_size": None}, "vocab_size: missing"),
        ({"torch_dtype": "int8"}, "torch_dtype: must be one of"),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises(ScenarioError, match=message):
        model_from_config({**QWEN, **change})


def test_all_faults_come_at_once():
    with pytest.raises(ScenarioError) as error:
        model_from_config({"hiden_size": 4096, "num_experts": 8})
    assert len(error.value.faults) == 7
    assert any("did you mean 'hiden_size'" in fault for fault in error.value.faults)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "not JSON"), (b"{", "not JSON"), (b"\xff\xfe\x00\x01", "not a text file"), (b"[1]", "must be a JSON object")],
)
def test_unreadable_files(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ScenarioError, match=message):
        model_from_config(path)


def test_missing_file_and_directory(tmp_path):
    with pytest.raises(ScenarioError, match="no such file"):
        model_from_config(tmp_path / "absent.json")
    with pytest.raises(ScenarioError, match="a directory"):
        model_from_config(tmp_path)
