"""C03: what continuous batching and a paged cache do to latency at a given rate, percentile by percentile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from llmqsim.claims.figure import Figure, Setting
from llmqsim.claims.measures import e2e_s, jackknife, overloaded
from llmqsim.simulation import simulate

PERCENTILES = np.arange(10, 100)
RATES = {1: [], 4: ["at_4"]}
"""req/s to variants"""
SYSTEMS = {"static": None, "reserved": "static", "paged": "reserved", "paged_v0": "reserved"}
"""variant to the one that it is compared with; `reserved` is the scenario itself"""
SEEDS = 40, 5
"""at full size, and reduced"""
SAME = (
    "the same kernels, host times and arrivals; E2E, the worst of the percentiles 10 to 99 over all runs, its interval from "
    "leaving out each run in turn"
)
V0 = (
    "not the memory but vLLM V0's batching: prompts run in steps of their own, during which no answer goes on; where memory "
    "is not short, that costs a few per cent"
)


@dataclass(frozen=True)
class Seen:
    """One run. e2e_s : of each completed request, float64, seconds."""

    e2e_s: np.ndarray
    overloaded: bool


def measure(setting: Setting) -> list[Figure]:
    """The highest ratio of any percentile: at most 1 means lower latency everywhere."""
    figures = []
    for rate, at in RATES.items():
        seen = {name: _seen(setting, at + ([] if name == "reserved" else [name])) for name in SYSTEMS}
        for name, against in SYSTEMS.items():
            if against is None:
                continue
            ratio, interval = jackknife(partial(_worst, seen[name], seen[against]), len(seen[name]))
            growing = [one for one in (name, against) if any(run.overloaded for run in seen[one])]
            told = (
                f"{SAME}; overloaded, so that its latency grows with the run: {', '.join(growing)}" if growing else SAME
            )
            check = f"at {rate} req/s: {name} over {against}"
            figures.append(Figure(check, ratio, None, told, V0 if name == "paged_v0" else None, interval))
    return figures


def _worst(these: Sequence[Seen], those: Sequence[Seen], runs: Sequence[int]) -> float:
    """The highest ratio of a percentile, over some of the runs."""
    one, other = (
        np.percentile(np.concatenate([all_of[run].e2e_s for run in runs]), PERCENTILES) for all_of in (these, those)
    )
    return float((one / other).max())


def _seen(setting: Setting, variants: list[str]) -> list[Seen]:
    """One a seed."""
    scenario = setting.load("c03", variants)
    runs = (simulate(scenario, seed=seed) for seed in setting.seeds(setting.size(*SEEDS)))
    return [Seen(e2e_s(run), overloaded(run)) for run in runs]
