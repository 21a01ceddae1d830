"""Do the policies of a scenario fit each other, its options and its traffic? Each finding: the key, and what is right.

Policies and request table come as built objects; nothing here knows more of them than the fields it reads.
"""

from __future__ import annotations

from collections.abc import Iterator

Finding = tuple[str, str]

KINDS = ("batching", "ordering", "preemption")
MISSING = {
    "predicted_tokens": "goes by predicted lengths, and the traffic has none; give workload.predictor, such as oracle",
    "deadline_ns": "goes by deadlines, and nothing in the traffic has one; give slo, or the slo of a class, ttft or e2e",
    "tpot": "goes by TPOT targets, and nothing in the traffic has one; give slo, or the slo of a class, tpot",
}


def of_servers(deployment) -> Iterator[Finding]:
    """What batching, ordering and options say against each other."""
    ordering, batching = deployment.ordering, deployment.batching
    if getattr(ordering, "preempts", False) and not getattr(batching, "takes_ranks", False):
        yield (
            "engine.ordering",
            "preempts running requests for waiting ones, and this engine.batching has no place for that; use continuous, "
            "or an ordering that lets them finish",
        )
    if getattr(ordering, "swaps_ahead", False) and not deployment.preemption.swaps:
        yield (
            "engine.ordering",
            "swaps ahead of need (proactive), and this engine.preemption recomputes; use one that swaps, such as "
            "swap_newest (presets up to vllm-0.6, with engine.batching: continuous), or proactive: false",
        )
    if getattr(batching, "needs_chunks", False) and not deployment.options.enable_chunked_prefill:
        yield "engine.batching", "splits prompts, and engine.enable_chunked_prefill is false; set it to true"


def of_traffic(deployment, table) -> Iterator[Finding]:
    """What the policies need of the requests and do not find."""
    for kind in KINDS:
        for need in getattr(getattr(deployment, kind), "needs", ()):
            if not _has(table, need):
                yield f"engine.{kind}", MISSING.get(need, f"needs {need}, and the traffic has none")


def _has(table, need: str) -> bool:
    if need == "predicted_tokens_at_end":  # only deadlines of last tokens need a length
        ends = [t.ttft_ns is None and t.e2e_ns is not None for t in table.targets]
        return not any(ends) or _has(table, "predicted_tokens")
    if need == "tpot":
        return any(t.tpot_ns is not None for t in table.targets)
    return bool((getattr(table, need) >= 0).any())


MISSING["predicted_tokens_at_end"] = MISSING["predicted_tokens"]
