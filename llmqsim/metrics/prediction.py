"""How far the lengths that schedulers believed in were off: the realised error of a run's predictor."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmqsim.metrics.distribution import exact_sum, ratio
from llmqsim.requests import UNSET, RequestTable

MOST_PAIRED = 20_000
"""requests that Kendall's tau is computed on, evenly taken; it costs n log n"""


def prediction(table: RequestTable, rows: np.ndarray) -> dict[str, Any] | None:
    """Error of the predictions of a mask (bool[rows]), as drawn, before any correction; None without a predictor.

    kendall_tau is tau-b, which allows for ties; None where all predictions or all lengths are equal. coverage : share
    of answers no longer than predicted. bias : mean predicted / mean true.
    """
    rows = rows & (table.predicted_tokens != UNSET)
    told, true = table.predicted_tokens[rows], table.output_tokens[rows]
    if not len(told):
        return None
    error = np.abs(told - true)
    return {
        "n": len(told),
        "kendall_tau": _tau(told, true),
        "mae_tokens": exact_sum(error) / len(told),
        "bias": ratio(exact_sum(told), exact_sum(true)),
        "coverage": ratio(int((true <= told).sum()), len(told)),
    }


def _tau(told: np.ndarray, true: np.ndarray) -> float | None:
    from scipy.stats import kendalltau

    every = -(-len(told) // MOST_PAIRED)
    told, true = told[::every], true[::every]
    if len(np.unique(told)) < 2 or len(np.unique(true)) < 2:
        return None
    return float(kendalltau(told, true).statistic)
