"""GEMMs whose weights are not 16 bits wide: the fitted 16-bit form with other bytes and, in 8 bits, other arithmetic.

A physical form, not fitted: weights cost the bytes of their type; 8-bit weights meet 8-bit activations (quantised on
the way, which moves them once more) where the GPU has 8-bit arithmetic; 4-bit weights are unpacked and multiplied in 16
bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from llmqsim.cost.operators import Gemm
from llmqsim.hardware.weights import WEIGHT_BYTES


@dataclass(frozen=True)
class QuantizedGemm(Gemm):
    """Y[m, n] = X[m, k] W[k, n] with W in `weight_bytes` bytes an element, X quantised to 8 bits first or not."""

    weight_bytes: float = 2.0
    quantises_inputs: bool = False

    def work(self, m, n: int, k: int):
        """(FLOPs, bytes moved) of one call."""
        m = np.asarray(m, dtype=np.float64)
        inputs = 4.0 if self.quantises_inputs else 2.0  # 16 bits read, 8 written, 8 read
        return 2.0 * m * n * k, inputs * m * k + self.weight_bytes * n * k + 2.0 * m * n


def typed(gemm: Gemm, weight_dtype: str, eight_bit_speedup: float) -> Gemm:
    """The GEMM for weights of a type. eight_bit_speedup : the GPU's 8-bit over its 16-bit rate, 1 without 8-bit."""
    if weight_dtype == "bfloat16":
        return gemm
    eight_bit = weight_dtype.startswith(("fp8", "int8")) and eight_bit_speedup > 1
    roofline = gemm.roofline
    if eight_bit:
        roofline = replace(roofline, flops_per_s=roofline.flops_per_s * eight_bit_speedup)
    return QuantizedGemm(roofline, weight_bytes=WEIGHT_BYTES[weight_dtype], quantises_inputs=eight_bit)
