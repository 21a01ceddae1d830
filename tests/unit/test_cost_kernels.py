"""The look-up kernels: exact cases, grid arithmetic, interpolation, padding, the measured box."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqsim.cost import kernels, lower
from llmqsim.engine import rules
from llmqsim.hardware.gpu import gpu
from llmqsim.hardware.model import model
from llmqsim.hardware.serving import engine_options
from llmqsim.options import HostCost


def step(cost, decodes=0, kv=0, prefill=0, chunks=0, attention=0.0, rows=0, running=0):
    return kernels.step_ns(cost.costs, cost.params, decodes, kv, prefill, chunks, attention, rows, running)


@pytest.fixture(scope="module")
def deployment():
    network, card = model("llama-3.1-8b"), gpu("h100-sxm")
    options, host, _ = engine_options("vllm-0.19", card, network, 1, {"sampler": "plain"})
    return lower.layer_of(network, card, 1, options), lower.lower(network, card, 1, options, host, 131072), host


def test_constant_steps():
    cost = lower.constant(0.05)
    assert step(cost) == step(cost, 32, 32_000, 512, 2, 0.0, 33, 33) == 50_000_000
    assert kernels.prefill_attention_ns(cost.costs, cost.params, 512, 4096) == 0.0


def test_an_impossible_step_is_cut_to_what_int64_holds():
    cost = lower.affine(per_kv_token_s=1e6)
    assert step(cost, decodes=1, kv=2**40) == step(cost, decodes=1, kv=2**50) == 2**62


def test_affine_steps_are_exact():
    """User case S08: 1,024 tokens keep the GPU busy for 1.0; then a fixed 0.9 plus 0.1 per 1,024 tokens."""
    busy = lower.affine(per_prefill_token_s=1 / 1024)
    assert step(busy, prefill=2048, chunks=2) == 2_000_000_000
    slack = lower.affine(base_s=0.9, per_prefill_token_s=0.1 / 1024)
    assert step(slack, prefill=2048, chunks=2) == 1_100_000_000
    assert step(slack, prefill=1024, chunks=1) == 1_000_000_000


def test_every_affine_term():
    cost = lower.affine(1.0, 1e-3, 1e-4, 1e-5, 1e-6)
    assert step(cost, decodes=3, kv=50, prefill=7, chunks=1) == 1_010_780_000
    assert step(lower.affine()) == 1


@given(st.integers(0, 2**40))
def test_grid_points_bracket_a_value(value):
    index = kernels.grid_index(value)
    low, high = kernels.grid_point(index), kernels.grid_point(index + 1)
    assert low <= value < high
    assert high - low <= max(1, value / 8)


def test_grid_index_inverts_grid_point():
    points = [kernels.grid_point(index) for index in range(300)]
    assert points[:17] == list(range(17))
    assert [kernels.grid_index(point) for point in points] == list(range(300))


@pytest.mark.parametrize("batch", [1, 7, 32, 100, 900, 1024])
@pytest.mark.parametrize("context", [1, 37, 1000, 5000, 100_000])
def test_decode_steps_follow_the_operators(deployment, batch, context):
    layer, cost, host = deployment
    padded = kernels.padded_tokens(cost.params, batch)
    expected = layer.linear_seconds(np.array([padded]))[0] + layer.head_seconds(batch) + layer.decode_seconds(batch, context)
    expected += host.per_step_s + host.per_running_s * batch
    assert step(cost, batch, batch * context, rows=batch, running=batch) == pytest.approx(expected * 1e9, rel=2e-3)


@pytest.mark.parametrize(("query", "prefix"), [(1, 0), (100, 0), (2048, 0), (8192, 0), (512, 10_000), (3000, 100_000)])
def test_prefill_attention_follows_the_operators(deployment, query, prefix):
    layer, cost, _ = deployment
    found = kernels.prefill_attention_ns(cost.costs, cost.params, query, query + prefix)
    assert found == pytest.approx(layer.prefill_seconds(query, prefix) * 1e9, rel=0.02, abs=50_000)


def test_mean_context_needs_no_whole_number(deployment):
    _, cost, _ = deployment
    below, between, above = (step(cost, 3, kv, rows=3) for kv in (3 * 5000, 3 * 5000 + 1, 3 * 5000 + 3))
    assert between - below == pytest.approx((above - below) / 3, abs=2)


@given(st.integers(1, 1024), st.integers(1, 131_072))
def test_one_more_token_of_context_never_costs_much_less(batch, context):
    """Timings repeat to some 1 %, and the tables keep what was measured."""
    network, card = model("llama-2-7b"), gpu("a100-sxm-80gb")
    cost = _a100(network, card)
    assert step(cost, batch, batch * context, rows=batch) <= 1.01 * step(cost, batch, batch * (context + 1), rows=batch)


def _a100(network, card, memo={}):  # noqa: B006 - one table for all examples
    if not memo:
        options, host, _ = engine_options("vllm-0.19", card, network, 1, {"max_num_seqs": 1024, "max_num_batched_tokens": 2048})
        memo["cost"] = lower.lower(network, card, 1, options, host, 4096)
    return memo["cost"]


def test_padding(deployment):
    _, cost, _ = deployment
    padded = [kernels.padded_tokens(cost.params, tokens) for tokens in (1, 3, 5, 9, 257, 511, 512, 513, 8192)]
    assert padded == [1, 4, 8, 16, 272, 512, 512, 513, 8192]
    assert kernels.padded_tokens(lower.constant(1.0).params, 9) == 9


def test_steps_in_one_graph_size_cost_the_same_linear_time(deployment):
    layer, cost, _ = deployment
    attention = [float(layer.decode_seconds(n, 1000) + layer.head_seconds(n)) * 1e9 for n in (9, 16)]
    steps = [step(cost, n, 1000 * n, rows=n) for n in (9, 16)]
    assert steps[1] - steps[0] == pytest.approx(attention[1] - attention[0], abs=2000)


def test_beyond_a_table_the_last_slope_goes_on(deployment):
    layer, cost, _ = deployment
    far = kernels.prefill_attention_ns(cost.costs, cost.params, 16_384, 16_384)
    assert far > kernels.prefill_attention_ns(cost.costs, cost.params, 8192, 8192)
    # nearly twice: the slope is that of the table's last stretch, where tiles are fuller than on average
    assert step(cost, prefill=16_384) == pytest.approx(2 * step(cost, prefill=8192), rel=0.03)


def test_host_time_enters_as_stated():
    network, card = model("llama-2-70b"), gpu("h100-sxm")
    options, _, _ = engine_options("vllm-0.19", card, network, 4, {})
    host = HostCost(per_step_s=1e-3, per_step_tp_s=2e-3, per_running_s=1e-5, per_mixed_layer_s=1e-4)
    bare = lower.lower(network, card, 4, options, HostCost(), 4096)
    full = lower.lower(network, card, 4, options, host, 4096)
    decode = dict(decodes=4, kv=400, rows=4, running=4)
    assert step(full, **decode) - step(bare, **decode) == 3_040_000
    mixed = dict(prefill=100, chunks=1, rows=1, running=1)
    assert step(full, **mixed) - step(bare, **mixed) == 3_010_000 + 80 * 100_000


def test_the_box(deployment):
    _, cost, _ = deployment
    assert kernels.outside_box(cost.params, 32, 32_000, 512, 4096) == 0
    assert kernels.outside_box(cost.params, 4096, 4096, 0, 0) == 2
    assert kernels.outside_box(cost.params, 1, 200_000, 40_000, 40_000) == 1 | 4 | 8
    assert kernels.outside_box(lower.constant(1.0).params, 10**6, 10**12, 10**6, 10**6) == 0


def test_common_kv_is_read_once_but_no_faster_than_the_cache_delivers_it():
    assert rules.read_kv_tokens(1000, 10, 300, 50) == 700
    assert rules.read_kv_tokens(1000, 10, 900, 50) == 500
    assert rules.read_kv_tokens(1000, 10, 900, 100) == 1000  # a step cost of the user's own knows no cache
