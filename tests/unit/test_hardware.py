"""GPUs and engine presets: values, their sources, and how a user's options are merged over them."""

from __future__ import annotations

from dataclasses import fields

import pytest

from llmqsim.errors import ScenarioError
from llmqsim.hardware.data import read_preset
from llmqsim.hardware.gpu import gpu, gpu_names
from llmqsim.hardware.model import model
from llmqsim.hardware.serving import HOST_KEYS, engine_names, engine_options
from llmqsim.options import EngineOptions

LLAMA, H100, A100 = model("llama-3.1-8b"), gpu("h100-sxm"), gpu("a100-sxm-80gb")


@pytest.mark.parametrize("name", gpu_names())
def test_every_value_of_a_gpu_has_a_source(name):
    card = gpu(name)
    for field in fields(card):
        value = getattr(card, field.name)
        if isinstance(value, int | float):
            assert len(card.sources[field.name]) > 10
    for dtype in card.flops_per_s:
        assert len(card.sources[f"flops_per_s.{dtype}"]) > 10
    # error correction takes a sixteenth of a GDDR card's memory
    assert 0.91 < card.usable_memory_bytes / card.memory_bytes < 1.0


def test_gpu_aliases_and_unknown_names():
    assert gpu("H100-SXM-80GB") == H100
    with pytest.raises(ScenarioError, match="gpu: unknown preset .got 'h100-sxn'.; did you mean 'h100-sxm'"):
        gpu("h100-sxn")


def test_the_40_gb_card_differs_in_memory_only():
    small = gpu("a100-sxm-40gb")
    assert small.memory_bandwidth_bytes_per_s < A100.memory_bandwidth_bytes_per_s
    assert small.flops_per_s == A100.flops_per_s
    assert small.coefficients == A100.name


@pytest.mark.parametrize("name", engine_names())
@pytest.mark.parametrize("card", [H100, A100, gpu("a100-sxm-40gb"), None])
def test_every_option_has_an_origin(name, card):
    options, host, origins = engine_options(name, card, LLAMA if card else None, 1, {})
    for field in fields(EngineOptions):
        if field.name not in ("preset", "batching", "ordering", "preemption"):
            assert origins[field.name]
    assert all(origins[f"host.{key}"] for key in HOST_KEYS)
    assert options.max_num_batched_tokens >= options.max_num_seqs
    assert host.source


def test_defaults_follow_the_gpu():
    large, _, _ = engine_options("vllm-0.19", H100, LLAMA, 1, {})
    small, _, _ = engine_options("vllm-0.19", A100, LLAMA, 1, {})
    assert (large.max_num_seqs, large.max_num_batched_tokens) == (1024, 8192)
    assert (small.max_num_seqs, small.max_num_batched_tokens) == (256, 2048)
    assert large.max_model_len == 131072


def test_versions_differ_where_the_engines_do():
    old, old_host, _ = engine_options("vllm-0.8", H100, LLAMA, 1, {})
    mid, mid_host, _ = engine_options("vllm-0.14", H100, LLAMA, 1, {})
    new, _, _ = engine_options("vllm-0.19", H100, LLAMA, 1, {})
    assert (old.in_flight, mid.in_flight, new.in_flight) == (1, 2, 2)
    assert [o.scheduler_reserve_full_isl for o in (old, mid, new)] == [False, False, True]
    assert old_host.per_step_s > 4 * mid_host.per_step_s
    # engine_semantics section 3: 51 sizes up to 512, and every 8 up to 512 before
    assert len(new.cudagraph_capture_sizes) == 51 and new.cudagraph_capture_sizes[-1] == 512
    assert old.cudagraph_capture_sizes[:5] == (1, 2, 4, 8, 16) and len(old.cudagraph_capture_sizes) == 67


def test_capture_sizes_follow_max_num_seqs():
    options, _, _ = engine_options("vllm-0.19", H100, LLAMA, 1, {"max_num_seqs": 60})
    assert options.cudagraph_capture_sizes[-1] == 120


def test_overrides():
    options, host, origins = engine_options(
        "vllm-0.19",
        H100,
        LLAMA,
        1,
        {
            "max_model_len": "auto",
            "async_scheduling": False,
            "enforce_eager": True,
            "kv_cache_dtype": "fp8",
            "max_num_seqs": None,
            "host": {"per_step": 0.001, "request_before": None},
        },
    )
    assert options.max_model_len is None and options.in_flight == 1 and options.cudagraph_capture_sizes == ()
    assert options.max_num_seqs == 1024
    assert host.per_step_s == 0.001 and host.request_before_s == 0.004
    assert origins["kv_cache_dtype"] == origins["host.per_step"] == "scenario"


def test_chunked_prefill_off_raises_the_budget():
    options, _, _ = engine_options("vllm-0.19", H100, LLAMA, 1, {"enable_chunked_prefill": False})
    assert options.max_num_batched_tokens == 131072


def test_a_cost_model_of_ones_own_brings_nothing_else():
    options, host, _ = engine_options("vllm-0.19", None, None, 1, {}, ideal=True)
    assert options.in_flight == 1 and options.cudagraph_capture_sizes == () and options.max_model_len is None
    assert all(getattr(host, name) == 0.0 for name in HOST_KEYS.values())
    options, host, _ = engine_options("vllm-0.19", None, None, 1, {"in_flight": 2, "host": {"per_step": 0.5}}, ideal=True)
    assert options.in_flight == 2 and host.per_step_s == 0.5


def test_unknown_keys_and_presets():
    with pytest.raises(ScenarioError) as error:
        engine_options("vllm-0.19", None, None, 1, {"max_num_seq": 4, "host": {"per_stp": 1.0}})
    assert "did you mean 'max_num_seqs'" in error.value.faults[0]
    assert "did you mean 'per_step'" in error.value.faults[1]
    with pytest.raises(ScenarioError, match="Known: orca-2023, .*vllm-0.14, vllm-0.19, .*vllm-0.8"):
        engine_options("vllm", None, None, 1, {})


def test_preset_sources_are_all_known_or_written_out():
    data = read_preset("engines.yaml")
    for engine in data["engines"].values():
        for entry in [*engine.values(), *engine["host"].values()]:
            if isinstance(entry, dict) and "source" in entry:
                assert entry["source"] in data["sources"] or " " in entry["source"]
