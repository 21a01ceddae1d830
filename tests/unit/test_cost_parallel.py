"""Step costs of experts, latent attention, windows, quantised weights, stages and links: limits that physics sets."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim.cost import kernels, lower
from llmqsim.cost.moe import active_experts
from llmqsim.hardware.gpu import gpu, linked, own_gpu
from llmqsim.hardware.model import model
from llmqsim.hardware.serving import engine_options

H100, H200 = gpu("h100-sxm"), gpu("h200")


def layer(network, card=H100, tp=1, **overrides):
    options, _, _ = engine_options("vllm-0.14", card, network, tp, overrides)
    return lower.layer_of(network, card, tp, options)


def seconds(made, name, tokens):
    return next(float(op.seconds(tokens)) * op.calls for op in made.linear_ops() if op.name == name)


def test_expected_active_experts():
    assert active_experts(0, 8, 2) == 0
    assert active_experts(1, 8, 2) == pytest.approx(2)
    assert active_experts(10, 8, 2) == pytest.approx(8 * (1 - 0.75**10))
    assert active_experts(10**6, 128, 8) == pytest.approx(128)
    assert active_experts(3, 4, 4) == 4


def test_a_draw_of_random_routing_touches_as_many():
    rng = np.random.default_rng(0)
    draws = [len(np.unique([rng.choice(16, 4, replace=False) for _ in range(5)])) for _ in range(400)]
    assert np.mean(draws) == pytest.approx(float(active_experts(5, 16, 4)), rel=0.02)


def test_one_token_reads_its_experts_and_many_read_all():
    made = layer(model("mixtral-8x7b"), tp=2)
    expert_bytes = 32 * 3 * 4096 * 14336 * 2 / 2
    rate = made.kernels.gemm.roofline.bytes_per_s
    assert seconds(made, "routed experts", 1) == pytest.approx(2 * expert_bytes / rate + 32 * 1e-5, rel=0.3)
    assert seconds(made, "routed experts", 64) == pytest.approx(8 * expert_bytes / rate + 32 * 1e-5, rel=0.1)


def test_measured_mixtral_decode_step():
    """vLLM 0.15.1, TP 2: 19.16 ms at 8 req/s (../shared/data/serving, ip-h100-mixtral-8x7b-v01-tp2-general-e9)."""
    network = model("mixtral-8x7b")
    options, host, _ = engine_options("vllm-0.15", H100, network, 2, {"max_num_seqs": 128, "max_num_batched_tokens": 2048})
    cost = lower.lower(network, H100, 2, options, host, 4096)
    batch = 38
    step_ms = kernels.step_ns(cost.costs, cost.params, batch, batch * 670, 0, 0, 0.0, batch, batch) / 1e6
    assert step_ms == pytest.approx(19.16, rel=0.05)


def test_dense_layers_and_shared_experts_are_costed_apart():
    made = layer(model("deepseek-v3"), H200, 8)
    calls = {op.name: op.calls for op in made.linear_ops()}
    assert (calls["gate and up"], calls["shared gate and up"], calls["routed experts"]) == (3, 58, 58)
    assert calls["latent down"] == 61 and "QKV" not in calls


def test_flops_of_a_token_are_twice_its_active_parameters():
    for name in ("llama-3.1-8b", "mixtral-8x7b", "qwen3-235b-a22b", "deepseek-v3", "gpt-oss-120b"):
        network = model(name)
        made = layer(network, H200)
        flops = sum((op.work(1)[0] or 0.0) * op.calls for op in made.linear_ops())
        inside = network.active_parameters - 2 * network.vocab * network.hidden
        assert flops == pytest.approx(2 * inside, rel=0.002)


def test_bytes_of_a_full_step_are_the_weights():
    """At many tokens every expert is read; a step never reads less than its share of the weights."""
    for name in ("mixtral-8x7b", "qwen3-30b-a3b"):
        network = model(name)
        made = layer(network, H200)
        moved = sum(op.work(512)[1] * op.calls for op in made.linear_ops())
        assert moved > network.weight_bytes() - 2 * 2 * network.vocab * network.hidden


def test_latent_attention_reads_one_latent_for_all_heads():
    made = layer(model("deepseek-v3"), H200, 8)
    long, longer = (float(made.decode_seconds(64, context)) for context in (50_000, 100_000))
    read = 64 * 50_000 * 576 * 2 * 61 / made.kernels.decode.roofline.bytes_per_s
    assert longer - long == pytest.approx(read, rel=0.05)
    assert float(made.prefill_seconds(512, 30_000)) > float(made.prefill_seconds(512, 0)) * 10


def test_a_window_bounds_attention():
    windowed, full = layer(model("mistral-7b-v0.1")), layer(model("mistral-7b"))
    assert float(windowed.decode_seconds(8, 3000)) == pytest.approx(float(full.decode_seconds(8, 3000)), rel=0.05)
    assert float(windowed.decode_seconds(8, 30_000)) == pytest.approx(float(full.decode_seconds(8, 4096)), rel=0.05)
    assert float(windowed.prefill_seconds(2048, 0)) == pytest.approx(float(full.prefill_seconds(2048, 0)), rel=1e-9)
    far = [float(windowed.prefill_seconds(2048, prefix)) for prefix in (8192, 16384)]
    assert far[0] == pytest.approx(far[1], rel=1e-9) and far[0] < float(full.prefill_seconds(2048, 8192))


def test_keys_seen_through_a_window_are_counted_exactly():
    made = layer(model("mistral-7b-v0.1"))
    for query, prefix in ((100, 0), (100, 4050), (6000, 0), (6000, 3000), (5, 10_000)):
        seen = sum(min(prefix + i, 4096) for i in range(1, query + 1))
        equal = float(made.windowed_prefix(query, prefix))
        assert query * (equal + query / 2) == pytest.approx(seen, rel=0.01)


def test_quantised_weights_are_read_faster_and_eight_bit_units_compute_faster():
    network = model("llama-3.1-70b")

    def both(dtype):
        made = layer(network.quantized(dtype), H100, 4)
        return seconds(made, "gate and up", 8), seconds(made, "gate and up", 4096)

    wide, eight, four = both("bfloat16"), both("fp8"), both("int4")
    assert eight[0] < 0.6 * wide[0] and four[0] < 0.62 * eight[0]
    assert eight[1] < 0.65 * wide[1] and four[1] == pytest.approx(wide[1], rel=0.1)
    old = gpu("a100-sxm-80gb")
    assert seconds(layer(network.quantized("fp8"), old, 4), "gate and up", 4096) > 0.9 * seconds(
        layer(network, old, 4), "gate and up", 4096
    )


def test_gpt_oss_quantises_its_experts_alone():
    made = layer(model("gpt-oss-120b"))
    assert {m.dtype for m in made.matrices()} == {"bfloat16"}


def test_stages_send_and_links_differ():
    network = model("llama-3.1-70b")
    staged = layer(network, tp=2, pipeline_parallel_size=4)
    assert {op.name: op.calls for op in staged.linear_ops()}["send to the next stage"] == 3
    slow = layer(network, linked(H100, "pcie4"), 2)
    message = 64 * 2 * 8192
    assert float(slow.kernels.all_reduce.seconds(message, 2)) == pytest.approx(50e-6 + message / 6.9e9)
    assert float(slow.kernels.all_reduce.seconds(7_000, 2)) == pytest.approx(12e-6 + 7_000 / 1.5e9)  # the other protocol
    own = layer(network, linked(H100, {"latency": 5e-6, "bandwidth": 50e9}), 4)
    assert float(own.kernels.all_reduce.seconds(message, 4)) == pytest.approx(5e-6 + 1.5 * message / 50e9)
    assert seconds(slow, "all-reduce", 64) > 5 * seconds(layer(network, tp=2), "all-reduce", 64)


def test_expert_parallelism_reads_the_same_and_moves_fewer_rows():
    network = model("qwen3-30b-a3b")
    sliced, whole = (layer(network, H100, 4, enable_expert_parallel=flag) for flag in (False, True))
    ops = [next(op for op in made.linear_ops() if op.name == "routed experts") for made in (sliced, whole)]
    assert ops[0].work(64)[0] == ops[1].work(64)[0]
    assert ops[1].work(64)[1] < ops[0].work(64)[1]


def test_a_gpu_of_ones_own_scales_its_relative():
    twice = own_gpu({"like": "h100-sxm", "name": "twice", "memory_bandwidth": 6.7e12, "flops": {"bfloat16": 2 * 9.894e14}})
    network = model("llama-3.1-8b")
    fast, plain = layer(network, twice), layer(network)
    assert twice.flops_per_s["fp8"] == pytest.approx(2 * H100.flops_per_s["fp8"])
    for tokens in (1, 4096):
        gain = seconds(plain, "gate and up", tokens) / seconds(fast, "gate and up", tokens)
        assert 1.7 < gain < 2.0  # the launch stays
    assert any("twice is not measured: efficiencies of h100-sxm" in note for note in fast.kernels.provenance)


def test_a_gpu_of_ones_own_takes_the_nearest_relative():
    old = own_gpu({"name": "old", "memory": 48 << 30, "memory_bandwidth": 0.9e12, "flops": {"bfloat16": 1.5e14}})
    assert old.coefficients == "a100-sxm-80gb" and old.sources["memory_bytes"] == "written in the scenario"
    new = own_gpu({"name": "new", "memory": 96 << 30, "memory_bandwidth": 4e12, "flops": {"bfloat16": 1.2e15}})
    assert new.coefficients == "h100-sxm"
