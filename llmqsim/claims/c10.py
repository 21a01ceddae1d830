"""C10: shortest first starves the longest; ageing, and an order that knows deadlines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.claims.figure import Figure, Setting
from llmqsim.claims.loads import RATE, saturated_per_s
from llmqsim.simulation import simulate

LOADS = (0.95, 1.1, 1.2)
AGED_AT = 1.1
SEEDS = 20, 1
"""at full size, and reduced"""
AGEINGS = {"aged": "promotion after 1,000 steps", "linear": "ageing by 50 tokens a second"}
NOT_BOTH = (
    "the mean gains what the longest wait: ageing that brings them within 1.5 times gives nine tenths of the gain back, and a "
    "promotion after 1,000 steps keeps some two fifths of it and lets them wait longer than that"
)


@dataclass(frozen=True)
class Seen:
    """One run. Waits: before the first step, seconds."""

    longest_p99_s: float
    mean_s: float
    attainment: float


def measure(setting: Setting) -> list[Figure]:
    """Ratios and differences on the same traffic, one a seed."""
    carried = saturated_per_s(setting, "c10")
    rests = f"Azure conversations, tau 0.6, 3,000 requests, {carried:.1f} req/s carried at most"
    figures, fcfs, sjf = [], [], []
    for load in LOADS:
        fcfs, sjf = (_seen(setting, variant, load * carried) for variant in (None, "sjf"))
        starved, mean = _ratios("longest_p99_s", sjf, fcfs), _ratios("mean_s", sjf, fcfs)
        check = f"P99 wait of the longest tenth, sjf over fcfs, load {load:g}"
        figures.append(Figure.over_seeds(check, starved, None, rests))
        figures.append(Figure.over_seeds(f"mean wait, sjf over fcfs, load {load:g}", mean, None, rests))
        if load == AGED_AT:
            figures += _mended(setting, load * carried, fcfs, sjf, rests)
    return figures


def _mended(setting: Setting, rate: float, fcfs: list[Seen], sjf: list[Seen], rests: str) -> list[Figure]:
    """Ageing, then deadlines, at one load."""
    figures = []
    for variant, name in AGEINGS.items():
        aged = _seen(setting, variant, rate)
        kept = tuple((a.mean_s - b.mean_s) / (a.mean_s - c.mean_s) for a, b, c in zip(fcfs, aged, sjf, strict=True))
        starved = _ratios("longest_p99_s", aged, fcfs)
        check = f"P99 wait of the longest tenth, {name}, over fcfs"
        figures.append(Figure.over_seeds(check, starved, None, rests, NOT_BOTH))
        figures.append(Figure.over_seeds(f"share of the mean's gain that is kept, {name}", kept, None, rests, NOT_BOTH))
    for variant in ("goodput_first", "least_slack"):
        points = tuple(
            100 * (its.attainment - max(a.attainment, b.attainment))
            for its, a, b in zip(_seen(setting, variant, rate), fcfs, sjf, strict=True)
        )
        check = f"points of attainment above the better of fcfs and sjf, {variant}"
        figures.append(Figure.over_seeds(check, points, None, rests))
    return figures


def _ratios(name: str, these: list[Seen], those: list[Seen]) -> tuple[float, ...]:
    return tuple(getattr(a, name) / getattr(b, name) for a, b in zip(these, those, strict=True))


def _seen(setting: Setting, variant: str | None, rate: float) -> list[Seen]:
    """One a seed. The longest tenth is by true output length."""
    scenario = setting.load("c10", variant, {RATE: rate})
    found = []
    for seed in setting.seeds(setting.size(*SEEDS)):
        result = simulate(scenario, seed=seed)
        table = result.table
        wait = (table.first_scheduled_ns - table.arrival_ns) / 1e9
        longest = np.argsort(table.output_tokens, kind="stable")[-(len(table) // 10) :]
        told = result.summary()["attainment"]
        found.append(Seen(float(np.percentile(wait[longest], 99)), float(wait.mean()), told))
    return found
