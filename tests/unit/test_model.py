"""Models: dimensions from a config.json, parameters, bytes, and what is refused."""

from __future__ import annotations

import json

import pytest

from llmqsim.errors import ScenarioError
from llmqsim.hardware.hf_config import model_from_config
from llmqsim.hardware.model import model, model_names
from llmqsim.hardware.weights import parts

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
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-32b", 32_763_876_352),
        ("qwen2.5-72b", 72_706_203_648),
        ("qwen3-14b", 14_768_307_200),
        ("qwen3-32b", 32_762_123_264),
        ("mistral-7b", 7_248_023_552),
        ("mistral-nemo", 12_247_782_400),
        ("yi-34b", 34_388_917_248),
        ("codellama-34b", 33_743_970_304),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen3-235b-a22b", 235_093_634_560),
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("opt-13b", 12_853_473_280),
    ],
)
def test_parameter_counts_are_the_published_ones(name, parameters):
    assert model(name).parameters == parameters


@pytest.mark.parametrize(
    ("name", "billions", "active_billions"),
    [
        ("mixtral-8x7b", 46.7, 12.9),
        ("mixtral-8x22b", 141, 39),
        ("qwen3-30b-a3b", 30.5, 3.3),
        ("qwen3-235b-a22b", 235, 22),
        ("deepseek-v3", 671, 37),
        ("gpt-oss-120b", 116.8, 5.1),
    ],
)
def test_active_parameters_are_the_published_ones(name, billions, active_billions):
    shown = model(name)
    assert shown.parameters / 1e9 == pytest.approx(billions, rel=0.005)
    embedding = shown.vocab * shown.hidden if name == "gpt-oss-120b" else 0  # its card leaves the embedding out
    assert (shown.active_parameters - embedding) / 1e9 == pytest.approx(active_billions, rel=0.025)


def test_weight_bytes_follow_the_type_of_each_part():
    dense = model("llama-3.1-70b")
    head = 2 * dense.vocab * dense.hidden
    fp8 = dense.quantized("fp8").weight_bytes()
    assert fp8 == pytest.approx((dense.weight_bytes() - 2 * head) / 2 + 2 * head, rel=1e-4)
    assert 0.5 < dense.quantized("int4").weight_bytes() / fp8 < 0.6
    # Model card: the checkpoint of gpt-oss-120b is 60.8 GiB; DeepSeek-V3's main model is 671 GB in fp8, from memory
    assert sum(part.bytes for part in parts(model("gpt-oss-120b"))) / 2**30 == pytest.approx(60.8, rel=0.005)
    assert model("deepseek-v3").weight_bytes() / 1e9 == pytest.approx(673, rel=0.005)


def test_latent_attention_caches_one_latent_that_is_not_split():
    deep = model("deepseek-v3")
    assert deep.kv_bytes_per_token() == 61 * 576 * 2 == deep.kv_bytes_per_token_per_gpu(8)
    assert model("llama-3.1-70b").kv_bytes_per_token_per_gpu(8) == 327_680 // 8


def test_pipeline_stages_share_the_layers_and_one_holds_the_embedding():
    big = model("llama-3.1-70b")
    layers = big.weight_bytes() - 2 * 2 * big.vocab * big.hidden
    assert big.weight_bytes(1, 4) == pytest.approx(layers / 4 + 2 * big.vocab * big.hidden, rel=1e-6)
    assert big.weight_bytes(2, 2) < big.weight_bytes(2, 1)


def test_windows_by_pattern():
    patterned = {**QWEN, "use_sliding_window": True, "sliding_window": 4096}
    assert model_from_config(QWEN).windowed_layers == 0
    assert model_from_config({**patterned, "max_window_layers": 21}).windowed_layers == 7
    assert (model("gpt-oss-120b").sliding_window, model("gpt-oss-120b").windowed_layers) == (128, 18)
    assert model("mistral-7b-v0.1").windowed_layers == 32 and model("mistral-7b").windowed_layers == 0
    gemma = {**NEMO, "model_type": "gemma3_text", "sliding_window": 1024, "sliding_window_pattern": 6}
    assert model_from_config(gemma).windowed_layers == 34


def test_a_nested_language_model_keeps_what_stands_outside():
    scout = model("llama-4-scout-fp8")
    assert (scout.weight_dtype, scout.attention_dtype) == ("fp8", "bfloat16")
    assert (scout.experts, scout.shared_intermediate, scout.windowed_layers) == (16, 8192, 36)


@pytest.mark.parametrize(
    ("rule", "dtype"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 4}, "int4"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4}}}}, "int4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
    ],
)
def test_quantisation_formats(rule, dtype):
    assert model_from_config({**QWEN, "quantization_config": rule}).weight_dtype == dtype


def test_experts_need_not_be_in_every_layer():
    moe = {**QWEN, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
    assert model_from_config({**moe, "decoder_sparse_step": 2}).dense_layers == 14
    assert model_from_config({**moe, "mlp_only_layers": [0, 1]}).dense_layers == 2
    assert model_from_config({**moe, "first_k_dense_replace": 3}).dense_layers == 3


def test_what_can_be_spread_over_which_gpus():
    mixtral = model("mixtral-8x7b")
    assert mixtral.parallel_faults(8, 4, True) == {}
    assert "56 layers" in model("mixtral-8x22b").parallel_faults(8, 3, False)["pipeline_parallel_size"]
    assert "8 experts" in mixtral.parallel_faults(16, 1, True)["engine.enable_expert_parallel"]
    assert "has no experts" in model("yi-34b").parallel_faults(1, 1, True)["engine.enable_expert_parallel"]
    assert "56 attention heads" in model("yi-34b").parallel_faults(16, 1, False)["tensor_parallel_size"]


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
    with pytest.raises(ScenarioError, match="model: is the name of a file .*'my/config.json'.; write {config: my/config.json}"):
        model("my/config.json")


def test_a_file_is_as_good_as_a_mapping(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN))
    assert model_from_config(path).parameters == model_from_config(QWEN).parameters


def test_a_model_is_called_as_its_file_or_as_the_folder_of_its_config_json(tmp_path):
    for name, called in (("config.json", tmp_path.name), ("my-model.json", "my-model")):
        (tmp_path / name).write_text(json.dumps({key: QWEN[key] for key in QWEN if key != "_name_or_path"}))
        assert model_from_config(tmp_path / name).name == called


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_local_experts": 8}, "num_experts_per_tok: must be from 1 to num_local_experts 8 .got nothing"),
        ({"num_local_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok: must be from 1"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim: missing from the config.json"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: these quantised weights are not modelled"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 3}}, "quantization_config: these"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder: encoders"),
        ({"layer_types": ["full_attention"], "use_sliding_window": True, "sliding_window": 64}, "layer_types: must name"),
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
