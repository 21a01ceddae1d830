"""What a layer is made of beside attention: weight matrices, and operators whose time depends on a step's tokens alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LinearOp:
    """An operator whose time depends on the tokens n of a step alone. `calls` is how often it runs in a step."""

    name: str
    calls: int
    seconds: Callable[[np.ndarray], np.ndarray]
    """seconds of one call for an array of token counts"""
    formula: Callable[[int], str]
    """shape and formula of one call with the numbers of n tokens filled in"""
    work: Callable[[int], tuple[float | None, float]]
    """(FLOPs, bytes moved) of one call on one GPU; no FLOPs where they don't count"""


@dataclass(frozen=True)
class Matrix:
    """A weight matrix on each GPU: Y[m, n] = X[m, k] W[k, n], in so many layers."""

    name: str
    n: int
    k: int
    layers: int
    dtype: str
