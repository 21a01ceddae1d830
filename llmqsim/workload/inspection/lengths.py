"""Lengths: quantiles, tails, pile-ups, and answers given the prompt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.workload.fit_report import rank_correlation

LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
PILE = 0.01
"""share of the rows that have one and the same length, from which it is called a pile-up"""
MOST_PILES = 5
TAIL = 0.01
"""of the rows, the longest ones, which the tail index is read off"""
FEWEST_IN_TAIL = 50
BANDS = 10
"""ranges of prompts of equal numbers of rows"""


@dataclass(frozen=True)
class Lengths:
    """Of one column, tokens. Quantiles are values that occur (inverted CDF)."""

    mean: float
    cv: float
    p50: int
    p90: int
    p95: int
    p99: int
    p999: int
    max: int
    tokens_beyond_p99: float
    """share of all tokens that are in requests longer than P99"""
    tail_index: float | None
    """Hill's estimate on the longest 1 %; 2 or less: no finite variance. None: fewer than 5,000 rows"""
    piles: tuple[tuple[int, float], ...]
    """lengths that at least 1 % of all rows have, with that share, the heaviest first: caps and templates"""


@dataclass(frozen=True)
class Band:
    """Answers of the prompts from low to high."""

    prompt_low: int
    prompt_high: int
    rows: int
    output_mean: float
    output_p50: int
    output_p95: int


def quantile(values: np.ndarray, level: float) -> int:
    """The smallest value that at least this share of the values does not exceed."""
    return int(np.quantile(values, level, method="inverted_cdf"))


def of_lengths(values: np.ndarray) -> Lengths:
    """int64[n] tokens, n >= 1."""
    levels = {name: quantile(values, level) for name, level in LEVELS.items()}
    tokens, counts = np.unique(values, return_counts=True)
    heavy = np.argsort(-counts, kind="stable")[:MOST_PILES]
    piles = tuple((int(tokens[i]), float(counts[i]) / len(values)) for i in heavy if counts[i] >= max(2.0, PILE * len(values)))
    return Lengths(
        mean=float(values.mean()),
        cv=float(values.std() / values.mean()),
        **levels,
        max=int(values.max()),
        tokens_beyond_p99=float(values[values > levels["p99"]].sum() / values.sum()),
        tail_index=tail_index(values),
        piles=piles,
    )


def tail_index(values: np.ndarray) -> float | None:
    """Hill (1975): k over the sum of log(x / x_k) of the k largest; None where too few are left, or all are equal."""
    k = int(len(values) * TAIL)
    if k < FEWEST_IN_TAIL:
        return None
    top = np.sort(values)[-k - 1 :].astype(float)
    total = float(np.log(top[1:] / top[0]).sum())
    return k / total if total > 0 else None


def bands(prompt: np.ndarray, output: np.ndarray) -> tuple[Band, ...]:
    """Answers by tenths of the prompts; prompts of one length stay together. int64[n] each."""
    edges = np.unique([quantile(prompt, (i + 1) / BANDS) for i in range(BANDS)])
    which = np.searchsorted(edges, prompt, side="left")
    found = []
    for i in range(len(edges)):
        mine = which == i
        if mine.any():
            out = output[mine]
            low, high = int(prompt[mine].min()), int(prompt[mine].max())
            found.append(Band(low, high, int(mine.sum()), float(out.mean()), quantile(out, 0.5), quantile(out, 0.95)))
    return tuple(found)


def dependence(prompt: np.ndarray, output: np.ndarray) -> float:
    """Spearman's rank correlation."""
    return rank_correlation(prompt, output)
