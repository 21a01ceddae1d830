"""C09: samples finished within a fixed time, and tokens per second, by a learned ranking against first come first served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from llmqsim.claims.figure import Figure, Setting
from llmqsim.claims.loads import REQUESTS
from llmqsim.simulation import simulate

UNTIL = "run.until"
SEEDS = 3
PUBLISHED = 6.5
"""in the paper's abstract, without the size of the pool"""


def measure(setting: Setting) -> list[Figure]:
    """Ratios to first come first served on the same prompts, one a seed."""
    full, small = setting.size({}, {REQUESTS: 14_000, UNTIL: 60}), setting.size({}, {REQUESTS: 6000, UNTIL: 60})
    samples, tokens = _ratios(setting, ["ranked"], full)
    fewer, _ = _ratios(setting, ["small_pool", "ranked"], small)
    guarded, slower = _ratios(setting, ["few_slots", "guarded"], {})
    unguarded, _ = _ratios(setting, ["few_slots", "ranked"], {})
    pool = "tau 0.6; a pool twelve times what first come first served gets through in the time; the ratio grows with the pool"
    crowd = "32 slots, 1,500 prompts, 30 s, eight times what first come first served gets through"
    turns = f"{crowd}; everybody starves after 200 steps, so that all get turns of 10 steps, swapped in and out"
    return [
        Figure("samples finished, ranking over first come first served", samples, PUBLISHED, pool),
        Figure("tokens per second, ranking over first come first served", tokens, 1.0, pool),
        Figure(
            "samples finished, from a pool of five times", fewer, None, "the same with a pool less than half as large"
        ),
        Figure("samples finished, few slots", unguarded, None, crowd),
        Figure("samples finished, few slots and the guard against starving", guarded, None, turns),
        Figure("tokens per second, few slots and the guard against starving", slower, None, turns),
    ]


def _ratios(
    setting: Setting, variants: list[str], sets: Mapping[str, Any]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Samples and tokens under the last variant over those without it, one a seed."""
    ranked, fcfs = (
        np.array([_made(setting, chosen, sets, seed) for seed in setting.seeds(SEEDS)])
        for chosen in (variants, variants[:-1])
    )
    samples, tokens = (ranked / fcfs).T
    return tuple(samples), tuple(tokens)


def _made(setting: Setting, variants: list[str], sets: Mapping[str, Any], seed: int) -> tuple[int, int]:
    """Samples finished and tokens generated until the end of the run."""
    result = simulate(setting.load("c09", variants, sets), seed=seed)
    return result.summary()["requests"]["completed"], int(result.table.generated_tokens.sum())
