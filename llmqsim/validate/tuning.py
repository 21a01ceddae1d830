"""Least squares on logarithms for two figures of a deployment: host time a step, and how much slower its GPU runs.

A step is host + derate x kernels. Runs whose steps are alike move with both in the same way and can't tell them apart;
it takes loads (batches) at which the host's share differs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.errors import DataError

LEAST_RUNS = 3
NOISE = 0.01
"""relative: repeated runs agree no better, so residuals below it are not believed"""
MOST_CORRELATED = 0.98
MOST_DERATE_ERROR = 0.06
MOST_HOST_SHARE = 0.25
"""standard error of the host time as a share of the shortest measured latency a token"""
WORST_FIT = 0.25
"""root mean square of log residuals beyond which something else than these two figures is off"""
SCALE = np.array([1e-3, 1.0])
"""host time per ms, so that both columns have a like size"""


@dataclass(frozen=True)
class Estimate:
    """host_s : added to each step's host time, seconds; derate : factor on GPU time; with standard errors."""

    host_s: float
    derate: float
    host_error_s: float = 0.0
    derate_error: float = 0.0
    correlation: float = 0.0
    residual: float = 0.0


START = Estimate(0.0, 1.0)


def solve(residuals: np.ndarray, jacobian: np.ndarray, at: Estimate, least_host_s: float) -> Estimate:
    """One Gauss-Newton step.

    residuals : float64[n], log measured - log predicted at `at`. jacobian : float64[n, 2], slopes of log predicted by
    host time (per second) and by log derate. least_host_s : how far the host time can be lowered.
    """
    columns = jacobian * SCALE
    step, *_ = np.linalg.lstsq(columns, residuals, rcond=None)
    host = max(least_host_s, at.host_s + step[0] * SCALE[0])
    derate = float(np.clip(at.derate * np.exp(np.clip(step[1], -0.5, 0.5)), 0.3, 5.0))
    left = residuals - columns @ step
    variance = max(float(left @ left) / max(1, len(left) - 2), NOISE**2)
    spread = variance * np.linalg.pinv(columns.T @ columns)
    errors = np.sqrt(np.diag(spread))
    both = errors[0] * errors[1]
    correlation = float(spread[0, 1] / both) if both > 0 else 1.0
    residual = float(np.sqrt(np.mean(left**2)))
    return Estimate(float(host), derate, float(errors[0] * SCALE[0]), float(errors[1] * derate), correlation, residual)


def check(found: Estimate, jacobian: np.ndarray, shortest_s: float) -> None:
    """Raises DataError, saying why, where the data can't tell the two figures."""
    told = f"host time ± {found.host_error_s * 1e3:.2f} ms, derate ± {found.derate_error:.0%}"
    singular = np.linalg.matrix_rank(jacobian * SCALE, tol=1e-6) < 2
    if singular or abs(found.correlation) > MOST_CORRELATED:
        raise DataError(
            f"tune: the runs can't tell host time from a slower GPU (correlation {found.correlation:+.2f}; {told}): "
            "their steps are too much alike. Add runs at other loads: one request at a time, and a full batch"
        )
    if found.residual > WORST_FIT:
        raise DataError(
            f"tune: the runs don't fit one deployment (residual {found.residual:.0%} after the fit): something else than "
            "host time and GPU speed is off, such as prefix caching, a limit of the engine, or the model; "
            "`llmqsim validate` shows which runs"
        )
    if found.derate_error > MOST_DERATE_ERROR or found.host_error_s > MOST_HOST_SHARE * shortest_s:
        raise DataError(f"tune: the runs don't determine them ({told}); add runs, or runs at other loads")


def leave_one_out(residuals: np.ndarray, jacobian: np.ndarray, at: Estimate, least_host_s: float) -> list[Estimate]:
    """The estimate without each run, from the linear model at `at`."""
    keep = ~np.eye(len(residuals), dtype=bool)
    return [solve(residuals[mask], jacobian[mask], at, least_host_s) for mask in keep]
