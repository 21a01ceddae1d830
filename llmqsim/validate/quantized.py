"""Types of weights, as benchmark files state them, to the scenario's `engine.quantization`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqsim.hardware.model import model


def weight_types(config: Mapping[str, Any], network: str) -> str:
    """Everything that is said about the weights' type, in one lower-case text."""
    said = [config.get(key) for key in ("precision", "quantization", "gemm_quant_mode", "dtype")]
    said += [str(config.get(key, "")).rsplit("/", 1)[-1] for key in ("model", "model_path")]
    own = model(network).weight_dtype
    return " ".join(str(word).lower() for word in [*said, own] if word)


def quantization(config: Mapping[str, Any], network: str) -> tuple[str | None, str | None]:
    """The scenario's word for it, None for the model's own type; and a note where another type stands in."""
    own = model(network).weight_dtype
    text = weight_types(config, network).removesuffix(f" {own}")
    if own != "bfloat16":
        if "fp4" in text and "fp4" not in own:
            return None, f"4-bit weights of {network} are taken as {own}"
        return None, None
    if "mxfp4" in text:
        return ("mxfp4", None) if model(network).experts else ("awq", "mxfp4 weights are taken as 4-bit integers")
    if "fp4" in text:
        return "awq", "4-bit float weights are taken as 4-bit integers"
    if any(word in text for word in ("awq", "gptq", "w4a16", "int4", "4bit", "4-bit")):
        return "awq", None
    if "block" in text:
        return "fp8_block", None
    if "fp8" in text or "w8a8-fp8" in text:
        return "fp8", None
    if "int8" in text or "w8a8" in text:
        return "fp8", "8-bit integer weights are taken as 8-bit floats"
    return None, None
