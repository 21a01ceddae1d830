"""Operators, coefficients and lowering: physics, provenance, speed, agreement with measured servers."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from llmqsim.cost import kernels, lower
from llmqsim.cost.coefficients import load_kernels
from llmqsim.cost.operators import Roofline
from llmqsim.hardware.data import read_preset
from llmqsim.hardware.gpu import gpu, gpu_names
from llmqsim.hardware.model import model
from llmqsim.hardware.serving import engine_options

ROOT = Path(__file__).parents[2]
KERNEL_TABLES = ROOT.parent / "shared" / "data" / "kernels"
CALIBRATED = ("a100-sxm-80gb", "h100-sxm")


def lowered(name, card, tp=1, **overrides):
    network = model(name)
    options, host, _ = engine_options("vllm-0.14", gpu(card), network, tp, overrides)
    return lower.lower(network, gpu(card), tp, options, host, options.max_model_len)


def decode_ms(cost, batch, context):
    return kernels.step_ns(cost.costs, cost.params, batch, batch * context, 0, 0, 0.0, batch, batch) / 1e6


def test_the_soft_maximum_lies_between_maximum_and_sum():
    plain, soft, added = (Roofline(0.0, 1.0, 1.0, overlap) for overlap in (float("inf"), 2.0, 1.0))
    assert plain.seconds(3.0, 4.0) == 4.0 and added.seconds(3.0, 4.0) == 7.0
    assert soft.seconds(3.0, 4.0) == pytest.approx(5.0)
    assert soft.seconds(0.0, 0.0) == 0.0


@pytest.mark.parametrize("card", gpu_names())
def test_no_kernel_beats_the_datasheet(card):
    peak = gpu(card)
    fitted = load_kernels(peak, 2)
    for family in (fitted.gemm, fitted.prefill, fitted.decode, fitted.elementwise):
        assert 0.25 < family.roofline.bytes_per_s / peak.memory_bandwidth_bytes_per_s < 1.0
    for family in (fitted.gemm, fitted.prefill):
        assert 0.4 < family.roofline.flops_per_s / peak.flops_per_s["bfloat16"] < 1.0


@pytest.mark.parametrize("name", CALIBRATED)
def test_coefficient_files_state_their_provenance(name):
    data = read_preset(f"coefficients/{name}.yaml")
    assert data["backend"].startswith("vllm 0.") and data["sources"] and data["input_sha256"]
    assert set(data["box"]) == set(kernels.AXES)
    for family in data["families"].values():
        assert family.get("fitted", True) is False or {"median_percent", "p90_percent"} <= set(family["held_out"])


def test_a_relative_is_named():
    notes = load_kernels(gpu("a100-sxm-40gb"), 2).provenance
    assert any("a100-sxm-40gb is not measured: efficiencies of a100-sxm-80gb" in note for note in notes)
    assert any("no 8-bit KV timings" in note for note in load_kernels(gpu("a100-sxm-80gb"), 1).provenance)


def test_the_releases_whose_kernels_are_taken_are_named():
    """SGLang's kernels were timed on H100 under its own 0.5.10; for a preset of vLLM the constants' own release is used."""
    for engine, said in (("sglang-0.5", "H100-SXM-80GB, sglang 0.5.10, bfloat16"), ("vllm-0.19", ", vllm 0.19.0, ")):
        card, network = gpu("h100-sxm"), model("llama-3.1-8b")
        options, host, _ = engine_options(engine, card, network, 1, {})
        cost = lower.lower(network, card, 1, options, host, 4096)
        assert said in cost.provenance[0]
        assert all(f"{backend} {version}" in cost.provenance[0] for backend, version in cost.kernels_of)


def test_decoding_is_bound_by_memory_and_prefill_by_arithmetic():
    h100, a100, small = (lowered("llama-2-7b", card) for card in ("h100-sxm", "a100-sxm-80gb", "a100-sxm-40gb"))
    assert 1.4 < decode_ms(a100, 8, 500) / decode_ms(h100, 8, 500) < 2.2
    assert 1.15 < decode_ms(small, 8, 500) / decode_ms(a100, 8, 500) < 2.039 / 1.555
    prefill = [kernels.step_ns(c.costs, c.params, 0, 0, 2048, 1, 0.0, 1, 1) for c in (a100, small)]
    assert prefill[1] / prefill[0] < 1.15


def test_tensor_parallelism_costs_communication():
    one, four = lowered("llama-2-13b", "h100-sxm"), lowered("llama-2-13b", "h100-sxm", tp=4)
    assert 1.5 < decode_ms(one, 16, 1000) / decode_ms(four, 16, 1000) < 4.0


def test_eight_bit_kv_is_read_faster():
    wide, narrow = (lowered("llama-3.1-8b", "h100-sxm", kv_cache_dtype=dtype) for dtype in ("auto", "fp8"))
    assert decode_ms(narrow, 128, 4000) < 0.75 * decode_ms(wide, 128, 4000)


@pytest.mark.parametrize(
    ("name", "card", "tp", "rate", "batch", "context", "measured_ms"),
    [
        ("llama-2-7b", "h100-sxm", 1, 5, 9, 689, 7.26),
        ("llama-2-7b", "h100-sxm", 1, 10, 22, 689, 8.89),
        ("llama-2-7b", "h100-sxm", 1, 6, 12, 875, 8.18),
        ("llama-2-70b", "h100-sxm", 4, 8, 37, 671, 18.71),
        ("llama-2-70b", "h100-sxm", 4, 20, 109, 671, 22.09),
        ("llama-3.1-8b", "h100-sxm", 1, 6, 11, 875, 7.44),
    ],
)
def test_mean_steps_of_measured_servers(name, card, tp, rate, batch, context, measured_ms):
    """Mean TPOT of inference-perf runs (../shared/data/serving); prompts there are nearly all cache hits, so that a
    mean step is a decode step, and a share of rate x step also prefills the 8 tokens that missed. batch = rate x TPOT x
    (output - 1), context = prompt + output / 2. These models' defaults switch top-p on, whose time is the fidelity
    study's (0.1 ms + 0.092 ns a logit)."""
    cost = lowered(name, card, tp, max_num_seqs=128, max_num_batched_tokens=2048)
    chunk_ns = float(kernels.prefill_attention_ns(cost.costs, cost.params, 8, context))
    shape = (batch, batch * context, 8, 1, chunk_ns, batch + 1, batch + 1)
    mixed = kernels.step_ns(cost.costs, cost.params, *shape) / 1e6
    share = min(rate * measured_ms / 1e3, 1.0)
    sampler = 0.1 + 0.092e-6 * batch * model(name).vocab
    step = (1 - share) * decode_ms(cost, batch, context) + share * mixed + sampler
    assert step == pytest.approx(measured_ms, rel=0.05)


def test_lowering_takes_less_than_a_second():
    lowered("llama-2-7b", "h100-sxm")
    start = time.perf_counter()
    cost = lowered("llama-3.1-8b", "h100-sxm")
    assert time.perf_counter() - start < 1.0
    assert np.isfinite(cost.costs).all() and (cost.costs >= 0).all()


@pytest.mark.skipif(not KERNEL_TABLES.is_dir(), reason="needs the measured kernel timings in ../shared/data/kernels")
def test_the_shipped_coefficients_are_those_of_the_fit(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "calibration")
    pytest.importorskip("pyarrow", reason="reading the kernel tables needs pyarrow")
    import fit_roofline

    monkeypatch.setattr(sys, "argv", ["fit_roofline.py", "--kernels", str(KERNEL_TABLES), "--out", str(tmp_path)])
    fit_roofline.main()
    for name in CALIBRATED:
        shipped = ROOT / "llmqsim" / "presets" / "coefficients" / f"{name}.yaml"
        assert (tmp_path / f"{name}.yaml").read_bytes() == shipped.read_bytes()


def test_engines_of_2023_are_bound_by_launches_and_slower_on_older_servers():
    network, steps = model("llama-2-70b"), {}
    for name in ("a100-sxm-80gb", "h100-sxm"):
        card = gpu(name)
        options, host, origins = engine_options("static-2023", card, network, 4, {"sampler": "plain"})
        made = lower.lower(network, card, 4, options, host, 2048)
        steps[name] = kernels.step_ns(made.costs, made.params, 1, 512, 0, 0, 0.0, 1, 1) / 1e6
        assert "static batches" in origins["host.large_steps"]
    assert steps["a100-sxm-80gb"] == pytest.approx(45, rel=0.1)  # measured: 45 and 29.7 ms
    assert steps["h100-sxm"] == pytest.approx(29.7, rel=0.1)
