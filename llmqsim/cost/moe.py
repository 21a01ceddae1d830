"""Routed experts: the time of one layer's experts on one GPU from the tokens of a step. A physical form, not fitted.

Random routing touches E (1 - (1 - k/E)^n) of E experts, each of which is read once; the arithmetic is that of the n k
pairs of token and expert (docs/cost_model.md). Rates are those of the GPU's GEMMs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.cost.operators import Gemm

LAUNCH_S = 1e-5
"""routing, sorting, two grouped GEMMs, un-permutation (docs/cost_model.md)"""


def active_experts(tokens, experts: int, per_token: int) -> np.ndarray:
    """Experts that a step of `tokens` tokens is expected to touch under random routing."""
    tokens = np.asarray(tokens, dtype=np.float64)
    if per_token >= experts:
        return np.where(tokens > 0, float(experts), 0.0)
    return experts * -np.expm1(tokens * np.log1p(-per_token / experts))


@dataclass(frozen=True)
class Experts:
    """The routed experts of one layer, spread evenly over `gpus` GPUs.

    hidden, intermediate : of one whole expert. whole : each GPU holds experts / gpus of them (expert parallelism), else
    a slice of every one (tensor parallelism); both balance the arithmetic and the bytes. matrices : 3 gated, 2 not.
    """

    gemm: Gemm
    weight_bytes: float
    hidden: int
    intermediate: int
    experts: int
    per_token: int
    gpus: int
    whole: bool
    matrices: int = 3

    def work(self, tokens):
        """(FLOPs, bytes moved) on one GPU."""
        tokens = np.asarray(tokens, dtype=np.float64)
        matrix = float(self.matrices * self.hidden * self.intermediate) / self.gpus
        pairs = tokens * self.per_token
        weights = active_experts(tokens, self.experts, self.per_token) * matrix * self.weight_bytes
        # with whole experts a GPU meets its own share of the pairs, at full width
        rows = pairs / self.gpus if self.whole else pairs
        width = self.intermediate if self.whole else self.intermediate / self.gpus
        return 2.0 * matrix * pairs, weights + rows * 2.0 * (3.0 * self.hidden + (self.matrices + 1.0) * width)

    def seconds(self, tokens):
        """Seconds of one layer."""
        return LAUNCH_S + self.gemm.roofline.busy_s(*self.work(tokens))

    def formula(self, tokens: int) -> str:
        """The formula with its numbers filled in."""
        flops, moved = (float(part) for part in self.work(tokens))
        active = float(active_experts(tokens, self.experts, self.per_token))
        how = "whole experts" if self.whole else "slices"
        over = f" over {self.gpus} GPUs as {how}" if self.gpus > 1 else ""
        return (
            f"{active:.1f} of {self.experts} experts [{self.hidden} x {self.intermediate}] expected{over}, "
            f"{self.per_token} a token: {LAUNCH_S * 1e6:.0f} us + {self.gemm.roofline.busy_formula(flops, moved)}"
        )
