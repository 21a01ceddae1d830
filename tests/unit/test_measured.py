"""Kernel times of a deployment from the shipped fits: sensible physics, relatives, provenance, size and speed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from llmqsim.cost.families import FAMILIES
from llmqsim.cost.measured import Measured
from llmqsim.cost.store import Store, machine, shipped
from llmqsim.errors import DataError
from llmqsim.hardware.gpu import gpu

PRESETS = Path(__file__).parents[2] / "llmqsim" / "presets"
H100 = Measured(gpu("h100-sxm"), "vllm", "0.19.0")
A100 = Measured(gpu("a100-sxm-80gb"), "vllm", "0.14.0")


def test_the_presets_stay_small_and_their_archives_are_those_of_the_index():
    assert sum(path.stat().st_size for path in PRESETS.rglob("*") if path.is_file()) < 10e6
    index = json.loads((PRESETS / "kernels" / "index.json").read_text())
    assert set(index["archives"]) == {path.name for path in (PRESETS / "kernels").glob("*.npz")}
    for name, digest in index["archives"].items():
        assert hashlib.sha256((PRESETS / "kernels" / name).read_bytes()).hexdigest().startswith(digest), name


def test_every_configuration_says_where_it_comes_from():
    index = shipped().index
    assert index["inputs"] and {fitted.family for fitted in shipped().fitted} == set(FAMILIES)
    for fitted in shipped().fitted:
        assert fitted.facts["source"] in index["sources"] and fitted.facts["rows"] >= 12 and fitted.box
        machine(str(fitted.config["gpu"]))


def test_versions_and_backends_are_never_pooled():
    seen = [json.dumps([fitted.family, dict(fitted.config)], sort_keys=True) for fitted in shipped().fitted]
    assert len(set(seen)) == len(seen)
    for fitted in shipped().fitted:
        assert {"gpu", "backend", "backend_version", "dtype"} <= set(fitted.config)


def test_large_products_reach_a_plausible_share_of_the_peak():
    for measured, peak in ((H100, 9.9e14), (A100, 3.12e14)):
        rate = 2.0 * 8192 * 8192 * 8192 / measured.gemm_seconds(8192, 8192, 8192)
        assert 0.5 * peak < rate < 0.95 * peak


def test_a_cliff_stays_a_cliff():
    """8-bit products jump between 128 and 129 rows on H100 (the kernel tables' README)."""
    below, above = H100.gemm_seconds(np.array([128, 129]), 4096, 8192, "fp8")
    assert above > 1.1 * below


def test_eight_bit_weights_are_read_faster():
    assert H100.gemm_seconds(8, 16384, 8192, "fp8") < 0.8 * H100.gemm_seconds(8, 16384, 8192)


def test_weights_without_timings_cost_their_bytes():
    """4-bit products were not timed; nor were 8-bit ones on A100, which has no such arithmetic."""
    assert 0.25 < H100.gemm_seconds(1, 16384, 8192, "int4") / H100.gemm_seconds(1, 16384, 8192) < 0.4
    assert 0.5 < A100.gemm_seconds(1, 16384, 8192, "fp8") / A100.gemm_seconds(1, 16384, 8192) < 0.7
    large = [A100.gemm_seconds(4096, 16384, 8192, dtype) for dtype in ("fp8", "bfloat16")]
    assert 0.9 < large[0] / large[1] < 1.1


def test_attention_follows_its_arithmetic_and_traffic():
    short, long = H100.decode_seconds(64, np.array([1000, 16000]), 32, 8, 128)
    assert 4 < long / short < 17
    assert H100.decode_seconds(64, 16000, 32, 8, 128, window=128) < long / 5
    prompts = H100.prefill_seconds(np.array([2048, 8192]), 0, 32, 8, 128)
    assert 8 < prompts[1] / prompts[0] < 17


def test_a_chunk_on_a_prefix_costs_the_plain_prefill_of_equal_arithmetic():
    whole = H100.prefill_seconds(4096, 0, 32, 8, 128)
    assert H100.prefill_seconds(2048, 0, 32, 8, 128) < H100.prefill_seconds(2048, 2048, 32, 8, 128) < whole


def test_random_routing_reads_fewer_experts_than_balanced_timings_when_it_decodes():
    shape = {"num_tokens": 8.0, "hidden": 4096, "inter": 14336, "topk": 2, "num_experts": 8, "tp": 1, "ep": 1}
    timed = float(H100.seconds("moe", {"distribution": "balanced"}, shape))
    assert 0.85 * timed < H100.moe_seconds(8, 4096, 14336, 2, 8) < 0.95 * timed  # 7.2 of 8 experts
    shape["num_tokens"] = 4096.0
    timed = float(H100.seconds("moe", {"distribution": "balanced"}, shape))
    assert H100.moe_seconds(4096, 4096, 14336, 2, 8) == pytest.approx(timed, rel=1e-6)


def test_eight_bit_experts_never_cost_more_than_sixteen_bit_ones():
    n = np.array([1.0, 16, 128, 1024, 8192])
    for dtype in ("fp8", "fp8_block"):
        assert np.all(H100.moe_seconds(n, 5120, 8192, 1, 16, 2, 1, dtype) <= H100.moe_seconds(n, 5120, 8192, 1, 16, 2))


@pytest.mark.parametrize("how", [{"tp": 8}, {"ep": 8}])
def test_experts_are_shared_out(how):
    one, eight = H100.moe_seconds(256, 7168, 2048, 8, 256), H100.moe_seconds(256, 7168, 2048, 8, 256, **how)
    assert 3 < one / eight < 9


def test_latent_attention_has_times():
    short, long = H100.mla_decode_seconds(32, np.array([1024, 16384]), 16)
    assert 0 < short < long
    assert H100.mla_prefill_seconds(4096, 0, 16) > H100.mla_prefill_seconds(1024, 0, 16) > 0
    assert H100.mla_projection_seconds(64, 16, "mla_gen_pre") > 0


def test_all_reduce_grows_with_message_and_gpus():
    small, large = H100.all_reduce_seconds(np.array([8192, 64 * 1024**2]), 4)
    assert 3e-6 < small < 8e-6 and 50 < large / small < 100
    assert H100.all_reduce_seconds(262144, 8) > H100.all_reduce_seconds(262144, 2)


def test_what_was_not_measured_on_a_gpu_is_borrowed_and_said():
    wide, narrow = (A100.decode_seconds(128, 8000, 32, 8, 128, dtype) for dtype in ("bfloat16", "fp8"))
    assert 0.4 < narrow / wide < 0.8
    small = Measured(gpu("a100-sxm-40gb"), "vllm", "0.14.0")
    assert 1.15 < small.gemm_seconds(8, 8192, 8192) / A100.gemm_seconds(8, 8192, 8192) < 1.35
    assert any("A100-SXM-80GB" in note and "median/P90" in note for note in small.notes())


def test_a_folder_without_fits_is_refused(tmp_path):
    with pytest.raises(DataError, match="index.json: no such file; `llmqsim calibrate fit"):
        Store(tmp_path)
