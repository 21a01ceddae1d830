"""Price: how long a step takes on the GPU, from the cost tables and the copies that it carries."""

from __future__ import annotations

from llmqsim.cost import kernels
from llmqsim.cost.lower import StepCost
from llmqsim.engine import rules
from llmqsim.engine.plan import StepPlan
from llmqsim.kv.transfer import HostLink


def duration_ns(plan: StepPlan, cost: StepCost, link: HostLink, block_size: int, repeated_blocks: int = 0) -> int:
    """Nanoseconds of a step whose rows are known, copies of KV blocks between host and GPU included.

    Copies that somebody needs come before it; those ahead of need go on beside it.

    repeated_blocks : blocks that requests read beside another that brought them from memory.
    """
    decodes = plan.decode_requests + plan.idle_rows
    read = rules.read_kv_tokens(
        plan.decode_kv_tokens + plan.idle_kv_tokens, decodes, repeated_blocks * block_size, cost.cached_read_percent
    )
    attention = 0.0
    for query_tokens, kv_tokens in plan.chunks.values():
        attention += kernels.prefill_attention_ns(cost.costs, cost.params, query_tokens, kv_tokens)
    duration = kernels.step_ns(
        cost.costs,
        cost.params,
        decodes,
        read,
        plan.prefill_tokens + plan.padding_tokens,
        len(plan.chunks),
        attention,
        plan.sampled_rows + plan.idle_rows,
        plan.running,
    )
    if plan.ahead_blocks:
        duration = max(duration, link.copy_ns(plan.ahead_blocks))
    copied = plan.copied_blocks + plan.loaded_tokens // block_size
    return duration + link.copy_ns(copied) if copied else duration
