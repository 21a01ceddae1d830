"""C01: continuous against static batching, with the same kernels and with the published baseline's slow ones."""

from __future__ import annotations

from llmqsim.claims.figure import Figure, Setting
from llmqsim.claims.measures import tokens_per_s

CUTS = {1536: None, 512: "cut_at_512", 128: "cut_at_128", 32: "cut_at_32"}
"""longest answer to variant"""
SEEDS = 10, 3
"""at full size, and reduced"""
SAME = "the same kernels and host times (those of vLLM 0.6) in both; blocks for the longest answer held by both"
PUBLISHED, PUBLISHED_KERNELS = 8.0, 4.0


def measure(setting: Setting) -> list[Figure]:
    """Tokens per second over those of a static batch."""
    figures = [
        Figure.over_seeds(
            f"continuous over static, answers of up to {cut:,} tokens",
            _ratios(setting, "static", variant),
            PUBLISHED / PUBLISHED_KERNELS if cut == 1536 else None,
            SAME,
        )
        for cut, variant in CUTS.items()
    ]
    slow = "as above, with the baseline's kernels stated as 4 times as slow (a quarter of the A100's bandwidth and arithmetic)"
    naive = _ratios(setting, "naive_static", None)
    check = "continuous over naive static, answers of up to 1,536 tokens"
    return [*figures, Figure.over_seeds(check, naive, PUBLISHED, slow)]


def _ratios(setting: Setting, baseline: str, cut: str | None) -> tuple[float, ...]:
    """One a seed."""
    cuts = [] if cut is None else [cut]
    continuous, static = setting.load("c01", cuts), setting.load("c01", [baseline, *cuts])
    return tuple(
        tokens_per_s(continuous, seed) / tokens_per_s(static, seed) for seed in setting.seeds(setting.size(*SEEDS))
    )
