"""C08: a learned ranking against first come first served, chat traffic below and above saturation."""

from __future__ import annotations

import numpy as np

from llmqsim.claims.figure import Figure, Setting
from llmqsim.claims.loads import RATE, REQUESTS, saturated_per_s
from llmqsim.simulation import simulate

LOADS = {0.7: None, 1.2: 2.8, 1.5: 2.8}
"""multiple of the saturated rate to what the paper's abstract says, which names no load"""
SLOTS = "engine.max_num_seqs"


def measure(setting: Setting) -> list[Figure]:
    """Ratios of mean latency per output token, a seed each: same arrivals, same lengths."""
    slots, seconds = setting.size(256, 32), setting.size(180, 100)
    carried = saturated_per_s(setting, "c08", sets={SLOTS: slots})
    rests = (
        f"runs of {seconds} s of arrivals, {slots} slots, {carried:.1f} req/s at most; tau 0.6, swap, guard 200 and 10"
    )
    figures, worst = [], []
    for load, published in LOADS.items():
        setting.announce(f"C08: {load:g} times saturation")
        sets = {SLOTS: slots, RATE: load * carried, REQUESTS: round(seconds * load * carried)}
        seeds = setting.seeds(1)
        fcfs, learned, oracle = (
            np.array([_per_token_s(setting, variant, sets, seed) for seed in seeds])
            for variant in (None, "learned", "oracle")
        )
        check = f"first come first served over learned ranking, {load:g} times saturation"
        figures.append(Figure(check, tuple(fcfs / learned), published, rests))
        worst += list(learned / oracle)
    told = "mean latency per token under the ranking over that under true lengths, all loads and seeds"
    return [*figures, Figure("learned ranking over the oracle's", tuple(worst), None, told)]


def _per_token_s(setting: Setting, variant: str | None, sets: dict, seed: int) -> float:
    """Mean over requests of E2E / output tokens."""
    told = simulate(setting.load("c08", variant, sets), seed=seed, keep="summary").summary()
    return told["ntpot_s"]["mean"]
