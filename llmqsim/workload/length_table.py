"""Fitted length tables: a histogram of prompts and, for every range of prompts, a histogram of outputs.

A bin is a range of whole tokens with a weight and a mean. Inside it, tokens are uniform on each side of the mean, with
the two sides weighted so that the bin's mean is exact. A bin of one value is a point mass: pile-ups stay pile-ups.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from llmqsim.workload import kernels


@dataclass(frozen=True, eq=False)
class Histogram:
    """Bins over whole tokens, ascending, disjoint: int64[bins] low and high (inclusive), float64[bins] weight, mean."""

    low: np.ndarray
    high: np.ndarray
    weight: np.ndarray
    mean: np.ndarray

    @cached_property
    def pieces(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same as uniform ranges: int64[pieces] low and high (inclusive), float64[pieces] probability."""
        split = np.minimum(np.floor(self.mean), self.high - 1).astype(np.int64)
        left_mean, right_mean = (self.low + split) / 2, (split + 1 + self.high) / 2
        single = self.low == self.high
        right = np.clip((self.mean - left_mean) / np.where(single, 1, right_mean - left_mean), 0, 1)
        right = np.where(single, 1.0, right)
        low = np.column_stack([self.low, np.where(single, self.low, split + 1)]).ravel()
        high = np.column_stack([np.where(single, self.high, split), self.high]).ravel()
        probability = np.column_stack([self.weight * (1 - right), self.weight * right]).ravel() / self.weight.sum()
        kept = probability > 0
        return low[kept], high[kept], probability[kept]

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """Inverse CDF: float64[n] uniforms in [0, 1) to int64[n] tokens, non-decreasing in u."""
        low, high, probability = self.pieces
        upper = _upper(probability)
        piece = np.searchsorted(upper, u, side="right")
        within = (u - (upper[piece] - probability[piece])) / probability[piece]
        tokens = low[piece] + np.floor(within * (high[piece] - low[piece] + 1)).astype(np.int64)
        return np.clip(tokens, low[piece], high[piece])


@dataclass(frozen=True, eq=False)
class LengthTable:
    """Joint distribution of prompt and output tokens; `about` holds name, source, licence, rows and fit error."""

    prompt: Histogram
    outputs: tuple[Histogram, ...]
    prompt_high: np.ndarray
    """int64[len(outputs)]: outputs[i] is for prompts up to prompt_high[i], the last for all longer ones"""
    about: dict = field(default_factory=dict)

    def group(self, prompt_tokens: np.ndarray) -> np.ndarray:
        """Which of `outputs` belongs to each prompt, int64[n]."""
        return np.searchsorted(self.prompt_high[:-1], prompt_tokens, side="left")

    def draw(self, u_prompt: np.ndarray, u_output: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Prompt and output tokens, int64[n] each, from two uniforms in [0, 1) a request."""
        tokens = np.stack([u_prompt, u_output])
        kernels.draw(*self._packed, tokens)
        return tokens[0].astype(np.int64), tokens[1].astype(np.int64)

    @cached_property
    def _packed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All histograms as kernels.draw takes them."""
        laws = [histogram.pieces for histogram in (self.prompt, *self.outputs)]
        starts = np.cumsum([0, *(len(law[0]) for law in laws)])
        pieces = np.concatenate([np.stack([_upper(law[2]), law[2], law[0], law[1]]) for law in laws], axis=1)
        cells = np.arange(kernels.CELLS) / kernels.CELLS
        uppers = [pieces[kernels.UPPER, first:end] for first, end in zip(starts, starts[1:], strict=False)]
        guides = [first + np.searchsorted(upper, cells, side="right") for first, upper in zip(starts, uppers, strict=False)]
        groups = np.full((2, max(starts[1], len(self.outputs))), np.iinfo(np.int64).max)
        groups[0, : len(self.outputs) - 1] = self.prompt_high[:-1]
        groups[1, : starts[1]] = self.group(laws[0][0])
        return pieces, np.stack(guides), groups

    @cached_property
    def group_share(self) -> np.ndarray:
        """Probability of each range of prompts, float64[len(outputs)]."""
        low, high, probability = self.prompt.pieces
        edges = np.append(self.prompt_high[:-1], np.iinfo(np.int64).max)
        below = [np.sum(probability * _share_up_to(low, high, edge)) for edge in edges]
        return np.diff(below, prepend=0.0)

    def marginal(self, column: str) -> Marginal:
        """The exact distribution of one column: "prompt_tokens" or "output_tokens"."""
        if column == "prompt_tokens":
            return Marginal(*self.prompt.pieces)
        parts = [h.pieces for h in self.outputs]
        probability = [share * p for share, (_, _, p) in zip(self.group_share, parts, strict=True)]
        return Marginal(
            np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), np.concatenate(probability)
        )


@dataclass(frozen=True, eq=False)
class Marginal:
    """A mixture of uniform ranges of whole tokens (they may overlap): exact moments, CDF and quantiles."""

    low: np.ndarray
    high: np.ndarray
    probability: np.ndarray

    def mean(self) -> float:
        return float(np.sum(self.probability * (self.low + self.high) / 2))

    def cv(self) -> float:
        """Standard deviation over mean. A uniform range of k values has the variance (k^2 - 1) / 12."""
        width = (self.high - self.low + 1).astype(float)
        centre = (self.low + self.high) / 2
        second = np.sum(self.probability * (centre**2 + (width**2 - 1) / 12))
        return float(np.sqrt(max(second - self.mean() ** 2, 0.0)) / self.mean())

    def cdf(self, tokens: np.ndarray) -> np.ndarray:
        """P(X <= tokens), float64[n]."""
        result = np.zeros(len(tokens))
        for low, high, probability in zip(self.low, self.high, self.probability, strict=True):
            result += probability * _share_up_to(low, high, tokens)
        return result

    def quantile(self, q: float) -> int:
        """Smallest number of tokens whose CDF reaches q."""
        below, above = 0, int(self.high.max())
        while above - below > 1:
            middle = (below + above) // 2
            if self.cdf(np.array([middle]))[0] >= q - 1e-12:
                above = middle
            else:
                below = middle
        return above

    def tokens_beyond(self, tokens: int) -> float:
        """Share of all tokens that sits in requests longer than `tokens`."""
        low = np.maximum(self.low, tokens + 1)
        count = np.maximum(self.high - low + 1, 0)
        mass = self.probability * count / (self.high - self.low + 1)
        return float(np.sum(mass * (low + self.high) / 2) / self.mean())


def _upper(probability: np.ndarray) -> np.ndarray:
    """Cumulative probabilities; the last is 1, whatever rounding made of the sum."""
    upper = np.cumsum(probability)
    upper[-1] = 1.0
    return upper


def _share_up_to(low, high, tokens):
    """Share of the values low..high (inclusive) that are at most `tokens`; arrays broadcast."""
    return np.clip((tokens - low + 1.0) / (high - low + 1.0), 0.0, 1.0)
