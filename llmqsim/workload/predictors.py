"""Predictors: how many output tokens is a request expected to make? Drawn before the clock starts, with a stated error.

A predictor sees the true lengths, because the error of a real one is what it imitates; policies see only what it says.
Random numbers are keyed by request, so that variants of a scenario are paired. What one learns from the traffic
(buckets, class means, regressions, quantiles) it learns from `trace`, where that is given, else from the run's own
requests, as if from a long history of the same traffic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llmqsim.registry import param, register

FEWEST_IN_CELL = 20
"""requests that a cell needs for a quantile of its own"""


@dataclass(frozen=True)
class Lengths:
    """Requests as a predictor learns from them: int64[n] each."""

    prompt: np.ndarray
    output: np.ndarray
    class_id: np.ndarray

    def __len__(self) -> int:
        return len(self.prompt)


@dataclass(frozen=True)
class Predictor(ABC):
    """Base of all. drift : by how much predictions have grown at the end of the traffic, relative (0.5: half too long,
    -0.5: half too short), evenly over its requests. online : a request that outlives its prediction is expected to make
    so many times as many tokens, again and again; 0: it stays at what was said.
    """

    drift: float = param(0.0, above=-1)
    online: float = param(0.0, least=0, most=1000)

    def fault(self) -> str | None:
        """What is wrong with the parameters."""
        if 0 < self.online <= 1:
            return f"online must be above 1, such as 2, or 0 for no correction (got {self.online:g})"
        return None

    @abstractmethod
    def predict(self, rows: Lengths, folder: Path, random: np.random.Generator) -> np.ndarray:
        """Expected output tokens, float64[n], before drift and rounding. folder : where file names start."""

    def drifted(self, tokens: np.ndarray) -> np.ndarray:
        """Whole tokens, at least 1, with the drift, int64[n]."""
        along = np.arange(len(tokens)) / max(1, len(tokens) - 1)
        return np.maximum(1, np.rint(tokens * (1 + self.drift * along))).astype(np.int64)


@register("predictor", "oracle")
@dataclass(frozen=True)
class Oracle(Predictor):
    """The true length."""

    def predict(self, rows, folder, random):
        """As it will be."""
        return rows.output.astype(np.float64)


@register("predictor", "lognormal")
@dataclass(frozen=True)
class Lognormal(Predictor):
    """The true length times bias x exp(sigma z), z standard normal: `bias` is the median error, sigma 0.5 about ± 50 %."""

    sigma: float = param(0.5, least=0, most=10)
    bias: float = param(1.0, above=0, most=1000)

    def predict(self, rows, folder, random):
        """One normal number a request."""
        return np.minimum(rows.output * self.bias * np.exp(self.sigma * random.standard_normal(len(rows))), 2.0**40)


@register("predictor", "ranker")
@dataclass(frozen=True)
class Ranker(Predictor):
    """A learned ranking with Kendall's `tau` against the true order: 1 right, 0 at random, -1 reversed.

    Scores are a Gaussian copula, whose correlation is sin(pi tau / 2) (Kruskal 1958); the request at each rank is told
    the length that is at this rank, so that lengths as a whole are right and only the order errs.
    """

    tau: float = param(0.6, least=-1, most=1)

    def predict(self, rows, folder, random):
        """One normal number a request; ties of true lengths are broken at random."""
        from scipy.special import ndtri  # a tenth of a second that other runs should not pay

        n = len(rows)
        rank = np.empty(n)
        rank[np.lexsort((random.random(n), rows.output))] = np.arange(1, n + 1)
        rho = np.sin(np.pi * self.tau / 2)
        score = rho * ndtri(rank / (n + 1)) + np.sqrt(max(0.0, 1 - rho * rho)) * random.standard_normal(n)
        told = np.empty(n)
        told[np.argsort(score, kind="stable")] = np.sort(rows.output)
        return told


@register("predictor", "bucket")
@dataclass(frozen=True)
class Bucket(Predictor):
    """A classifier into length buckets; it says the mean length of the bucket that it takes a request for.

    edges : first length of each bucket after the first, tokens; empty: `buckets` of equal counts. confusion : a row a
    true bucket, with the probabilities of the buckets told; empty: right with `accuracy`, else a neighbour.
    """

    buckets: int = param(4, least=2, most=1000)
    edges: tuple = ()
    accuracy: float = param(0.7, least=0, most=1)
    confusion: tuple = ()

    def fault(self) -> str | None:
        """Edges that rise, a confusion matrix that is one."""
        if any(not _is_number(e) for e in self.edges) or any(b <= a for a, b in zip(self.edges, self.edges[1:], strict=False)):
            return f"edges must be rising lengths, such as [64, 256, 1024] (got {list(self.edges)})"
        wide = len(self.edges) + 1 if self.edges else self.buckets
        if self.confusion and not _stochastic(self.confusion, wide):
            return f"confusion must have {wide} rows of {wide} probabilities that add up to 1 (got {list(self.confusion)})"
        return super().fault()

    def predict(self, rows, folder, random):
        """One uniform number a request."""
        edges = np.asarray(self.edges or _cuts(rows.output, self.buckets), dtype=np.float64)
        true = np.searchsorted(edges, rows.output, side="right")
        wide = len(edges) + 1
        matrix = np.asarray(self.confusion, dtype=np.float64) if self.confusion else _neighbours(wide, self.accuracy)
        told = (random.random(len(rows))[:, None] >= np.cumsum(matrix, axis=1)[true][:, :-1]).sum(axis=1)
        counts = np.bincount(true, minlength=wide)
        means = np.bincount(true, weights=rows.output, minlength=wide) / np.maximum(counts, 1)
        middles = np.concatenate([edges, edges[-1:] if len(edges) else [1.0]])
        return np.where(counts > 0, means, middles)[told]


@dataclass(frozen=True)
class Learned(Predictor):
    """Base of those that learn from past traffic. trace : the file to learn from; empty: the run's own requests."""

    trace: str = ""

    def past(self, rows: Lengths, folder: Path) -> Lengths:
        """What it learns from. Raises DataError for a trace that can't be read."""
        if not self.trace:
            return rows
        from llmqsim.workload.trace import read_trace

        read = read_trace(folder / self.trace, need_times=False)
        return Lengths(read.prompt_tokens, read.output_tokens, np.zeros(len(read.prompt_tokens), dtype=np.int64))


@register("predictor", "class_mean")
@dataclass(frozen=True)
class ClassMean(Predictor):
    """The mean length of the request's class."""

    def predict(self, rows, folder, random):
        """One figure a class."""
        sums = np.bincount(rows.class_id, weights=rows.output)
        return (sums / np.maximum(np.bincount(rows.class_id), 1))[rows.class_id]


@register("predictor", "regression")
@dataclass(frozen=True)
class Regression(Learned):
    """From the prompt's length: log(output) is linear in log(prompt), by least squares; it says the mean that follows."""

    def predict(self, rows, folder, random):
        """The same for equal prompts; never beyond the longest answer that was seen."""
        past = self.past(rows, folder)
        x, y = np.log(past.prompt), np.log(past.output)
        slope = float(np.cov(x, y, bias=True)[0, 1] / x.var()) if x.var() > 0 else 0.0
        level = float(y.mean() - slope * x.mean())
        spread = float((y - level - slope * x).var())
        return np.minimum(np.exp(level + slope * np.log(rows.prompt) + spread / 2), past.output.max())


@register("predictor", "quantile")
@dataclass(frozen=True)
class Quantile(Learned):
    """Conservative: the `q` quantile of answers to prompts of about this length, by class and quarter of prompts."""

    q: float = param(0.9, above=0, most=1)

    def predict(self, rows, folder, random):
        """Cells of fewer than 20 requests fall back on their class, then on everybody."""
        past = self.past(rows, folder)
        cuts = np.asarray(_cuts(past.prompt, 4))
        cell = np.searchsorted(cuts, rows.prompt, side="right")
        past_cell = np.searchsorted(cuts, past.prompt, side="right")
        told = np.full(len(rows), np.quantile(past.output, self.q))
        for class_id in np.unique(past.class_id):
            mine = past.class_id == class_id
            asked = rows.class_id == class_id if not self.trace else np.ones(len(rows), dtype=bool)
            if mine.sum() >= FEWEST_IN_CELL:
                told[asked] = np.quantile(past.output[mine], self.q)
            for number in range(len(cuts) + 1):
                chosen = mine & (past_cell == number)
                if chosen.sum() >= FEWEST_IN_CELL:
                    told[asked & (cell == number)] = np.quantile(past.output[chosen], self.q)
        return told


def _cuts(lengths: np.ndarray, parts: int) -> list[float]:
    """Lengths that cut a sample into parts of about equal counts, each once."""
    return np.unique(np.quantile(lengths, np.arange(1, parts) / parts)).tolist()


def _neighbours(wide: int, accuracy: float) -> np.ndarray:
    """Confusion of a classifier that errs by one bucket, up or down alike."""
    matrix = np.zeros((wide, wide))
    for row in range(wide):
        near = [place for place in (row - 1, row + 1) if 0 <= place < wide]
        matrix[row, row] = accuracy if near else 1.0
        matrix[row, near] = (1 - accuracy) / max(1, len(near))
    return matrix


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and np.isfinite(value)


def _stochastic(matrix, wide: int) -> bool:
    """Is it a square matrix of probabilities whose rows add up to 1?"""
    rows = [row for row in matrix if isinstance(row, (list, tuple)) and all(map(_is_number, row))]
    good = [row for row in rows if len(row) == wide and min(row) >= 0 and abs(sum(row) - 1) < 1e-6]
    return len(matrix) == len(good) == wide
