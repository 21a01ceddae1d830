"""Step costs of experts, latent attention and 8-bit weights against closed loops that nothing here was fitted on.

A closed loop of C requests makes a token every decode step, and each finished request brings a prompt, once in
output / C steps: TPOT = decode step + C / output x prefill of the prompt. Points: ../shared/data/serving, aggregated
runs without attention data parallelism.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from llmqsim.cost import kernels, lower
from llmqsim.hardware.gpu import gpu
from llmqsim.hardware.model import model
from llmqsim.hardware.serving import engine_options

POINTS = Path(__file__).parents[3] / "shared" / "data" / "serving" / "closed_loop_dev.csv"
PRESETS = {"tensorrt-llm": "trtllm-1.0", "vllm": "vllm-0.15", "sglang": "sglang-0.5"}
GPUS = {"H100-SXM-80GB": "h100-sxm", "H200-SXM-141GB": "h200"}

pytestmark = pytest.mark.skipif(not POINTS.is_file(), reason="needs the measured closed loops in ../shared/data/serving")


@cache
def cost(name, card, engine, tp, whole_experts):
    network, shown = model(name), gpu(GPUS[card])
    network = network.quantized("fp8") if network.weight_dtype == "bfloat16" else network
    overrides = {"sampler": "plain", "enable_expert_parallel": True if whole_experts else None}
    options, host, _ = engine_options(PRESETS[engine], shown, network, tp, overrides)
    return lower.lower(network, shown, tp, options, host, 16_384)


def predicted_ms(point) -> float:
    """TPOT of one point, ms."""
    made = cost(point.model, point.gpu, point.engine, int(point.tp), point.moe_ep_size > 1)
    batch, prompt = int(point.concurrency), int(min(point.isl, 8192))
    context = int(point.isl + point.osl / 2)
    decode = kernels.step_ns(made.costs, made.params, batch, batch * context, 0, 0, 0.0, batch, batch)
    attention = kernels.prefill_attention_ns(made.costs, made.params, prompt, prompt)
    prefill = kernels.step_ns(made.costs, made.params, 0, 0, prompt, 1, attention, 1, 1)
    return (decode + batch / point.osl * prefill) / 1e6


@pytest.mark.parametrize(
    ("name", "engine", "at_least", "median_percent"),
    [
        ("DeepSeek-R1", "sglang", 15, 15),
        ("Qwen3-235B-A22B", "tensorrt-llm", 100, 20),
        ("Llama-3.1-70B", "vllm", 40, 12),
        ("Qwen3-32B", "tensorrt-llm", 150, 10),
    ],
)
def test_tpot_of_closed_loops(name, engine, at_least, median_percent):
    import pandas as pd

    points = pd.read_csv(POINTS)
    points = points[(points["mode"] == "agg") & (points.model == name) & (points.engine == engine)]
    points = points[~(points.attention_dp_size > 1)]
    errors = np.array([predicted_ms(point) / point.tpot_ms - 1 for point in points.itertuples()])
    assert len(errors) >= at_least
    assert np.median(np.abs(errors)) <= median_percent / 100
