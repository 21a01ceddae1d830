"""What is wrong, by rule: a cause counts where the run shows its mark and a lever that mends it is shown to help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from llmqsim.planner.advise.facts import Facts
from llmqsim.planner.advise.levers import (
    BATCHING,
    CAUSES,
    HEAD_OF_LINE,
    KV,
    RATIO,
    ROUTING,
    SATURATION,
    SLOTS,
    STEP_TIME,
    WORK,
)
from llmqsim.planner.advise.rows import Row
from llmqsim.planner.utilisation import SATURATED

MARKED = 0.2
"""share of all waiting from which a reason for waiting counts as a mark"""
PREEMPTED = 0.05
"""preemptions a request from which memory is short"""
HEAVY = 6.0
"""times the median prompt from which the longest hundredth are whales"""
GENERAL = (STEP_TIME, WORK)
"""what almost any system could do with: named after causes that the queue's rules have"""


def causes(facts: Facts, rows: Sequence[Row], utilisation: float, short: bool) -> list[dict[str, Any]]:
    """Causes, the first one first: cause, says, evidence, lever, gain. short : the SLO is missed with all levers pulled.

    utilisation : throughput over saturated throughput, as it is or with all levers pulled, what is more.
    """
    found: dict[str, tuple[tuple, Row]] = {}
    for row in rows:
        cause = row.lever.cures
        if cause not in _MARKS or not row.helps or _MARKS[cause](facts) is None:
            continue
        rank = (cause not in GENERAL, *row.gain)
        if cause not in found or rank > found[cause][0]:
            found[cause] = (rank, row)
    named = [
        _told(facts, cause, row) for cause, (_, row) in sorted(found.items(), key=lambda one: one[1][0], reverse=True)
    ]
    if short:
        cause = SATURATION if utilisation >= SATURATED else STEP_TIME
        evidence = f"throughput is {100 * utilisation:.0f} % of the saturated throughput, and no lever mends it"
        named = [_bare(cause, evidence), *(one for one in named if one["cause"] != cause)]
    return named


def _told(facts: Facts, cause: str, row: Row) -> dict[str, Any]:
    gain = {"attainment": row.attainment["difference"], "capacity_per_s": row.capacity and row.capacity["difference"]}
    return {
        "cause": cause,
        "says": CAUSES[cause],
        "evidence": _MARKS[cause](facts),
        "lever": row.lever.name,
        "gain": gain,
    }


def _bare(cause: str, evidence: str) -> dict[str, Any]:
    return {"cause": cause, "says": CAUSES[cause], "evidence": evidence, "lever": None, "gain": None}


def _slots(facts: Facts) -> str | None:
    share, used = facts.waits("slots"), facts.summary["kv"].get("usage_mean")
    if share < MARKED:
        return None
    memory = "" if used is None else f", and the KV pool is {100 * used:.0f} % full on average"
    return f"{100 * share:.0f} % of all waiting is for a slot{memory}"


def _kv(facts: Facts) -> str | None:
    share = facts.waits("kv") + facts.waits("preempted")
    each = facts.summary["preemptions"] / max(1, facts.summary["requests"]["arrived"])
    if share < MARKED and each < PREEMPTED:
        return None
    return (
        f"{100 * share:.0f} % of all waiting is for KV blocks or after a preemption; {each:.2f} preemptions a request"
    )


def _whales(facts: Facts) -> str | None:
    prompts = facts.table.prompt_tokens
    middle, long = max(1, facts.prompt_quantile(0.5)), facts.prompt_quantile(0.99)
    if long < HEAVY * middle:
        return None
    tokens = float(np.sort(prompts)[-max(1, len(prompts) // 50) :].sum() / prompts.sum())
    return f"P99 of prompts is {long / middle:.0f} times the median; 2 % of the prompts hold {100 * tokens:.0f} % of the tokens"


def _ratio(facts: Facts) -> str | None:
    pools = facts.summary.get("pools")
    if not pools:
        return None
    busy = [f"{name} {100 * (its['utilisation']['busy'] or 0.0):.0f} % busy" for name, its in pools.items()]
    return ", ".join(busy)


def _routing(facts: Facts) -> str | None:
    if all(place.replicas < 2 for place in facts.places):
        return None
    counts = facts.summary["utilisation"]["requests_per_replica"]
    return f"requests a replica: {min(counts):,} to {max(counts):,}"


def _batching(facts: Facts) -> str | None:
    return "requests do not join and leave between steps"


def _late_steps(facts: Facts) -> str | None:
    by_target = facts.summary["slo"]["by_target"]
    tpot, ttft = by_target.get("tpot_s"), by_target.get("ttft_s")
    if tpot is None or (ttft is not None and ttft <= tpot):
        return None
    return f"TPOT is kept by {100 * tpot:.1f} % of requests, fewer than any other target"


def _work(facts: Facts) -> str | None:
    return f"steps run {100 * (facts.summary['utilisation']['busy'] or 0.0):.0f} % of the time"


_MARKS: dict[str, Callable[[Facts], str | None]] = {
    SLOTS: _slots, KV: _kv, HEAD_OF_LINE: _whales, RATIO: _ratio, ROUTING: _routing, BATCHING: _batching,
    STEP_TIME: _late_steps, WORK: _work,
}  # fmt: skip
"""cause to what the run shows of it, in words; None where it does not. Saturation shows in what the levers can't mend."""
