"""What a run shows of each cause, in words: the evidence beside a name, and which evidence speaks for itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from llmqsim.metrics import slo
from llmqsim.planner.advise.facts import Facts
from llmqsim.planner.advise.levers import (
    BATCHING,
    BUDGET,
    CLIENT_CAP,
    HEAD_OF_LINE,
    HEAVY,
    KV,
    LAYOUT,
    PREFIX,
    PRIORITY,
    RATIO,
    ROUTING,
    SATURATION,
    SLOTS,
    STEP_TIME,
    WORK,
)

MARKED = 0.2
"""share of all waiting from which a reason for waiting counts as a mark"""
PREEMPTED = 0.05
"""preemptions a request from which memory is short"""
PLAIN = (SLOTS, KV, BUDGET, PREFIX, CLIENT_CAP, BATCHING)
"""causes whose mark no sound system shows; others are marked wherever they could be"""


def mark(facts: Facts, cause: str) -> str | None:
    """What the run shows of a cause, in words; None where it does not."""
    return _MARKS[cause](facts)


def plain(facts: Facts, cause: str) -> bool:
    """Does the run show the cause by a figure that no sound system has?"""
    return cause in PLAIN and mark(facts, cause) is not None


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
    tail = f"2 % of the prompts hold {100 * tokens:.0f} % of the tokens"
    return f"P99 of prompts is {long / middle:.0f} times the median; {tail}"


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


def _budget(facts: Facts) -> str | None:
    share, tokens = facts.waits("token_budget"), facts.places[0].options.max_num_batched_tokens
    if share >= MARKED:
        return f"{100 * share:.0f} % of all waiting is for room in a step's {tokens:,} tokens"
    late = _late_steps(facts)
    return None if late is None else f"{late}; a step may hold {tokens:,} tokens"


def _prefix(facts: Facts) -> str | None:
    if not (repeated := facts.repeated):
        return None
    found = (facts.summary.get("prefix_cache") or {}).get("hit_share") or 0.0
    said = f"{100 * repeated:.0f} % of the prompt tokens were computed for another prompt before"
    return f"{said}; {100 * found:.0f} % are found cached"


def _classes(facts: Facts) -> str | None:
    if not facts.classed and not facts.prioritised:
        return None
    shares = [(one.label, slo.stand(facts.result, one).share) for one in facts.objectives]
    return f"in one queue: {', '.join(f'{label} {100 * share:.0f} %' for label, share in shares if share is not None)}"


def _layout(facts: Facts) -> str | None:
    if not facts.calibrated:
        return None
    cut = [
        f"{place.replicas} × TP {place.servers.tensor_parallel_size}"
        + (f" × PP {stages}" if (stages := place.options.pipeline_parallel_size) > 1 else "")
        for place in facts.places
    ]
    return f"{', '.join(cut)} of {facts.gpus} GPUs"


def _cap(facts: Facts) -> str | None:
    if facts.cap is None or not facts.held_s:
        return None
    return f"no more than {facts.cap:,} in flight: a request is sent {facts.held_s:.3g} s after it is due, on average"


_MARKS: dict[str, Callable[[Facts], str | None]] = {
    SLOTS: _slots, KV: _kv, HEAD_OF_LINE: _whales, RATIO: _ratio, ROUTING: _routing, BATCHING: _batching,
    STEP_TIME: _late_steps, WORK: _work, BUDGET: _budget, PREFIX: _prefix, PRIORITY: _classes, LAYOUT: _layout,
    CLIENT_CAP: _cap, SATURATION: lambda facts: None,
}  # fmt: skip
"""saturation shows in what the levers can't mend"""
