"""Weights and KV of a step come from memory, whatever the timings on a warm cache say."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim.cost.tabled import COLD_READ_SHARE
from llmqsim.cost.lower import layer_of
from llmqsim.hardware.gpu import gpu
from llmqsim.hardware.model import model
from llmqsim.hardware.serving import engine_options


@pytest.mark.parametrize("name", ["l40s", "h100-sxm", "a100-sxm-80gb"])
def test_nothing_is_read_faster_than_memory_delivers(name):
    card, network = gpu(name), model("llama-2-7b")
    options, _, _ = engine_options("vllm-0.15", card, network, 1, {})
    layer, rate = layer_of(network, card, 1, options), COLD_READ_SHARE * card.memory_bandwidth_bytes_per_s
    batch, context = np.array([1.0, 8.0, 64.0]), 700.0
    kv = batch * context * 2 * network.layers * network.kv_heads * network.head_dim * 2
    assert np.all(layer.decode_seconds(batch, context) >= kv / rate * 0.999)
    assert float(layer.gemm("bfloat16").seconds(8, 4096, 4096)) >= 2 * 4096 * 4096 / rate * 0.999
