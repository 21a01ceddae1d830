"""Lengths of a model: a table of outputs given prompts, two independent laws, or mixtures with the heavy tail kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.workload.fit import MIN_ROWS, fit_lengths
from llmqsim.workload.inspection.demand import kv_time
from llmqsim.workload.inspection.lengths import quantile
from llmqsim.workload.length_table import LengthTable
from llmqsim.workload.lengths import Lengths

LENGTH_TOLERANCE, KV_TOLERANCE = 0.02, 0.06
"""of mean, P50, P95, P99 of each column, and of P99 of KV-time, in sample"""
TAILS = (0.02, 0.05)
"""shares of the rows, the heaviest, whose pairs are kept as they are where a table alone blurs them"""
FINER = (1, 4)
"""times the usual number of bins of a table"""
MOST_PAIRS = 400
EVENLY = 200_000
"""rows drawn evenly to judge a mix"""
GOLDEN = 0.6180339887498949


@dataclass(frozen=True, eq=False)
class Pair:
    """Prompt and output lengths that do not depend on one another."""

    prompt: Lengths
    output: Lengths

    def draw(self, u_prompt: np.ndarray, u_output: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Prompt and output tokens, int64[n] each."""
        return self.prompt.quantile(u_prompt), self.output.quantile(u_output)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Lengths that were seen together, each pair as likely as the others: int64[k] each."""

    prompt: np.ndarray
    output: np.ndarray

    def draw(self, u_prompt: np.ndarray, u_output: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Prompt and output tokens, int64[n] each; u_output is not used."""
        which = np.minimum((u_prompt * len(self.prompt)).astype(np.int64), len(self.prompt) - 1)
        return self.prompt[which], self.output[which]


@dataclass(frozen=True, eq=False)
class Mixture:
    """One of several mixes, with these shares (float64[k], adding up to 1)."""

    shares: np.ndarray
    parts: tuple[LengthTable | Pair | Pairs, ...]

    def draw(self, u_prompt: np.ndarray, u_output: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Prompt and output tokens, int64[n] each; u_prompt also says which part."""
        upper = np.cumsum(self.shares)
        which = np.minimum(np.searchsorted(upper, u_prompt, side="right"), len(self.parts) - 1)
        prompt, output = np.empty(len(u_prompt), dtype=np.int64), np.empty(len(u_prompt), dtype=np.int64)
        for number, part in enumerate(self.parts):
            mine = which == number
            if mine.any():
                low = upper[number] - self.shares[number]
                within = np.clip((u_prompt[mine] - low) / self.shares[number], 0.0, 1.0 - 2.0**-53)
                prompt[mine], output[mine] = part.draw(within, u_output[mine])
        return prompt, output


Mix = LengthTable | Pair | Pairs | Mixture


def size(mix: Mix) -> int:
    """Numbers that a mix is told by."""
    if isinstance(mix, Pair):
        return 4
    if isinstance(mix, Pairs):
        return 2 * len(mix.prompt)
    if isinstance(mix, Mixture):
        return len(mix.parts) - 1 + sum(size(part) for part in mix.parts)
    return sum(4 * len(histogram.low) for histogram in (mix.prompt, *mix.outputs))


def even_lengths(mix: Mix, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths as even as can be, int64[count] each: no random stream is needed."""
    u = (np.arange(count) + 0.5) / count
    return mix.draw(u, (np.arange(count) * GOLDEN + 0.5 / count) % 1.0)


def length_figures(prompt: np.ndarray, output: np.ndarray) -> dict[str, float]:
    """Mean and quantiles of both columns."""
    found: dict[str, float] = {}
    for name, column in (("prompt", prompt), ("output", output)):
        found[f"{name} mean"] = float(column.mean())
        found |= {f"{name} p{level}": float(quantile(column, level / 100)) for level in (50, 95, 99)}
    return found


def kv_p99(prompt: np.ndarray, output: np.ndarray) -> float:
    """P99 of KV-time, token·steps."""
    return float(np.quantile(kv_time(prompt, output), 0.99, method="inverted_cdf"))


def fit_mix(prompt: np.ndarray, output: np.ndarray) -> Mix:
    """The first that is within tolerance of: a table, one with the pairs of the heaviest 2 %, or 5 %, beside it, and the
    same with finer bins. int64[n], n >= MIN_ROWS. Where none is, the last.
    """
    mix: Mix | None = None
    for finer in FINER:
        for tail in (0.0, *TAILS):
            if tail and len(prompt) * (1 - tail) < MIN_ROWS:
                continue
            mix = _with_tail(prompt, output, tail, finer) if tail else fit_lengths(prompt, output, finer=finer)
            if _fits(mix, prompt, output):
                return mix
    assert mix is not None
    return mix


def _fits(mix: Mix, prompt: np.ndarray, output: np.ndarray) -> bool:
    drawn, seen = even_lengths(mix, EVENLY), length_figures(prompt, output)
    near = all(abs(value / seen[name] - 1) <= LENGTH_TOLERANCE for name, value in length_figures(*drawn).items())
    return near and abs(kv_p99(*drawn) / kv_p99(prompt, output) - 1) <= KV_TOLERANCE


def _with_tail(prompt: np.ndarray, output: np.ndarray, tail: float, finer: int) -> Mixture:
    """Heaviest rows as pairs (evenly by rank where there are very many), the others as a table.

    Heavy is who ranks high by KV-time, by prompt or by output.
    """
    ranks = [np.argsort(np.argsort(column, kind="stable")) for column in (kv_time(prompt, output), prompt, output)]
    order = np.argsort(np.maximum.reduce(ranks), kind="stable")
    count = max(1, round(tail * len(order)))
    body, heavy = order[:-count], order[-count:]
    kept = heavy
    if count > MOST_PAIRS:
        kept = heavy[((np.arange(MOST_PAIRS) + 0.5) * count / MOST_PAIRS).astype(np.int64)]
    shares = np.array([len(body), count]) / len(order)
    return Mixture(shares, (fit_lengths(prompt[body], output[body], finer=finer), Pairs(prompt[kept], output[kept])))
