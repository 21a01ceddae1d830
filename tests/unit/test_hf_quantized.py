"""Which type each part of a quantised checkpoint is read in. Right values: by hand from the rules in the file."""

from __future__ import annotations

from typing import Any

import pytest

from llmqsim.errors import ScenarioError
from llmqsim.hardware.hf_config import model_from_config
from tests.unit.test_model_layers import DELTA, PLAIN

EXPERTS = {
    "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 512,
}  # fmt: skip
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
NVFP4 = {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"}


def compressed(groups: dict[str, dict], ignore: tuple[str, ...] = ()) -> dict[str, Any]:
    made = {f"group_{i}": {"targets": [target], "weights": one} for i, (target, one) in enumerate(groups.items())}
    return {"quant_method": "compressed-tensors", "config_groups": made, "ignore": ["lm_head", *ignore]}


def types(rule: dict[str, Any], **more) -> tuple[str, str, str, str]:
    made = model_from_config(PLAIN | more | {"quantization_config": rule})
    return made.weight_dtype, made.attention_dtype, made.linear_dtype, made.state_dtype


@pytest.mark.parametrize(
    ("ignore", "left"),
    [
        ("re:.*attn.*", ("bfloat16", "", "bfloat16")),
        ("re:.*self_attn.*", ("bfloat16", "", "")),
        ("re:.*linear_attn.*", ("", "", "bfloat16")),
        ("re:.*mlp.shared_expert_gate$", ("", "", "")),
        ("re:.*shared_expert.*", ("", "bfloat16", "")),
        ("re:.*mlp.gate$", ("", "", "")),
        (r"re:model\.layers\.[0-2]\..*", ("", "", "")),
        (r"re:model\.layers\.[0-5]\..*", ("bfloat16", "bfloat16", "bfloat16")),
    ],
)
def test_modules_left_out_by_regular_expressions(ignore, left):
    rule = compressed({"Linear": FP8}, (ignore,))
    assert types(rule, **EXPERTS | DELTA) == ("fp8", *left)


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ({"re:.*self_attn.*": FP8, "re:.*mlp.*": NVFP4}, ("nvfp4", "fp8", "nvfp4", "")),
        ({"re:.*mlp.experts.*": NVFP4, "Linear": FP8}, ("nvfp4", "fp8", "fp8", "fp8")),
        ({"Linear": FP8, "re:.*mlp.experts.*": NVFP4}, ("nvfp4", "fp8", "fp8", "fp8")),
    ],
)
def test_groups_of_several_types(groups, told):
    assert types(compressed(groups), **EXPERTS) == told


@pytest.mark.parametrize(
    ("rule", "dtype"),
    [
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "int8"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "int4_g32"),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, "fp8_block"),
    ],
)
def test_one_type_for_all(rule, dtype):
    assert types(rule) == (dtype, "", "", "")


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"quant_method": "gptq", "bits": 3}, "not modelled"),
        (compressed({"re:.*attn.*": FP8, "re:.*mlp.*": {"num_bits": 6, "type": "float"}}), "not modelled"),
    ],
)
def test_what_is_not_modelled_is_refused(rule, why):
    with pytest.raises(ScenarioError, match=why):
        types(rule)


def test_mxfp4_without_experts_is_said():
    made = model_from_config(PLAIN | {"quantization_config": {"quant_method": "mxfp4"}})
    assert "weights count in 16 bits" in made.unmodelled[0].effect
