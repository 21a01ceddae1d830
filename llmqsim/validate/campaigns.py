"""What a measuring campaign left unstated of its servers and prompts, read off its own figures.

Nothing here is stated by the data or known to us: each rule is the reading under which the development rows of the
campaign fit, and docs/fidelity.md has the errors with and without it. Runs of other origin are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llmqsim.cost.store import version_order

if TYPE_CHECKING:
    from llmqsim.validate.deployment import Servers

AIPERF_SWEEPS = "aic-gap-analysis"
AIPERF_PROMPTS = 100
"""AIPerf makes so many prompts unless told otherwise (from memory) and sends them round"""
REUSES_FROM = {"vllm": "0", "trtllm": "1.2.0rc0"}
"""Products that find recurring prompts in their cache, and since which version. Others compute no more prompt tokens a
second than a GPU can; these answer more.
"""
MIXES_FROM = {"sglang": "0.5.6"}
"""Products that mix prompt and decode tokens in a step though they do not by default (SGLang's enable_mixed_chunk)"""
NOTE = "server options of these sweeps are not stated: prefix reuse, token budget and mixing were read off the campaign"


def recurring_prompts(config: Mapping[str, Any], product: str) -> dict[str, Any] | None:
    """The prefix structure of a campaign's prompts, where it recurs and is found again; None: all prompts differ."""
    if not _of_sweeps(config) or not _since(config, product, REUSES_FROM):
        return None
    return {"distinct_prompts": AIPERF_PROMPTS, "order": "round_robin"}


def set_unstated(machine: Servers, config: Mapping[str, Any], longest_tokens: int, concurrency: int) -> None:
    """Engine options that the campaign must have set. longest_tokens : of a request, prompt and answer."""
    if not _of_sweeps(config) or "pools" in machine.keys:
        return
    if machine.product == "trtllm":  # room for one prompt a step, not for as many as the default budget holds
        machine.engine.setdefault("max_num_batched_tokens", max(longest_tokens, concurrency))
        machine.engine.setdefault("max_num_seqs", concurrency)
        machine.engine.setdefault("max_model_len", longest_tokens)
    if _since(config, machine.product, MIXES_FROM):
        machine.engine.setdefault("batching", "continuous")
    machine.outside.append(NOTE)


def _of_sweeps(config: Mapping[str, Any]) -> bool:
    return str(config.get("campaign", "")).startswith(AIPERF_SWEEPS)


def _since(config: Mapping[str, Any], product: str, versions: Mapping[str, str]) -> bool:
    """Is this one of these products, and of that version or later?"""
    stated = str(config.get("engine_version") or "0")
    return product in versions and version_order(stated) >= version_order(versions[product])
