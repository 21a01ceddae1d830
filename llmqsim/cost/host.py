"""Host time inside a step: what the CPU adds between two steps on the GPU, as an engine preset measured it.

Time outside the step (tokenise, HTTP, detokenise) is HostCost.request_before_s and request_after_s and never enters a
step. Source of form and values: docs/engine_presets.md.
"""

from __future__ import annotations

import numpy as np

from llmqsim.hardware.gpu import Gpu
from llmqsim.options import EngineOptions, HostCost

FITTED_BANDWIDTH = 3.35e12
"""bytes/s of the GPU (H100 SXM) on which the sampler's time was fitted"""


def step_base_s(host: HostCost, tensor_parallel_size: int) -> float:
    """Seconds of every step, whatever it holds."""
    return host.per_step_s + (host.per_step_tp_s if tensor_parallel_size > 1 else 0.0)


def eager_floor_s(host: HostCost, layers: int) -> float:
    """Least seconds of the layers of a step whose kernels are launched one by one."""
    return host.eager_per_layer_s * layers


def sampled_rows_s(host: HostCost, options: EngineOptions, gpu: Gpu, vocab: int, rows: np.ndarray) -> np.ndarray:
    """Seconds that sampling and streaming add to the LM head, for an array of sampled rows; none without rows.

    Top-p and top-k sort the vocabulary of each row, which moves memory: the fitted time is the H100's and scales with
    bandwidth (docs/engine_presets.md: 1.6 times on A100).
    """
    seconds = host.per_streamed_token_s * rows
    if options.sampler == "top_p":
        slower = FITTED_BANDWIDTH / gpu.memory_bandwidth_bytes_per_s
        seconds = seconds + np.where(rows > 0, host.sampler_s + host.sampler_per_logit_s * slower * vocab * rows, 0.0)
    return seconds


def large_step_factor(host: HostCost, tokens: np.ndarray) -> np.ndarray:
    """Factor >= 1 on the token-dependent part for an array of tokens, growing with their logarithm between two sizes."""
    start, full = host.large_step_tokens
    ramp = np.log(np.maximum(tokens, 1) / start) / np.log(full / start)
    return 1.0 + host.large_step_share * np.clip(ramp, 0.0, 1.0)


def mixed_step_s(host: HostCost, layers: int) -> float:
    """Seconds more in a step that holds a prefill chunk (its attention runs outside the CUDA graph, layer by layer)."""
    return host.per_mixed_layer_s * layers
