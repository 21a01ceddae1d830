"""Host time inside a step: what the CPU adds between two steps on the GPU, as an engine preset measured it.

Time outside the step (tokenise, HTTP, detokenise) is HostCost.request_before_s and request_after_s and never enters a
step. Source of form and values: ../shared/design/fidelity_study.md section 2.
"""

from __future__ import annotations

from llmqsim.options import HostCost


def step_base_s(host: HostCost, tensor_parallel_size: int) -> float:
    """Seconds of every step, whatever it holds."""
    return host.per_step_s + (host.per_step_tp_s if tensor_parallel_size > 1 else 0.0)


def mixed_step_s(host: HostCost, layers: int) -> float:
    """Seconds more in a step that holds a prefill chunk (its attention runs outside the CUDA graph, layer by layer)."""
    return host.per_mixed_layer_s * layers
