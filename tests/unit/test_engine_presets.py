"""Engine presets: what each version does, what it lacks, and how its steps are captured."""

from __future__ import annotations

import pytest

from llmqsim import policies, registry
from llmqsim.cost import kernels, lower
from llmqsim.errors import ScenarioError
from llmqsim.hardware.data import read_preset
from llmqsim.hardware.gpu import gpu
from llmqsim.hardware.model import model
from llmqsim.hardware.serving import batching_policy, engine_names, engine_options
from llmqsim.scenario.build import build_servers
from llmqsim.scenario.load import from_mapping

assert policies, "imported to register the built-in policies"

LLAMA, H100 = model("llama-3.1-8b"), gpu("h100-sxm")


def options(preset, card=H100, network=LLAMA, tp=1, **overrides):
    return engine_options(preset, card, network, tp, overrides)[0]


@pytest.mark.parametrize("name", engine_names())
def test_every_preset_names_a_batching_policy_and_resolves(name):
    made, host, _ = engine_options(name, H100, LLAMA, 1, {})
    policy, source = batching_policy(name)
    assert policy in registry.names("batching") and source
    assert made.max_num_batched_tokens >= made.max_num_seqs
    assert host.per_step_s > 0 and host.eager_per_layer_s > 0


def test_versions_of_vllm_are_ranges():
    entries = read_preset("engines.yaml")["engines"]
    spoken = [alias for name, entry in entries.items() for alias in (name, *entry["aliases"])]
    assert len(spoken) == len(set(spoken))
    assert {f"vllm-0.{minor}" for minor in range(5, 28)} <= set(spoken)
    assert options("vllm-0.16") == options("vllm-0.14")


def test_prefix_caching_watermark_and_swap_by_version():
    v0, v1, late = (options(name) for name in ("vllm-0.6", "vllm-0.8", "vllm-0.24"))
    assert [o.enable_prefix_caching for o in (v0, v1, late)] == [False, True, True]
    assert [o.watermark for o in (v0, v1, late)] == [0.01, 0.0, 0.0]
    assert v0.swap_space_bytes == 4 * 1024**3 and v1.swap_space_bytes == 0
    assert (v1.gpu_memory_utilization, late.gpu_memory_utilization) == (0.9, 0.92)


def test_v0_chunks_by_length_and_its_budget_follows():
    short = model("llama-2-7b")
    whole = options("vllm-0.6", network=short)
    assert not whole.enable_chunked_prefill and whole.max_num_batched_tokens == 4096
    long = options("vllm-0.6")
    assert long.enable_chunked_prefill and long.max_num_batched_tokens == 512
    asked = options("vllm-0.6", network=short, enable_chunked_prefill=True)
    assert asked.max_num_batched_tokens == 512


def test_defaults_of_the_other_engines():
    big, small = options("sglang-0.5"), options("sglang-0.5", card=gpu("l4"))
    assert (big.max_num_batched_tokens, small.max_num_batched_tokens) == (8192, 4096)
    assert options("sglang-0.5", card=gpu("b200")).max_num_batched_tokens == 16384
    assert big.block_size == 1 and big.cudagraph_mode == "full_decode_only" and big.in_flight == 2
    trt = options("trtllm-1.0")
    assert (trt.max_num_seqs, trt.max_num_batched_tokens, trt.max_model_len) == (2048, 8192, 8192)
    assert options("orca-2023").cudagraph_capture_sizes == () == options("static-2023").cudagraph_capture_sizes


@pytest.mark.parametrize(
    ("preset", "key", "value"),
    [
        ("vllm-0.6", "async_scheduling", True),
        ("vllm-0.6", "in_flight", 2),
        ("vllm-0.6", "scheduler_reserve_full_isl", True),
        ("vllm-0.6", "enable_expert_parallel", True),
        ("vllm-0.8", "swap_space_bytes", 1 << 30),
        ("vllm-0.14", "watermark", 0.01),
        ("vllm-0.14", "scheduler_reserve_full_isl", True),
        ("sglang-0.5", "watermark", 0.05),
        ("trtllm-1.0", "swap_space_bytes", 1 << 30),
        ("orca-2023", "enable_chunked_prefill", True),
        ("static-2023", "cudagraph_capture_sizes", (1, 2, 4)),
    ],
)
def test_an_option_that_a_version_does_not_have_is_refused(preset, key, value):
    written = key.replace("swap_space_bytes", "swap_space")
    with pytest.raises(ScenarioError, match=f"engine.{written}: {preset} .* does not have it .got .*leave it out"):
        options(preset, **{key: value})


WORKLOAD = {"requests": 3, "arrivals": {"process": "burst"}, "lengths": {"prompt": 100, "output": 10}}


def test_the_preset_brings_its_batching_policy_and_the_scenario_may_name_another():
    scenario = {"workload": WORKLOAD, "model": "llama-2-7b", "gpu": "h100-sxm", "engine": {"preset": "sglang-0.5"}}
    assert type(build_servers(from_mapping(scenario)).deployment.batching) is type(registry.make("batching", "sglang"))
    scenario["engine"]["batching"] = "continuous"
    named = build_servers(from_mapping(scenario)).deployment.batching
    assert type(named) is type(registry.make("batching", "continuous"))


def test_options_are_checked_against_a_preset_that_somebody_chose():
    own_cost = {"workload": WORKLOAD, "cost": {"model": "constant", "step": "10 ms"}, "engine": {"watermark": 0.1}}
    assert build_servers(from_mapping(own_cost)).deployment.options.watermark == 0.1
    own_cost["engine"]["preset"] = "vllm-0.19"
    with pytest.raises(ScenarioError, match="engine.watermark: vllm-0.19 .* does not have it"):
        build_servers(from_mapping(own_cost))


def test_what_changes_nothing_is_let_pass():
    assert options("vllm-0.6", async_scheduling=False) == options("vllm-0.6")
    assert options("orca-2023", enforce_eager=True) == options("orca-2023")


def test_synchronous_scheduling_shows_its_host_time():
    hosts = [engine_options("vllm-0.14", H100, LLAMA, 1, {"async_scheduling": flag})[1] for flag in (True, False)]
    assert [host.per_step_s for host in hosts] == [0.00026, 0.00135]


def step(cost, decodes, prefill=0, rows=1):
    return kernels.step_ns(cost.costs, cost.params, decodes, decodes * 500, prefill, int(prefill > 0), 0.0, rows, decodes)


def lowered(preset="vllm-0.14", network=LLAMA, card=H100, **overrides):
    made, host, _ = engine_options(preset, card, network, 1, overrides)
    return lower.lower(network, card, 1, made, host, 8192)


def test_decode_only_graphs_leave_prefill_steps_unpadded():
    both, decode_only = lowered(), lowered(cudagraph_mode="full_decode_only")
    assert kernels.padded_tokens(both.params, 100, 1) == 104 == kernels.padded_tokens(decode_only.params, 100, 0)
    assert kernels.padded_tokens(decode_only.params, 100, 1) == 100
    assert step(both, 100) == step(decode_only, 100)


def test_launches_bound_a_small_eager_step():
    eager = lowered(enforce_eager=True, host={"eager_per_layer": 0.001})
    assert step(eager, 1) > 32e6 > step(lowered(), 1)
    large = lowered(enforce_eager=True)
    assert step(large, 0, 2048) == pytest.approx(step(lowered(), 0, 2048), rel=1e-9)


def test_top_p_sampling_sorts_the_vocabulary():
    plain, sorting = lowered(sampler="plain"), lowered()
    extra = step(sorting, 100, rows=100) - step(plain, 100, rows=100)
    assert extra == pytest.approx((1e-4 + 9.2e-11 * 128_256 * 100) * 1e9, abs=2)
    slow = lowered(card=gpu("a100-sxm-80gb"))
    slow_plain = lowered(card=gpu("a100-sxm-80gb"), sampler="plain")
    more = (step(slow, 100, rows=100) - step(slow_plain, 100, rows=100) - 1e5) / (extra - 1e5)
    assert more == pytest.approx(3.35 / 2.039, rel=1e-4)
    assert options("vllm-0.14", network=model("mixtral-8x7b")).sampler == "plain"


def test_priority_scheduling_brings_its_victims_unless_told_else():
    scenario = {"workload": WORKLOAD, "cost": {"model": "constant", "step": 0.1}, "engine": {"ordering": "priority"}}
    victims = build_servers(from_mapping(scenario)).deployment.preemption
    assert type(victims) is type(registry.make("preemption", "recompute_least_urgent"))
    scenario["engine"]["preemption"] = "recompute_newest"
    told = build_servers(from_mapping(scenario)).deployment.preemption
    assert type(told) is type(registry.make("preemption", "recompute_newest"))


def test_experts_of_2024_are_slower_and_dense_models_are_not():
    card = gpu("h100-sxm")
    for name, factor in (("mixtral-8x7b", 1.2), ("llama-2-70b", 0.0)):
        _, host, _ = engine_options("trtllm-0.12", card, model(name).quantized("fp8"), 1, {})
        assert host.large_step_share == factor
        _, today, _ = engine_options("trtllm-1.0", card, model(name).quantized("fp8"), 1, {})
        assert today.large_step_share == 0.0
