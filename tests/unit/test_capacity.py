"""KV capacity: against measured servers, by hand, and what is refused."""

from __future__ import annotations

import pytest

from llmqsim.errors import ScenarioError
from llmqsim.hardware.gpu import gpu
from llmqsim.hardware.hf_config import model_from_config
from llmqsim.hardware.model import model
from llmqsim.hardware.serving import engine_options
from llmqsim.kv.capacity import kv_capacity
from tests.unit.test_model import NEMO, QWEN

CODE_LLAMA = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_hidden_layers": 48,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 22016,
    "vocab_size": 32000,
    "max_position_embeddings": 16384,
}


def options(network, card="h100-sxm", tp=1, **overrides):
    return engine_options("vllm-0.14", gpu(card), network, tp, overrides)[0]


@pytest.mark.parametrize(
    ("network", "tp", "measured"),
    [
        (model("llama-2-7b"), 1, 7_462),
        (model("llama-2-70b"), 4, 31_356),
        (model_from_config(NEMO), 1, 19_251),
        (model_from_config(CODE_LLAMA), 2, 26_602),
    ],
)
def test_blocks_of_measured_servers(network, tp, measured):
    """vLLM 0.15.1 on H100, utilisation 0.9, 2,048 tokens, 128 sequences (../shared/data/serving/cases.yaml)."""
    setup = options(network, tp=tp, max_num_seqs=128, max_num_batched_tokens=2048)
    assert kv_capacity(network, gpu("h100-sxm"), tp, setup).blocks == pytest.approx(measured, rel=0.01)


def test_items_add_up_to_the_pool():
    capacity = kv_capacity(model("llama-2-70b"), gpu("h100-sxm"), 4, options(model("llama-2-70b"), tp=4))
    *parts, pool = capacity.items
    assert sum(item.bytes for item in parts) == pool.bytes
    assert capacity.blocks == pool.bytes // capacity.bytes_per_block_per_gpu
    assert {item.name for item in parts} >= {"memory", "weights", "collectives"}


def test_a_stated_pool_and_the_formula():
    network = model_from_config(QWEN)
    setup = options(network, kv_cache_memory_bytes=10 * 1024**3, max_num_seqs=64, max_model_len=8192)
    capacity = kv_capacity(network, gpu("h100-sxm"), 1, setup)
    assert (capacity.blocks, capacity.tokens) == (11_702, 187_232)
    assert capacity.formula == "2 x 28 layers x 4 KV heads x 128 head size x 2 bytes = 57,344 bytes a token"


def test_guaranteed_concurrency_and_usable_blocks():
    setup = options(None, card="a100-sxm-80gb", num_gpu_blocks_override=2360)
    capacity = kv_capacity(None, None, 1, setup)
    assert capacity.tokens == 37_760 and capacity.usable_blocks == 2359
    assert capacity.guaranteed_concurrency(8192) == pytest.approx(4.609, abs=1e-3)
    assert capacity.bytes_per_token is None


def test_eight_bit_kv_doubles_the_blocks():
    network = model_from_config(QWEN)
    wide, narrow = (
        kv_capacity(network, gpu("h100-sxm"), 1, options(network, kv_cache_dtype=dtype)) for dtype in ("auto", "fp8")
    )
    assert narrow.blocks in (2 * wide.blocks, 2 * wide.blocks + 1)
    assert narrow.items[:-1] == wide.items[:-1]


def test_the_override_wins():
    network = model("llama-2-7b")
    setup = options(network, num_gpu_blocks_override=1000)
    capacity = kv_capacity(network, gpu("h100-sxm"), 1, setup)
    assert capacity.blocks == 1000 and capacity.source == "num_gpu_blocks_override"


def test_weights_that_do_not_fit():
    network = model("llama-2-70b")
    with pytest.raises(ScenarioError, match=r"does not fit on 1 x h100-sxm .*128.48 GiB .*= 71.28 GiB"):
        kv_capacity(network, gpu("h100-sxm"), 1, options(network))


def test_a_pool_smaller_than_one_request():
    network = model("llama-2-7b")
    setup = options(network, num_gpu_blocks_override=100, max_model_len=4096)
    with pytest.raises(ScenarioError, match=r"engine.max_model_len: .*99 usable blocks x 16 = 1,584 tokens"):
        kv_capacity(network, gpu("h100-sxm"), 1, setup)
    assert kv_capacity(network, gpu("h100-sxm"), 1, setup, check_max_model_len=False).blocks == 100


def test_what_is_needed_is_named():
    network = model("llama-2-7b")
    with pytest.raises(ScenarioError, match="num_gpu_blocks_override"):
        kv_capacity(None, None, 1, options(None))
    with pytest.raises(ScenarioError, match="^gpu: missing"):
        kv_capacity(network, None, 1, options(network))
    with pytest.raises(ScenarioError, match="one is reserved"):
        kv_capacity(network, None, 1, options(network, num_gpu_blocks_override=1))
