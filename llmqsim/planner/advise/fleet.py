"""Levers of the whole fleet: who goes where, who enters, which GPUs do what; and one more replica of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from llmqsim.planner.advise.facts import Facts, Place
from llmqsim.planner.advise.levers import (
    CLIENT_CAP,
    HEAD_OF_LINE,
    PREFIX,
    RATIO,
    ROUTING,
    SATURATION,
    STEP_TIME,
    Lever,
    everywhere,
)
from llmqsim.planner.bounds import DecodeBounds, prefill_bounds
from llmqsim.planner.splitting import LINK

LOOKING = ("least_outstanding", "least_predicted_work")
LONG_SHARES = (0.9, 0.98)
"""of the prompts: the longer ones get replicas of their own"""
CAP_FACTORS = (2, 4)
"""times the cap of the clients, before it is lifted altogether"""


def levers(facts: Facts) -> Iterator[Lever]:
    """All of them that could change anything."""
    yield from _routing(facts)
    yield from _admission(facts)
    yield from _clients(facts)
    if facts.split:
        yield from _ratio(facts)
        yield _merge(facts)
    elif not facts.pooled and facts.calibrated:
        yield from _split(facts)


def _routing(facts: Facts) -> Iterator[Lever]:
    def to(place: Place, policy: str) -> Any:
        now = routed(facts, place)
        return {"policy": policy, **kept(now)} if place.replicas > 1 and now.policy != policy else None

    told, known = facts.predictor
    for policy in LOOKING:
        sets = everywhere(facts, "routing", lambda p, name=policy: to(p, name))
        now = ", ".join(dict.fromkeys(routed(facts, p).policy for p in facts.places if p.replicas > 1))
        if sets and policy == "least_predicted_work" and not known:
            sets = (("workload.predictor", told), *sets)
        yield Lever("routing", f"routing {now} → {policy}", sets, ROUTING)
    caching = any(place.options.enable_prefix_caching for place in facts.places)
    if facts.shares_prefixes and caching:
        sets = everywhere(facts, "routing", lambda p: to(p, "prefix_affinity"), ("both", "prefill"))
        yield Lever("prefix_affinity", "routing → prefix_affinity", sets, PREFIX)
    for share in LONG_SHARES:
        yield _by_length(facts, share)


def _by_length(facts: Facts, share: float) -> Lever:
    """Long prompts at replicas of their own: as many as their part of the tokens asks for."""
    limit = facts.prompt_quantile(share)
    tokens = (facts.table.prompt_tokens + facts.table.output_tokens).astype(float)
    long = float(tokens[facts.table.prompt_tokens > limit].sum() / tokens.sum())

    def groups(place: Place) -> Any:
        n = place.replicas
        if n < 2 or long == 0 or routed(facts, place).policy == "by_length":
            return None
        own = int(np.clip(round(long * n), 1, n - 1))
        parts = [list(range(n - own)), list(range(n - own, n))]
        return {"policy": "by_length", "limits": [limit], "groups": parts, **kept(routed(facts, place))}

    sets = everywhere(facts, "routing", groups, ("both", "prefill"))
    return Lever("long_apart", f"replicas of their own for prompts above {limit:,} tokens", sets, HEAD_OF_LINE)


def routed(facts: Facts, place: Place) -> Any:
    """How requests get to the replicas of a place."""
    return facts.written(place).routing


def kept(now: Any) -> dict[str, Any]:
    """What is said of routing beside the policy; another policy would drop it."""
    return {key: getattr(now, key) for key in ("signal_age", "late_binding") if getattr(now, key) is not None}


def _admission(facts: Facts) -> Iterator[Lever]:
    """Under overload, refusing at once who would be late anyway. It gives up some so that others are served in time."""
    first_token = any("ttft_s" in one.limits_s for one in facts.objectives)
    open_door = facts.scenario.spec.admission.policy == "all"
    if first_token and open_door and facts.summary["stability"]["verdict"] == "overloaded":
        yield Lever(
            "admission", "refuse at once who would miss its TTFT target", (("admission", "deadline"),), SATURATION
        )


def _clients(facts: Facts) -> Iterator[Lever]:
    """More requests in flight than the clients allow themselves: twice, four times, as many as come."""
    if (cap := facts.cap) is None:
        return
    for factor in (*CAP_FACTORS, None):
        new = None if factor is None else factor * cap
        says = f"clients' max_in_flight {cap:,} → {'no cap' if new is None else format(new, ',')}"
        yield Lever("client_cap", says, (("workload.clients.max_in_flight", new),), CLIENT_CAP)


def _ratio(facts: Facts) -> Iterator[Lever]:
    """Every other division of the same GPUs."""
    prefill, decode = sorted(facts.places, key=lambda place: place.role, reverse=True)
    total = prefill.replicas + decode.replicas
    for count in range(1, total):
        if count == prefill.replicas:
            continue
        sets = ((f"{prefill.prefix}replicas", count), (f"{decode.prefix}replicas", total - count))
        says = f"prefill and decode replicas {prefill.replicas} and {decode.replicas} → {count} and {total - count}"
        yield Lever("pd_ratio", says, sets, RATIO)


def _merge(facts: Facts) -> Lever:
    """The same GPUs, each doing both."""
    one = next(place for place in facts.places if place.role == "decode")
    spec = facts.scenario.spec.pools[one.name]
    total = sum(place.replicas for place in facts.places)
    gone = [("pools", None), ("handoff", None), *([("placement", None)] if facts.scenario.spec.placement else [])]
    kept = [("tensor_parallel_size", one.servers.tensor_parallel_size), ("replicas", total)]
    kept += [("gpu", spec.gpu)] if isinstance(spec.gpu, str) else []
    says = f"no pools: {total} replicas that prefill and decode"
    return Lever("merge", says, (*gone, *kept, ("routing", "least_outstanding")), RATIO)


def _split(facts: Facts) -> Iterator[Lever]:
    """Prefill and decode apart, in the ratio that arithmetic says balances them, and one beside it."""
    (place,) = facts.places
    if place.replicas < 2 or place.options.pipeline_parallel_size > 1:
        return
    deployment = place.servers.deployment
    prompts = prefill_bounds(deployment, facts.table).capacity_per_s
    answers = DecodeBounds(deployment, facts.table).capacity_per_s
    counts = range(1, place.replicas)
    best = max(counts, key=lambda x: min(x * prompts, (place.replicas - x) * answers))
    for count in (best, best + 1):
        if count in counts:
            sets = (
                ("pools.prefill.replicas", count),
                ("pools.decode.replicas", place.replicas - count),
                ("handoff.link", LINK),
            )
            says = f"prefill and decode apart: {count} and {place.replicas - count} replicas over {LINK}"
            yield Lever("split", says, sets, STEP_TIME)


def purchases(facts: Facts) -> Iterator[Lever]:
    """One more replica of each kind."""
    for place in facts.places:
        gpus = f"{place.gpus_each} GPU{'' if place.gpus_each == 1 else 's'}"
        sets = ((f"{place.prefix}replicas", place.replicas + 1),)
        what = "replica" if not place.prefix else f"{place.name} replica"
        name = "add_replica" if not place.prefix else f"add_{place.name}"
        yield Lever(name, f"one more {what} ({gpus})", sets, SATURATION, buys=place.name)
