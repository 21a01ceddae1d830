"""C05: swaps, by hand and in the engine's own costs."""

from __future__ import annotations

import pytest

from llmqsim.claims import FOLDER, Setting
from llmqsim.claims.c05 import per_block_s, ratios
from llmqsim.simulation import prepare
from tests.claims.claims import measured, misses

SETTING = Setting(FOLDER, reduced=True)


def test_it_holds():
    assert misses("C05") == set()


def test_merged_copies_are_bytes_over_bandwidth():
    found = {check: line["simulated"] for check, line in measured("C05").items()}
    assert found["13B, 2,048 tokens: there and back, ms"] == pytest.approx(2 * 2048 * 819_200 / 25e9 * 1e3)
    assert found["8B with grouped KV heads, 8,192 tokens: there and back, ms"] == pytest.approx(
        2 * 8192 * 131_072 / 25e9 * 1e3
    )


@pytest.mark.parametrize(("merged", "pieces"), [(None, "per_block"), ("gqa_8b", "gqa_8b_per_block")])
def test_the_scenario_states_what_pieces_cost(merged, pieces):
    """As the header says: a launch of 5 microseconds for each layer's keys and values of a block, and their bytes."""
    servers = prepare(SETTING.load("c05", merged)).servers
    link = servers.deployment.link
    each = per_block_s(link.block_bytes, servers.model.layers, link.bytes_per_s)
    stated = prepare(SETTING.load("c05", pieces)).servers.deployment.link.per_block_ns / 1e9
    assert stated == pytest.approx(each, rel=0.02)


def test_fewer_kv_heads_favour_the_swap_and_pieces_the_computation():
    """A 70B's KV is small beside its arithmetic; with a copy a piece an H100 computes faster than it copies."""
    h100 = {"gpu": "h100-sxm", "engine.host_link.bandwidth": "50 GB/s"}
    mha, gqa = {"model": "llama-2-7b", **h100}, {"model": "llama-3.1-70b", "tensor_parallel_size": 4, **h100}
    assert ratios(SETTING, mha, [2048], pieces=False)[0] < 1.3
    assert ratios(SETTING, gqa, [2048], pieces=False)[0] > 10
    assert ratios(SETTING, gqa, [2048], pieces=True)[0] < 1


def test_contexts_that_the_model_does_not_take_are_left_out():
    assert ratios(SETTING, {"model": "llama-2-7b"}, [4096, 8192], pieces=False)[1] is None
