"""C03: what continuous batching and a paged cache do to latency at a given rate, percentile by percentile."""

from __future__ import annotations

import numpy as np

from llmqsim.claims.figure import Figure, Setting
from llmqsim.claims.measures import e2e_s, overloaded
from llmqsim.simulation import simulate

PERCENTILES = np.arange(10, 100)
RATES = {1: [], 4: ["at_4"]}
"""req/s to variants"""
SYSTEMS = {"static": None, "reserved": "static", "paged": "reserved", "paged_v0": "reserved"}
"""variant to the one that it is compared with; `reserved` is the scenario itself"""
SEEDS = 5
SAME = "the same kernels, host times and arrivals; E2E, the worst of the percentiles 10 to 99 over 5 runs"
V0 = (
    "not the memory but vLLM V0's batching: prompts run in steps of their own, during which no answer goes on; where memory "
    "is not short, that costs a few per cent"
)


def measure(setting: Setting) -> list[Figure]:
    """The highest ratio of any percentile: at most 1 means lower latency everywhere."""
    figures = []
    for rate, at in RATES.items():
        seen = {name: _seen(setting, at + ([] if name == "reserved" else [name])) for name in SYSTEMS}
        for name, against in SYSTEMS.items():
            if against is None:
                continue
            ratio = float((seen[name][0] / seen[against][0]).max())
            growing = [one for one in (name, against) if seen[one][1]]
            told = (
                f"{SAME}; overloaded, so that its latency grows with the run: {', '.join(growing)}" if growing else SAME
            )
            check = f"at {rate} req/s: {name} over {against}"
            figures.append(Figure(check, ratio, None, told, V0 if name == "paged_v0" else None))
    return figures


def _seen(setting: Setting, variants: list[str]) -> tuple[np.ndarray, bool]:
    """Percentiles of latency over all seeds, float64[percentiles], seconds; and was a run overloaded?"""
    scenario = setting.load("c03", variants)
    runs = [simulate(scenario, seed=seed) for seed in setting.seeds(SEEDS)]
    return np.percentile(np.concatenate([e2e_s(run) for run in runs]), PERCENTILES), any(map(overloaded, runs))
