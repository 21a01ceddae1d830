"""Replicas that share one set of experts (vLLM's data_parallel_size with expert parallelism)."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim import from_mapping
from llmqsim.cost.lower import layer_of
from llmqsim.errors import ScenarioError
from llmqsim.hardware.gpu import gpu
from llmqsim.hardware.model import model
from llmqsim.hardware.serving import engine_options
from llmqsim.scenario.build import build_servers

BASE = {
    "workload": {"requests": 10, "arrivals": {"process": "burst"}, "lengths": {"prompt": 100, "output": 10}},
    "model": "qwen3-30b-a3b",
    "gpu": "h100-sxm",
    "replicas": 2,
    "engine": {"enable_expert_parallel": True, "data_parallel_size": 2},
}


def layer(**options):
    card, network = gpu("h100-sxm"), model("qwen3-30b-a3b")
    return layer_of(network, card, 1, engine_options("vllm-0.19", card, network, 1, options)[0])


def test_experts_are_split_tokens_are_not_and_all_of_them_travel():
    alone = {op.name: op for op in layer().linear_ops()}
    shared = {op.name: op for op in layer(enable_expert_parallel=True, data_parallel_size=2).linear_ops()}
    assert shared.keys() - alone.keys() == {"exchange between replicas"}
    tokens = np.array([64])
    flops, _ = alone["routed experts"].work(tokens)
    assert shared["routed experts"].work(tokens)[0] == pytest.approx(flops)  # half of the experts, twice the tokens
    exchange, reduce = shared["exchange between replicas"], layer().kernels.all_reduce
    assert exchange.seconds(tokens)[0] == pytest.approx(float(reduce.seconds(2 * 64 * 2048 * 2, 2)))


def test_each_gpu_holds_its_share_of_the_experts():
    network = model("qwen3-30b-a3b")
    experts = 48 * 128 * 3 * 2048 * 768 * 2
    assert network.weight_bytes() - network.weight_bytes(1, 1, 2) == pytest.approx(experts / 2, rel=1e-6)
    alone = build_servers(from_mapping({**BASE, "engine": {}})).deployment.capacity.blocks
    assert build_servers(from_mapping(BASE)).deployment.capacity.blocks > alone


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model": "llama-3.1-8b", "engine": {"data_parallel_size": 2}}, "the model has none (got 2)"),
        ({"engine": {"data_parallel_size": 2}}, "only with engine.enable_expert_parallel"),
        ({"replicas": 3}, "replicas must be a multiple of it (got 2 with replicas 3)"),
    ],
)
def test_what_cannot_share_experts_is_refused(change, told):
    with pytest.raises(ScenarioError, match="engine.data_parallel_size") as refused:
        build_servers(from_mapping({**BASE, **change}))
    assert told in str(refused.value)
