"""C02: a paged KV cache against one that reserves the longest answer."""

from __future__ import annotations

from llmqsim.claims.figure import Figure, Setting
from llmqsim.claims.measures import tokens_per_s

SEEDS = 10, 3
"""at full size, and reduced"""
PUBLISHED, PUBLISHED_RESERVED = 23.0, 8.0
"""over naive static, answers of up to 1,536 tokens: paged, and continuous with reserved memory"""
SYSTEMS = {"paged": None, "paged_v0": "V0's own batching"}
"""variant to what is not equal beside the memory"""
SAME = "the same kernels and host times (vLLM 0.6) in both; answers of up to 1,536 tokens, of which some 128 come on average"
SLOW = "the static baseline's kernels stated as 4 times as slow"
WHY_RESERVED = (
    "prompts alone take a fifth of the paged server's time, which no memory rule makes shorter; and the pool holds 7.04 "
    "reservations of 2,048 tokens, so that seven just fit: with a watermark of 1 % it would be six, and the ratio 2.3"
)
WHY_V0 = f"{WHY_RESERVED}. vLLM V0 also runs prompts in steps of their own, in which no answer goes on"


def measure(setting: Setting) -> list[Figure]:
    """Tokens per second of each system over reserved memory, and over naive static batching."""
    figures = []
    for name, different in SYSTEMS.items():
        same = SAME if different is None else f"{SAME}; {different}"
        reason = WHY_RESERVED if different is None else WHY_V0
        reserved, naive = (_ratios(setting, name, baseline) for baseline in ([], ["naive_static"]))
        figures.append(
            Figure.over_seeds(f"{name} over reserved", reserved, PUBLISHED / PUBLISHED_RESERVED, same, reason)
        )
        figures.append(Figure.over_seeds(f"{name} over naive static", naive, PUBLISHED, f"{same}; {SLOW}"))
    return figures


def _ratios(setting: Setting, system: str, baseline: list[str]) -> tuple[float, ...]:
    """One a seed. baseline : variants."""
    paged, other = setting.load("c02", system), setting.load("c02", baseline)
    return tuple(tokens_per_s(paged, seed) / tokens_per_s(other, seed) for seed in setting.seeds(setting.size(*SEEDS)))
