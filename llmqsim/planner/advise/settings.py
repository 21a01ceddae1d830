"""Levers of one replica: batching, slots, memory, token budget, order of the queue, prefix cache, quantisation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llmqsim.planner.advise.facts import Facts, Place
from llmqsim.planner.advise.levers import (
    BATCHING,
    BUDGET,
    HEAD_OF_LINE,
    KV,
    PREFIX,
    SLOTS,
    STEP_TIME,
    WORK,
    Lever,
    everywhere,
)
from llmqsim.scenario.build import batching_of

UTILISATION = 0.95
"""share of the GPU's memory that vLLM may be given where nothing else runs there"""
BUDGETS = (256, 512, 1024, 2048, 4096, 8192, 16_384)
PREFILL_CAPS = (512, 2048)
MOST_SLOTS = 1024
SLOT_FACTORS = (2, 4, 8, 32, 128)
NOT_CONTINUOUS = ("static", "orca", "vllm_v0", "multi_step")
"""batching policies that one leaves by switching continuous batching on"""
PATIENCE_S = 30
"""after so long even the longest prompts are served before a short one that has just come (ordering with ageing)"""


def levers(facts: Facts) -> Iterator[Lever]:
    """All of them that could change anything."""
    yield from _batching(facts)
    yield from _slots(facts)
    yield from _memory(facts)
    yield from _budget(facts)
    yield from _order(facts)
    yield from _work(facts)


def _batching(facts: Facts) -> Iterator[Lever]:
    if not facts.pooled and (now := batching_of(facts.scenario).policy) in NOT_CONTINUOUS:
        sets = (("engine.batching", "continuous"), ("engine.enable_chunked_prefill", True))
        yield Lever("continuous_batching", f"batching {now} → continuous", sets, BATCHING)
    sets = everywhere(
        facts, "engine.enable_chunked_prefill", lambda p: None if p.options.enable_chunked_prefill else True
    )
    yield Lever("chunked_prefill", "enable_chunked_prefill → true", sets, HEAD_OF_LINE)


def _slots(facts: Facts) -> Iterator[Lever]:
    if facts.waits("slots"):
        for factor in SLOT_FACTORS:
            sets = everywhere(facts, "engine.max_num_seqs", lambda p, f=factor: _more_slots(p, f))
            yield Lever("slots", from_to("max_num_seqs", now(facts, "max_num_seqs"), sets), sets, SLOTS)
    kv = facts.summary["kv"]
    last = facts.places[-1] if not facts.pooled else next(p for p in facts.places if p.name == kv["pool"])
    if (cap := kv["suggested_cap"]) is not None and cap["max_num_seqs"] < last.options.max_num_seqs:
        sets = ((f"{last.prefix}engine.max_num_seqs", cap["max_num_seqs"]),)
        says = (
            f"{from_to('max_num_seqs', {last.options.max_num_seqs}, sets)} (fits without preemption, {cap['assumes']})"
        )
        yield Lever("slot_cap", says, sets, KV)
    if (slots := _slots_within_tpot(facts)) is not None and slots < last.options.max_num_seqs:
        sets = ((f"{last.prefix}engine.max_num_seqs", slots),)
        says = f"{from_to('max_num_seqs', {last.options.max_num_seqs}, sets)} (mean step within the TPOT target)"
        yield Lever("smaller_batch", says, sets, STEP_TIME)


def _more_slots(place: Place, factor: int) -> int | None:
    now = place.options.max_num_seqs
    return min(factor * now, MOST_SLOTS) if now < MOST_SLOTS else None


def _slots_within_tpot(facts: Facts) -> int | None:
    """How many may run so that a mean step keeps the tightest TPOT target; None without one, or if one is late."""
    limits = [one.limits_s["tpot_s"] for one in facts.objectives if "tpot_s" in one.limits_s]
    if not limits or facts.bounds.stations:
        return None
    return facts.bounds.batch_within(min(limits)) or None


def _memory(facts: Facts) -> Iterator[Lever]:
    def share(place: Place) -> float | None:
        stated = place.options.num_gpu_blocks_override or place.options.kv_cache_memory_bytes
        sized = place.servers.gpu is not None and place.servers.model is not None and not stated
        return UTILISATION if sized and place.options.gpu_memory_utilization < UTILISATION else None

    def narrow(place: Place) -> str | None:
        sized = place.servers.deployment.capacity is not None and place.options.num_gpu_blocks_override is None
        return "fp8" if sized and place.servers.model is not None and place.options.kv_cache_dtype != "fp8" else None

    sets = everywhere(facts, "engine.gpu_memory_utilization", share)
    says = from_to("gpu_memory_utilization", now(facts, "gpu_memory_utilization"), sets)
    yield Lever("memory_utilisation", says, sets, KV)
    sets = everywhere(facts, "engine.kv_cache_dtype", narrow)
    yield Lever(
        "kv_dtype", from_to("kv_cache_dtype", now(facts, "kv_cache_dtype"), sets), sets, KV, changes_answers=True
    )


def _budget(facts: Facts) -> Iterator[Lever]:
    def budget(place: Place, tokens: int) -> int | None:
        known = place.servers.deployment.batching.has_token_budget
        return tokens if known and place.options.max_num_batched_tokens != tokens else None

    def cap(place: Place, tokens: int) -> int | None:
        now, known = place.options.long_prefill_token_threshold, place.options.enable_chunked_prefill
        return tokens if known and (not now or now > tokens) and tokens < place.options.max_num_batched_tokens else None

    computing = ("both", "prefill")
    for tokens in BUDGETS:
        sets = everywhere(facts, "engine.max_num_batched_tokens", lambda p, t=tokens: budget(p, t), computing)
        says = from_to("max_num_batched_tokens", now(facts, "max_num_batched_tokens", computing), sets)
        yield Lever("token_budget", says, sets, BUDGET)
    for tokens in PREFILL_CAPS:
        if facts.prompt_quantile(0.999) > tokens:
            sets = everywhere(facts, "engine.long_prefill_token_threshold", lambda p, t=tokens: cap(p, t), computing)
            says = f"long_prefill_token_threshold → {tokens}: no prompt takes more of a step"
            yield Lever("prefill_cap", says, sets, HEAD_OF_LINE)


def _order(facts: Facts) -> Iterator[Lever]:
    """Shortest first, by what a server can know: the prompt's length, or an answer's as an honest predictor has it."""

    def order(place: Place, by: str) -> dict[str, Any] | None:
        if place.servers.deployment.ordering is None or ordering_of(facts, place) != "fcfs":
            return None
        return {"policy": "sjf", "by": by, "ageing": max(1, round(facts.prompt_quantile(0.99) / PATIENCE_S))}

    computing = ("both", "prefill")
    sets = everywhere(facts, "engine.ordering", lambda p: order(p, "prompt"), computing)
    yield Lever("order_by_prompt", "shortest prompt first, with ageing", sets, HEAD_OF_LINE)
    sets = everywhere(facts, "engine.ordering", lambda p: order(p, "total"), computing)
    told, known = facts.predictor
    if sets:
        sets = sets if known else (("workload.predictor", told), *sets)
        quality = ", ".join(f"{key} {value}" for key, value in told.items() if key != "policy")
        by = " ".join([told["policy"], quality]).strip()
        says = f"shortest first by prompt and predicted answer ({by}), with ageing"
        yield Lever("order_by_prediction", says, sets, HEAD_OF_LINE)


def ordering_of(facts: Facts, place: Place) -> str:
    """Name of the ordering of a place."""
    return facts.written(place).engine.ordering.policy


def _work(facts: Facts) -> Iterator[Lever]:
    if facts.shares_prefixes:
        sets = everywhere(
            facts, "engine.enable_prefix_caching", lambda p: None if p.options.enable_prefix_caching else True
        )
        yield Lever("prefix_cache", "enable_prefix_caching → true", sets, PREFIX)
    sets = everywhere(
        facts,
        "engine.async_scheduling",
        lambda p: True if p.options.in_flight == 1 and p.servers.model is not None else None,
    )
    yield Lever("async_scheduling", "async_scheduling → true", sets, STEP_TIME)

    def quantised(place: Place) -> str | None:
        model, gpu = place.servers.model, place.servers.gpu
        if model is None or gpu is None or model.weight_dtype != "bfloat16":
            return None
        return "fp8" if "fp8" in gpu.flops_per_s else "awq"

    sets = everywhere(facts, "engine.quantization", quantised)
    says = f"weights {from_to('bfloat16', set(), sets)} (a checkpoint of that kind)"
    yield Lever("quantisation", says, sets, WORK, changes_answers=True)


def now(facts: Facts, option: str, roles: tuple[str, ...] = ("both", "prefill", "decode")) -> set[Any]:
    """The values of an engine option as it is, over the places of these roles."""
    return {getattr(place.options, option) for place in facts.places if place.role in roles}


def from_to(option: str, now: set[Any], sets: tuple[tuple[str, Any], ...]) -> str:
    """ "max_num_seqs 16 → 64", or with several values the new ones alone."""
    new = sorted({str(value) for _, value in sets})
    old = f" {next(iter(now))}" if len(now) == 1 else ""
    return f"{option}{old} → {', '.join(new)}"
