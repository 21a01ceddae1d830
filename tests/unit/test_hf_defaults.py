"""Configurations that leave to their class, or list by layer, what others state; published ones, written from memory.

Right values: parameter counts on the models' pages (from memory), and counts of layers by hand.
"""

from __future__ import annotations

import pytest

from llmqsim.errors import ScenarioError
from llmqsim.hardware.hf_config import model_from_config
from tests.unit.test_model_layers import PLAIN, kinds

SIGLIP = {
    "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model",
    "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14,
}  # fmt: skip
GEMMA_3_4B = {
    "model_type": "gemma3", "mm_tokens_per_image": 256, "vision_config": SIGLIP,
    "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024,
    },
}  # fmt: skip
JAMBA = {
    "model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 65536, "max_position_embeddings": 262144, "attn_layer_offset": 4,
    "attn_layer_period": 8, "expert_layer_offset": 1, "expert_layer_period": 2, "num_experts": 16, "num_experts_per_tok": 2,
    "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_dt_rank": 256, "mamba_expand": 2, "tie_word_embeddings": False,
}  # fmt: skip
HUNYUAN = {
    "model_type": "hunyuan_v1_moe", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "head_dim": 128,
    "num_key_value_heads": 8, "intermediate_size": 3072, "vocab_size": 128167, "max_position_embeddings": 32768,
    "num_experts": 64, "moe_topk": [8] * 32, "moe_intermediate_size": [3072] * 32, "num_shared_expert": [1] * 32,
    "tie_word_embeddings": True,
}  # fmt: skip
LFM2 = {
    "model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 12288, "vocab_size": 65536, "max_position_embeddings": 128000, "block_auto_adjust_ff_dim": True,
    "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "conv_L_cache": 3, "conv_dim": 2048,
    "full_attn_idxs": [2, 5, 8, 10, 12, 14],
}  # fmt: skip
SMALL_STARCODER = {
    "model_type": "starcoder2", "hidden_size": 3072, "num_hidden_layers": 30, "num_attention_heads": 24,
    "num_key_value_heads": 2, "intermediate_size": 12288, "vocab_size": 49152, "max_position_embeddings": 16384,
    "hidden_act": "gelu_pytorch_tanh", "use_bias": True,
}  # fmt: skip
GEMMA_2B = {
    "model_type": "gemma", "hidden_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1,
    "head_dim": 256, "intermediate_size": 16384, "vocab_size": 256000, "max_position_embeddings": 8192, "hidden_act": "gelu",
}  # fmt: skip
GLM_4_5V = {
    "model_type": "glm4v_moe",
    "text_config": {
        "model_type": "glm4v_moe_text", "hidden_size": 4096, "num_hidden_layers": 46, "num_attention_heads": 96,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 10944, "vocab_size": 151552, "attention_bias": True,
        "max_position_embeddings": 65536, "n_routed_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1,
        "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "tie_word_embeddings": False,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (GEMMA_3_4B, 4.3),
        (JAMBA, 51.6),
        (HUNYUAN, 80.4),
        (LFM2, 1.17),
        (SMALL_STARCODER, 3.03),
        (GEMMA_2B, 2.51),
        (GLM_4_5V, 106.9),
    ],
)
def test_parameters_are_the_published_ones(config, billions):
    assert model_from_config(config).parameters / 1e9 == pytest.approx(billions, rel=0.005)


@pytest.mark.parametrize(
    ("family", "full"),
    [("gemma3_text", 1), ("cohere2", 2), ("exaone4", 2), ("olmo3", 2), ("gpt_oss", 4), ("mistral", 0)],
)
def test_the_rhythm_of_windows_that_stands_nowhere(family, full):
    made = model_from_config(PLAIN | {"model_type": family, "sliding_window": 1024})
    assert made.windowed_layers == 8 - full
    own = model_from_config(PLAIN | {"model_type": family, "sliding_window": 1024, "_sliding_window_pattern": 8})
    assert own.windowed_layers == 7


def test_a_rhythm_goes_with_heads_of_their_own():
    made = model_from_config(
        PLAIN | {"sliding_window": 1024, "sliding_window_pattern": 4, "swa_num_key_value_heads": 8}
    )
    assert kinds(made) == {"attention": 2, "windowed attention": 6}
    assert made.kv_bytes_per_token() == 2 * 2 * 4 * 128 * 2 + 6 * 2 * 8 * 128 * 2


def test_convolutions_by_the_numbers_of_the_others():
    assert kinds(model_from_config(LFM2)) == {"attention": 6, "short convolution": 10}


def test_what_was_taken_from_the_class_is_said():
    told = {one.key: one.effect for one in model_from_config(GEMMA_3_4B).unmodelled}
    assert "vocab_size 262,208" in told["text_config"] and "num_key_value_heads 4" in told["text_config"]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34}, "vocab_size: missing"),
        (
            PLAIN | {"intermediate_size": [4096] * 4 + [8192] * 4},
            "layers of several sizes are not modelled .got 4,096, 8,192",
        ),
        (PLAIN | {"num_key_value_heads_per_layer": [4] * 8}, "num_key_value_heads_per_layer: not understood"),
        (PLAIN | {"model_type": "nemotron-nas"}, "each layer has a shape of its own"),
        (
            {"model_type": "mllama", "text_config": PLAIN | {"model_type": "mllama_text_model"}},
            "keys and values of images",
        ),
    ],
)
def test_what_is_left_out_or_uneven_elsewhere_is_refused(config, why):
    with pytest.raises(ScenarioError, match=why):
        model_from_config(config)


STEP_3_5 = {
    "model_type": "step3p5", "hidden_size": 4096, "num_hidden_layers": 45, "num_attention_heads": 64, "head_dim": 128,
    "num_attention_groups": 8, "intermediate_size": 11264, "vocab_size": 128896, "max_position_embeddings": 262144,
    "moe_num_experts": 288, "moe_top_k": 8, "moe_intermediate_size": 1280, "share_expert_dim": 1280, "sliding_window": 512,
    "moe_layers_enum": ",".join(str(i) for i in range(3, 45)), "num_nextn_predict_layers": 3, "tie_word_embeddings": False,
    "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 11 + ["full_attention"] * 4,
    "attention_other_setting": {
        "attention_type": "sliding_attention", "num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128,
    },
}  # fmt: skip


def test_heads_of_windowed_layers_under_one_key_and_layers_that_only_draft():
    made = model_from_config(STEP_3_5)
    assert made.parameters / 1e9 == pytest.approx(196.8, rel=0.002)
    assert [(one.name, one.layers, one.heads) for one in made.mixers] == [
        ("attention", 12, 64),
        ("windowed attention", 33, 96),
    ]
    assert made.kv_bytes_per_token() == 2 * 45 * 8 * 128 * 2
    with pytest.raises(ScenarioError, match="layer_types: must name 45 layers .got 48"):
        model_from_config(STEP_3_5 | {"num_nextn_predict_layers": 1})


def test_towers_whose_width_and_mlp_have_names_of_their_own():
    """Qwen2-VL's tower: 0.675 billion with its merger; GLM-4.1V's 0.86 (published sums 8.29 and 10.29, from memory)."""
    qwen = {
        "depth": 32,
        "embed_dim": 1280,
        "hidden_size": 3584,
        "mlp_ratio": 4,
        "model_type": "qwen2_vl",
        "patch_size": 14,
    }
    glm = {
        "model_type": "glm4v", "depth": 24, "hidden_size": 1536, "intermediate_size": 13696, "out_hidden_size": 4096,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "image_size": 336,
    }  # fmt: skip
    merged = {"spatial_merge_size": 2, "temporal_patch_size": 2}
    seven = model_from_config(PLAIN | {"hidden_size": 3584, "model_type": "qwen2_vl", "vision_config": qwen | merged})
    assert seven.towers[0].parameters / 1e9 == pytest.approx(0.675, rel=0.01)
    nine = model_from_config(PLAIN | {"hidden_size": 4096, "model_type": "glm4v", "vision_config": glm})
    assert nine.towers[0].parameters / 1e9 == pytest.approx(0.89, rel=0.02)


def test_windows_with_heads_of_their_own_need_to_be_listed():
    more = {"model_type": "gemma4_text", "sliding_window": 1024, "global_head_dim": 256}
    with pytest.raises(ScenarioError, match="layer_types: missing from the config.json, whose windowed layers"):
        model_from_config(PLAIN | more)


@pytest.mark.parametrize(
    "more",
    [
        {"first_k_dense_replace": 2},
        {"is_moe_layer": [False] * 2 + [True] * 6},
        {"moe_layer_freq": [0] * 2 + [1] * 6},
        {"mlp_layer_types": ["dense"] * 2 + ["sparse"] * 6},
        {"moe_layers_enum": "2,3,4,5,6,7"},
    ],
)
def test_which_layers_have_experts_by_every_spelling(more):
    moe = {"model_type": "exaone_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
    assert model_from_config(PLAIN | moe | more).dense_layers == 2
