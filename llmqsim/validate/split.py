"""Prefill and decode on separate workers: the scenario's pools and hand-off, from a group's keys of each role."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqsim.errors import ScenarioError

HANDOFF = "vllm_nixl"
"""for every engine: the decode worker pulls. What SGLang and TensorRT-LLM do (push) costs a closed loop as much"""
LINKS = {"vllm": "rdma-400g"}
OTHER_LINK = "rdma-400g-mooncake"
"""a 400G NIC for each GPU, which such servers have; no file says it. Engines with pages other than vLLM's merge them"""


def split_pools(config: Mapping[str, Any], product: str, experts: bool) -> tuple[dict[str, Any], int, list[str]]:
    """Scenario keys, GPUs in all, and what was assumed. experts : has the model any?

    Raises ScenarioError where the parallelism of a role is not stated.
    """
    pools: dict[str, Any] = {}
    gpus, assumed = 0, []
    for role in ("prefill", "decode"):
        tp = _size(config, f"{role}_tp_size")
        if tp is None:
            raise ScenarioError(f"{role}_tp_size: missing; a split deployment needs the GPUs of each worker")
        attention = _size(config, f"{role}_attention_dp_size") or 1
        tp, pp = max(tp, attention), _size(config, f"{role}_pp_size") or 1
        workers = _size(config, f"{role}_num_workers")
        if workers is None:
            assumed.append(f"{role} workers are not counted: one is taken")
        if attention > 1:
            assumed.append(f"{role}: attention in data parallel is taken as tensor parallel")
        pool: dict[str, Any] = {"replicas": workers or 1, "tensor_parallel_size": tp}
        if pp > 1:
            pool["pipeline_parallel_size"] = pp
        if experts and (_size(config, f"{role}_moe_ep_size") or 1) > 1:
            pool["engine"] = {"enable_expert_parallel": True}
        pools[role] = pool
        gpus += (workers or 1) * tp * pp
    link = LINKS.get(product, OTHER_LINK)
    assumed.append(f"the KV link is not stated: {link} is taken")
    return {"pools": pools, "handoff": {"preset": HANDOFF, "link": link}, "routing": "least_outstanding"}, gpus, assumed


def _size(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 1
    return int(value) if usable else None
