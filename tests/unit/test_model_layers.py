"""Layers of every kind, from the spellings that files use, and what each keeps.

Right values: counts and sizes written out by hand; state sizes as servers' block sizes show them.
"""

from __future__ import annotations

import pytest

from llmqsim.errors import ScenarioError
from llmqsim.hardware.hf_config import model_from_config
from llmqsim.hardware.model import Model

PLAIN = {
    "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 128, "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 32768,
}  # fmt: skip
DELTA = {
    "model_type": "qwen3_next", "linear_num_key_heads": 4, "linear_key_head_dim": 64, "linear_num_value_heads": 8,
    "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
}  # fmt: skip
MAMBA = {
    "model_type": "nemotron_h", "mamba_num_heads": 16, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 2,
    "conv_kernel": 4, "mlp_hidden_act": "relu2",
}  # fmt: skip


def read(**more) -> Model:
    return model_from_config(PLAIN | more)


def kinds(made: Model) -> dict[str, int]:
    return {one.name: one.layers for one in made.mixers}


@pytest.mark.parametrize(
    "more",
    [
        {"full_attention_interval": 4},
        {"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2, "full_attention_interval": None},
    ],
)
def test_gated_delta_net_by_list_and_by_interval(more):
    made = model_from_config(PLAIN | DELTA | more)
    assert kinds(made) == {"attention": 2, "gated delta net": 6}
    state = made.mixers[1]
    channels = 2 * 4 * 64 + 8 * 64
    assert state.state_bytes(1) == 8 * 64 * 64 * 2 + channels * 3 * 2
    assert state.state_bytes(2, drafted=2) == (8 * 64 * 64 * 2 + channels * 5 * 2) // 2
    assert made.kv_bytes_per_token() == 2 * 2 * 4 * 128 * 2
    matrices = 1024 * (2 * 256 + 2 * 512) + 1024 * 16 + 512 * 1024
    assert state.parameters == matrices + channels * 4 + 16 + 64


def test_a_state_in_32_bits_where_the_file_says_so():
    one, two = (model_from_config(PLAIN | DELTA | {"mamba_ssm_dtype": word}).mixers[1] for word in ("bfloat16", "float32"))
    assert two.state_bytes(1) - one.state_bytes(1) == 8 * 64 * 64 * 2


@pytest.mark.parametrize(
    "more",
    [
        {"hybrid_override_pattern": "M-M*E-ME", "num_hidden_layers": 8},
        {
            "layers_block_type": ["mamba", "mlp", "mamba", "attention", "moe", "mlp", "mamba", "moe"],
            "num_hidden_layers": None,
        },
    ],
)
def test_blocks_that_mix_and_blocks_with_an_mlp_apart(more):
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
    made = model_from_config(PLAIN | MAMBA | experts | more)
    assert kinds(made) == {"attention": 1, "Mamba-2": 3}
    assert (made.layers, made.moe_layers, made.dense_mlp_layers, made.bare_layers) == (4, 2, 2, 0)
    assert not made.gated and made.mixers[1].conv_channels == 16 * 64 + 2 * 2 * 128


def test_heads_by_kind_of_layer():
    made = read(
        model_type="gemma4_text", layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 2, sliding_window=512,
        global_head_dim=256, num_global_key_value_heads=2, attention_k_eq_v=True,
    )  # fmt: skip
    full, windowed = made.mixers
    assert (full.kv_heads, full.key_dim, windowed.kv_heads, windowed.key_dim, windowed.window) == (2, 256, 4, 128, 512)
    assert made.kv_bytes_per_token() == 2 * 2 * (2 * 256 + 2 * 256) + 6 * 2 * (4 * 128 + 4 * 128)
    assert full.projections[0].outputs == 8 * 256 + 2 * 256  # the keys are the values


def test_layers_that_use_the_kv_of_others():
    last = read(num_kv_shared_layers=3)
    assert [(one.layers, one.shared) for one in last.mixers] == [(5, False), (3, True)]
    assert last.kv_bytes_per_token() == 5 * 2 * 4 * 128 * 2
    pairs = read(use_cla=True, cla_share_factor=2)
    assert pairs.kv_bytes_per_token() == 4 * 2 * 4 * 128 * 2


def test_letters_and_lists_of_windows():
    by_letters = read(model_type="exaone4", sliding_window_pattern="LLLG", sliding_window=1024)
    by_list = read(layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 2, sliding_window=1024)
    assert (by_letters.windowed_layers, by_letters.sliding_window) == (by_list.windowed_layers, 1024) == (6, 1024)
    mimo = read(model_type="mimo_v2_flash", hybrid_layer_pattern=[0, 1, 1, 1] * 2, sliding_window=128, v_head_dim=64,
                swa_num_key_value_heads=8, swa_v_head_dim=64, moe_layer_freq=[0] + [1] * 7, n_routed_experts=4,
                num_experts_per_tok=1, moe_intermediate_size=64)  # fmt: skip
    assert [(one.kv_heads, one.value_dim) for one in mimo.mixers] == [(4, 64), (8, 64)]
    assert (mimo.moe_layers, mimo.dense_layers) == (7, 1)


def test_index_keys_count_beside_latents():
    latent = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    made = read(model_type="deepseek_v32", **latent, index_topk=2048, index_n_heads=4, index_head_dim=128)
    assert made.kv_bytes_per_token() == 8 * (576 * 2 + 132) == made.kv_bytes_per_token_per_gpu(4)


def test_states_split_over_gpus_or_say_why_not():
    made = model_from_config(PLAIN | DELTA)
    assert made.tensor_parallel_fault(4) is None
    odd = model_from_config(PLAIN | DELTA | {"linear_num_value_heads": 6, "linear_num_key_heads": 3})
    assert "6 heads or channels (gated delta net)" in odd.tensor_parallel_fault(4)


@pytest.mark.parametrize(
    ("rule", "types"),
    [
        ({"quant_method": "fp8"}, ("fp8", "", "", "")),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
          "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*"]}, ("int4_g32", "bfloat16", "bfloat16", "")),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.0.self_attn.q_proj"]}, ("nvfp4", "", "", "")),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8, "type": "int"}}}}, ("int8", "", "", "")),
        ({"quant_method": "fp8", "modules_to_not_convert": ["linear_attn", "lm_head"]}, ("fp8", "", "", "bfloat16")),
    ],
)  # fmt: skip
def test_types_of_weights_and_what_is_left_in_16_bits(rule, types):
    made = read(quantization_config=rule)
    assert (made.weight_dtype, made.attention_dtype, made.linear_dtype, made.state_dtype) == types


def test_a_type_in_the_name_alone_is_said(tmp_path):
    import json

    path = tmp_path / "some-model-NVFP4.json"
    path.write_text(json.dumps(PLAIN))
    assert [one.key for one in model_from_config(path).unmodelled] == ["quantization_config"]
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    made = model_from_config(path)
    assert made.weight_dtype == "nvfp4" and not made.unmodelled


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: must be at most 100,000"),
        ({"num_kv_shared_layers": "three"}, "num_kv_shared_layers: must be a whole number from 0 on"),
        ({"moe_layer_freq": [1], "n_routed_experts": 4, "num_experts_per_tok": 1}, "moe_layer_freq: must name 8 layers"),
        ({"hybrid_override_pattern": "M*M"}, "hybrid_override_pattern: must name 8 layers .got 3."),
    ],
)
def test_bad_values_name_their_key(change, why):
    with pytest.raises(ScenarioError, match=why):
        model_from_config(PLAIN | change)


def test_keys_of_other_things_are_no_reason_to_refuse():
    """Quantization, norms, kernels to use, and finer points of an indexer that is known."""
    latent = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    sparse = {"model_type": "glm_moe_dsa", "index_topk": 2048, "index_n_heads": 4, "index_head_dim": 128}
    made = read(**latent, **sparse, index_topk_freq=4)
    assert {one.key for one in made.unmodelled} == {"index_topk", "index_topk_freq"}
    assert not read(compression_config=None, layernorm_full_attention_beta=1.0, use_mamba_kernels=True).unmodelled
