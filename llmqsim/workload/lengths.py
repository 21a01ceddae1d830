"""Token counts from a named distribution: the inverse CDF of one uniform number a request, in whole tokens >= 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from llmqsim.errors import ScenarioError, or_known

MAX_TOKENS = 2**31 - 1
"""Largest length; also the `max_tokens` of a request whose limit nobody knows."""


class Lengths(Protocol):
    """A distribution of token counts."""

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """Inverse CDF: float64[n] uniforms in [0, 1) to int64[n] tokens, non-decreasing in u."""

    def describe(self) -> str:
        """Name and parameters, a few words."""


@dataclass(frozen=True)
class Constant:
    """Every request has `tokens` tokens."""

    tokens: int

    def quantile(self, u: np.ndarray) -> np.ndarray:
        return np.full(len(u), self.tokens, dtype=np.int64)

    def describe(self) -> str:
        return f"{self.tokens:,}"


@dataclass(frozen=True)
class Uniform:
    """Every whole number from `low` to `high`, both included, is equally likely."""

    low: int
    high: int

    def quantile(self, u: np.ndarray) -> np.ndarray:
        return self.low + np.floor(u * (self.high - self.low + 1)).astype(np.int64)

    def describe(self) -> str:
        return f"uniform {self.low:,} to {self.high:,}"


@dataclass(frozen=True)
class Lognormal:
    """Lognormal of this arithmetic mean and coefficient of variation, rounded to whole tokens."""

    mean: float
    cv: float

    def quantile(self, u: np.ndarray) -> np.ndarray:
        from scipy.special import ndtri

        variance = math.log1p(self.cv**2)
        normal = ndtri(np.maximum(u, 2.0**-54))
        return _whole(np.exp(math.log(self.mean) - variance / 2 + math.sqrt(variance) * normal))

    def describe(self) -> str:
        return f"lognormal, mean {self.mean:,g}, CV {self.cv:g}"


@dataclass(frozen=True)
class Exponential:
    """The exponential in whole tokens: geometric on 1, 2, ... with exactly this mean (and CV sqrt(1 - 1/mean)).

    Rounding a continuous exponential would shift the mean of short lengths; the geometric keeps it, and is memoryless.
    """

    mean: float

    def quantile(self, u: np.ndarray) -> np.ndarray:
        if self.mean == 1:
            return np.ones(len(u), dtype=np.int64)
        return _whole(np.floor(np.log1p(-u) / math.log1p(-1 / self.mean)) + 1)

    def describe(self) -> str:
        return f"exponential, mean {self.mean:,g}"


@dataclass(frozen=True)
class Clipped:
    """Values beyond `low` or `high` are set to it: the ends collect mass, as the length limits of services do."""

    inner: Lengths
    low: int
    high: int

    def quantile(self, u: np.ndarray) -> np.ndarray:
        return np.clip(self.inner.quantile(u), self.low, self.high)

    def describe(self) -> str:
        high = "" if self.high == MAX_TOKENS else f", max {self.high:,}"
        return self.inner.describe() + ("" if self.low == 1 else f", min {self.low:,}") + high


def _whole(tokens: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(tokens), 1, MAX_TOKENS).astype(np.int64)


KINDS = ("constant", "uniform", "lognormal", "exponential")


def parse(spec: Any, key: str) -> Lengths:
    """Make a distribution from its plain form: N, {constant: N}, {uniform: [a, b]}, {lognormal: {mean, cv}} or
    {exponential: {mean}}; the random ones take `min` and `max`, beside the kind or inside it.

    key : where it was written, for the message. Raises ScenarioError for anything else.
    """
    if not isinstance(spec, dict):
        return Constant(_tokens(spec, key))
    kinds = [k for k in spec if k not in ("min", "max")]
    if len(kinds) != 1 or kinds[0] not in KINDS:
        hint = or_known(str(kinds[0]) if kinds else "", KINDS)
        raise ScenarioError(f"{key}: needs one kind of distribution (got {kinds}){hint}")
    kind, value = kinds[0], spec[kinds[0]]
    bounds = {k: v for part in (spec, value if isinstance(value, dict) else {}) for k, v in part.items()}
    low, high = bounds.get("min"), bounds.get("max")
    law = _law(kind, value, f"{key}.{kind}")
    if low is None and high is None:
        return law
    if kind == "constant":
        raise ScenarioError(f"{key}: a constant takes neither min nor max")
    low = 1 if low is None else _tokens(low, f"{key}.min")
    high = MAX_TOKENS if high is None else _tokens(high, f"{key}.max")
    if low > high:
        raise ScenarioError(f"{key}: min must not exceed max (got min {low}, max {high})")
    return Clipped(law, low, high)


def _law(kind: str, value: Any, key: str) -> Lengths:
    if kind == "constant":
        return Constant(_tokens(value, key))
    if kind == "uniform":
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise ScenarioError(f"{key}: must be [smallest, largest] (got {value!r})")
        low, high = _tokens(value[0], key), _tokens(value[1], key)
        if low > high:
            raise ScenarioError(f"{key}: the smallest must not exceed the largest (got [{low}, {high}])")
        return Uniform(low, high)
    if not isinstance(value, dict):
        raise ScenarioError(f"{key}: must be a mapping of its parameters (got {value!r})")
    mean = _number(value.get("mean"), f"{key}.mean", 1.0)
    if kind == "exponential":
        return Exponential(mean)
    return Lognormal(mean, _number(value.get("cv"), f"{key}.cv", 0.0))


def _tokens(value: Any, key: str) -> int:
    number = _number(value, key, 1)
    if number != int(number) or number > MAX_TOKENS:
        raise ScenarioError(f"{key}: must be a whole number of tokens from 1 to {MAX_TOKENS} (got {value!r})")
    return int(number)


def _number(value: Any, key: str, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < math.inf:
        raise ScenarioError(f"{key}: must be a number of at least {least:g} (got {value!r})")
    return float(value)
