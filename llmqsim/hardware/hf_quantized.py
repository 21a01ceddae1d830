"""`quantization_config` of a Hugging Face `config.json`: how the weights are stored, and which of them are left in 16 bits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmqsim.hardware.hf_parts import short

Config = Mapping[str, Any]

MODELLED = (
    "fp8 (per tensor, per channel or 128 x 128 blocks), int8, 4-bit awq, 4- or 8-bit gptq, compressed-tensors, mxfp4, nvfp4"
)
LEFT_OUT = "quantization_config: modules left out"
BESIDE = "hf_quant_config.json"
"""where ModelOpt writes what other tools put into the config.json"""
MODULES = {
    "attention_dtype": re.compile(r"self_attn|attention"),
    "linear_dtype": re.compile(r"shared_expert(?!s?_gate)|mlp(?!.*expert).*proj"),
    "state_dtype": re.compile(r"linear_attn|mamba|mixer|ssm"),
}
"""fields of Model and the names of modules whose type they are"""
EXAMPLES: dict[str, tuple[str, ...]] = {
    "attention_dtype": ("self_attn.q_proj", "self_attn.o_proj", "self_attn.qkv_proj"),
    "linear_dtype": ("mlp.gate_proj", "mlp.down_proj", "mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj"),
    "state_dtype": ("linear_attn.in_proj_qkvz", "linear_attn.out_proj", "mamba.in_proj", "mixer.in_proj"),
}
"""the same fields and modules as checkpoints name them, which a regular expression of the file is tried on"""
EXPERTS = (
    "mlp.experts.0.gate_proj",
    "mlp.experts.0.down_proj",
    "block_sparse_moe.experts.0.w1",
    "feed_forward.experts.0.w1",
)
STEMS = ("model.layers.{}.", "model.language_model.layers.{}.")
REGEX = "re:"
"""before the regular expressions of compressed-tensors"""
SMALL_GROUP = 32
NAMED = re.compile(r"(?:^|[-_. ])(nvfp4|fp4|mxfp4|fp8|int4|int8|w4a16|w8a8|awq|gptq)(?:$|[-_. ])", re.IGNORECASE)
"""types in the names of checkpoints"""


def weight_types(config: Config, kind: str, values: dict, keys: dict, faults: list[str]) -> None:
    """Which of the modelled types the weights are stored in."""
    rule = config.get("quantization_config") or config.get("compression_config")
    if not rule:
        return
    dtype = _weight_dtype(rule) if isinstance(rule, Mapping) else None
    if dtype is None:
        faults.append(
            f"quantization_config: these quantised weights are not modelled (got {short(rule)}); modelled: {MODELLED}"
        )
        return
    values["weight_dtype"], keys["weight_dtype"] = dtype, "quantization_config"
    if dtype == "mxfp4":
        return
    for field, own in _by_group(rule, values).items():
        values[field], keys[field] = own, "quantization_config.config_groups"
    left = rule.get("ignore") or rule.get("modules_to_not_convert") or rule.get("exclude_modules") or ()
    for field in MODULES:
        if isinstance(left, (list, tuple)) and _left_out(left, field, values.get("layers", 0)):
            values[field], keys[field] = "bfloat16", LEFT_OUT


def _left_out(names: list | tuple, field: str, layers: int) -> bool:
    """Do the names leave these modules out in at least half of the layers?"""
    numbered: set[int] = set()
    pattern = MODULES[field]
    for name in map(str, names):
        if name.startswith(REGEX) and (matched := _layers_matched(name, EXAMPLES[field], layers)):
            numbered |= matched
            continue
        if not pattern.search(name):
            continue
        at = re.search(r"layers\.(\d+)\b", name)
        if at is None:
            return True
        numbered.add(int(at[1]))
    return 2 * len(numbered) >= max(1, layers)


def _layers_matched(name: str, examples: tuple[str, ...], layers: int) -> set[int]:
    """Layers in which a regular expression names one of these modules; none for one that can't be read."""
    try:
        pattern = re.compile(name.removeprefix(REGEX))
    except re.error:
        return set()
    names = [(i, stem.format(i) + one) for i in range(layers) for stem in STEMS for one in examples]
    return {i for i, full in names if pattern.match(full)}


def _by_group(rule: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, str]:
    """Types by field where the groups of compressed-tensors differ; a module's own pattern goes before its class."""
    groups = rule.get("config_groups")
    if str(rule.get("quant_method", "")).lower() != "compressed-tensors" or not isinstance(groups, Mapping):
        return {}
    typed = [(_targets(one), _group_type(one)) for one in groups.values() if isinstance(one, Mapping)]
    if len({dtype for _, dtype in typed}) < 2 or not all(dtype for _, dtype in typed):
        return {}
    whole = EXPERTS if values.get("experts") else EXAMPLES["linear_dtype"]
    wanted = {"weight_dtype": whole, **EXAMPLES}
    found = {}
    for field, examples in wanted.items():
        by_name = (
            dtype
            for targets, dtype in typed
            if any(one.startswith(REGEX) and _layers_matched(one, examples, 1) for one in targets)
        )
        by_class = (dtype for targets, dtype in typed if "Linear" in targets)
        found[field] = next(by_name, None) or next(by_class, "")
    found["weight_dtype"] = found["weight_dtype"] or str(typed[0][1])
    return {field: dtype for field, dtype in found.items() if dtype}


def _targets(group: Mapping[str, Any]) -> tuple[str, ...]:
    told = group.get("targets")
    return tuple(map(str, told)) if isinstance(told, (list, tuple)) else ()


def beside(path: Path) -> Mapping[str, Any] | None:
    """The quantization_config that ModelOpt keeps in a file of its own beside the config.json; None without one."""
    try:
        told = json.loads((path.parent / BESIDE).read_text(encoding="utf-8"))["quantization"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {"quant_method": "modelopt", **told} if isinstance(told, Mapping) else None


def named_type(name: str) -> str:
    """The type that a checkpoint's name states, in lower case; "" without one."""
    found = NAMED.search(name)
    return found[1].lower() if found else ""


def _weight_dtype(rule: Mapping[str, Any]) -> str | None:
    method = str(rule.get("quant_method", "")).lower()
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8_block" if rule.get("weight_block_size") else "fp8"
    if method in ("awq", "gptq", "gptq_marlin", "awq_marlin", "auto-round"):
        return _four_bits(rule.get("bits", rule.get("w_bit", 4)), rule.get("group_size"))
    if method == "mxfp4":
        return "mxfp4"
    if method in ("modelopt", "modelopt_fp4"):
        algorithm = str(rule.get("quant_algo") or (rule.get("quantization") or {}).get("quant_algo") or "").upper()
        return {
            "FP8": "fp8",
            "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
            "FP8_PB_WO": "fp8_block",
            "W4A16_AWQ": "int4",
            "NVFP4": "nvfp4",
            "NVFP4_AWQ": "nvfp4",
        }.get(algorithm)
    if method == "compressed-tensors":
        return _compressed(rule)
    return None


def _four_bits(bits: Any, group: Any) -> str | None:
    if bits == 8:
        return "int8"
    if bits != 4:
        return None
    return "int4_g32" if isinstance(group, int) and 0 < group <= SMALL_GROUP else "int4"


def _compressed(rule: Mapping[str, Any]) -> str | None:
    groups = rule.get("config_groups") or {}
    groups = groups.values() if isinstance(groups, Mapping) else ()
    types = [_group_type(one) for one in groups if isinstance(one, Mapping)]
    return types[0] if types and all(types) else None


def _group_type(group: Mapping[str, Any]) -> str | None:
    """The type of one group's weights; None where it is not modelled."""
    told = group.get("weights")
    weights: Config = told if isinstance(told, Mapping) else {}
    bits, kind, size = weights.get("num_bits"), weights.get("type", "int"), weights.get("group_size")
    if (bits, kind) == (8, "float"):
        return "fp8_block" if weights.get("strategy") == "block" else "fp8"
    if (bits, kind) == (4, "float"):
        return "mxfp4" if size == SMALL_GROUP else "nvfp4"
    if (bits, kind) == (8, "int"):
        return "int8"
    return _four_bits(bits, size) if kind == "int" else None
