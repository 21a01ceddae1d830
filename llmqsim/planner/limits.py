"""What no number of replicas can mend: reasons why an SLO is out of reach for a model on a GPU, before any search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.cluster.admission import refusals
from llmqsim.engine.deployment import Deployment
from llmqsim.metrics.slo import Objective
from llmqsim.planner.bounds import Bounds
from llmqsim.requests import Reason, RequestTable
from llmqsim.units import format_seconds

FEASIBLE, INFEASIBLE, UNDECIDED = "feasible", "infeasible", "undecided"
"""verdicts of llmqsim size"""
NOTHING = {"mean": None, "low": None, "high": None}
ONE_TRAFFIC = "the traffic is the same in every run: intervals are from 20 batches of its requests"
SLACK = 0.01
"""the time alone is interpolated; a request within 1 % of its limit is not held against it"""
REASONS = {
    "weights_do_not_fit": "the weights leave no memory for a KV pool",
    "activations_do_not_fit": "the activations of the largest step leave no memory for a KV pool",
    "kv_pool_too_small": "the KV pool holds less than one block for requests",
    "max_model_len_exceeds_kv_pool": "the KV pool holds less than one request of max_model_len",
    "no_request_fits": "not one request of this workload can be served",
    "requests_too_long": "too many requests are longer than the server takes",
    "prefill_exceeds_ttft": "prefill alone, on an empty server, exceeds the TTFT target",
    "decode_exceeds_tpot": "decoding alone, with nobody else in the batch, exceeds the TPOT target",
    "e2e_exceeds_target": "a request alone takes longer than the E2E target",
    "targets_exclude_each_other": "each target can be kept alone, not all of them by enough requests",
    "target_at_bound": "the target is about what a request alone on a replica gets, so that more replicas bring little",
    "most_replicas_reached": "the largest number of replicas that may be tried does not keep the SLO",
    "not_decided": "the intervals still straddle the target",
    "dearer": "it can't be cheaper than the best one found",
    "not_configurable": "this combination of model, GPU and options is refused",
}


@dataclass(frozen=True)
class Ceiling:
    """The best that any number of replicas can do: the attainment of requests that are alone. reason : a key of REASONS."""

    share: float
    reason: str | None
    sentence: str


def ceiling(bounds: Bounds, deployment: Deployment, table: RequestTable, objectives: list[Objective]) -> Ceiling:
    """The least of the objectives' ceilings. A cached prefix may beat it, so with a prefix cache TTFT has none."""
    served, times = served_rows(deployment, table), alone_times(bounds, deployment, table)
    found = Ceiling(1.0, None, "")
    for one in objectives:
        rows = asked_rows(one, table)
        told = _of(one, rows, served, times)
        if rows.any() and told.share < one.share and (found.reason is None or told.share < found.share):
            found = told
    return found


def asked_rows(one: Objective, table: RequestTable) -> np.ndarray:
    """Whom an objective is about, bool[rows]."""
    rows = one.asked(table, np.ones(len(table), dtype=bool))
    return rows & (table.output_tokens >= 2) if one.name.startswith("tpot_p") else rows


def served_rows(deployment: Deployment, table: RequestTable) -> np.ndarray:
    """Whom a replica can serve at all, bool[rows]."""
    return refusals(table, deployment) == Reason.NONE


def alone_times(bounds: Bounds, deployment: Deployment, table: RequestTable) -> dict[str, np.ndarray]:
    """Seconds of each request alone, float64[rows] by target; 0 where a target can't be missed."""
    cached = table.prefixes is not None and deployment.options.enable_prefix_caching
    e2e = np.nan_to_num(bounds.service_s)
    first = np.interp(table.prompt_tokens, bounds.alone.prompts, bounds.alone.first_s) if len(bounds.alone.prompts) else e2e
    gaps = table.output_tokens - 1
    tpot = np.where(gaps > 0, (e2e - first) / np.maximum(gaps, 1), 0.0)
    return {"ttft_s": np.zeros_like(first) if cached else first, "tpot_s": tpot, "e2e_s": e2e * (not cached)}


def _of(one: Objective, rows: np.ndarray, served: np.ndarray, times: dict[str, np.ndarray]) -> Ceiling:
    asked = max(1, int(rows.sum()))
    shares, share = alone_shares(one, rows, served, times)
    if int((rows & served).sum()) / asked < one.share:
        return Ceiling(share, "requests_too_long", _said(one, "requests_too_long", share))
    codes = {"ttft_s": "prefill_exceeds_ttft", "tpot_s": "decode_exceeds_tpot", "e2e_s": "e2e_exceeds_target"}
    worst = min(shares, key=lambda target: shares[target])
    code = codes[worst] if shares[worst] < one.share else "targets_exclude_each_other"
    return Ceiling(share, code, _said(one, code, share))


def alone_shares(
    one: Objective, rows: np.ndarray, served: np.ndarray, times: dict[str, np.ndarray]
) -> tuple[dict[str, float], float]:
    """The shares of `rows` that keep each limit of an objective alone, and that keep all of them."""
    asked = max(1, int(rows.sum()))
    within = {target: times[target] <= (1 + SLACK) * most for target, most in one.limits_s.items()}
    every = rows & served
    for kept in within.values():
        every = every & kept
    return {t: int((rows & served & kept).sum()) / asked for t, kept in within.items()}, int(every.sum()) / asked


def _said(one: Objective, code: str, share: float) -> str:
    limits = ", ".join(f"{t.removesuffix('_s').upper()} ≤ {format_seconds(s)}" for t, s in one.limits_s.items())
    return (
        f"{REASONS[code]}: with an empty server {100 * share:.1f} % of requests keep {limits}, {100 * one.share:g} % are asked "
        f"for; no number of replicas changes that"
    )
