"""Levers that move two settings at once, because one bounds the other: no single change is allowed, or helps."""

from __future__ import annotations

from collections.abc import Iterator

from llmqsim.planner.advise.facts import Facts, Place
from llmqsim.planner.advise.levers import BUDGET, Lever, everywhere
from llmqsim.planner.advise.settings import BUDGETS, MOST_SLOTS, SLOT_FACTORS

MARKED = 0.1
"""share of all waiting for slots, or for the token budget, from which more of both is tried"""
SMALLEST = 128
"""tokens: the least budget that is tried with as few slots"""


def levers(facts: Facts) -> Iterator[Lever]:
    """Token budget and slots: vLLM refuses a budget below max_num_seqs, so that each holds the other where it is."""
    for budget in (SMALLEST, *BUDGETS):
        yield _both(facts, budget, lambda p, b=budget: b if b < p.options.max_num_seqs else None)
    if facts.waits("slots") + facts.waits("token_budget") < MARKED:
        return
    for factor in SLOT_FACTORS:
        for budget in BUDGETS:
            yield _both(facts, budget, lambda p, f=factor, b=budget: _more(p, f, b))


def _more(place: Place, factor: int, budget: int) -> int | None:
    """So many more slots, where the budget is raised with them and holds them."""
    slots = min(factor * place.options.max_num_seqs, MOST_SLOTS)
    raised = budget > place.options.max_num_batched_tokens
    return slots if raised and place.options.max_num_seqs < slots <= budget else None


def _both(facts: Facts, budget: int, slots) -> Lever:
    def knows(place: Place) -> bool:
        return place.servers.deployment.batching.has_token_budget and slots(place) is not None

    computing = ("both", "prefill")
    one = everywhere(facts, "engine.max_num_batched_tokens", lambda p: budget if knows(p) else None, computing)
    two = everywhere(facts, "engine.max_num_seqs", lambda p: slots(p) if knows(p) else None, computing)
    said = ", ".join(sorted({str(value) for _, value in two}))
    says = f"max_num_batched_tokens → {budget} and max_num_seqs → {said}"
    return Lever("budget_and_slots", says, (*one, *two), BUDGET, parts=("slots", "token_budget"))
