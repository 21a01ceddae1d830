"""Keys that are said to change nothing change no figure, and where a key moves figures nothing is said of it.

Each row is tried both ways: two values of the key where a rule holds (figures equal, and the key is named), and two
values where it does not (figures differ, and the key is not named). The judge is the run itself, not the rule.
"""

from __future__ import annotations

import pytest

from llmqsim import load_text, simulate
from llmqsim.report.explain import explain
from llmqsim.report.tables import screen
from llmqsim.scenario.build_idle import RULES

TEXT = """\
workload:
  requests: 60
  arrivals: {process: poisson, rate: 20 req/s}
  lengths: {prompt: {uniform: [20, 300]}, output: {uniform: [2, 40]}}
slo: {ttft: 500 ms, tpot: 50 ms}
"""
OWN = {"cost": {"model": "affine", "base": 0.005, "per_prefill_token": 2e-5, "per_decode_request": 1e-4}}
CARD = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}
TIGHT = {**OWN, "engine.num_gpu_blocks_override": 40, "engine.max_num_seqs": 32, "workload.arrivals.rate": 200}
SWAP = {**CARD, "engine.preset": "vllm-0.6", "engine.num_gpu_blocks_override": 60, "workload.arrivals.rate": 100}
SWAPS = {**SWAP, "engine.preemption": "swap_newest"}
OFFLOAD = {
    **CARD, "engine.enable_prefix_caching": True, "engine.num_gpu_blocks_override": 200, "workload.prefix.groups": 12,
    "workload.prefix.shared_tokens": 256, "workload.lengths.prompt": {"uniform": [300, 500]},
}  # fmt: skip
TWO = {**OWN, "replicas": 2}
CROWD = {**OWN, "engine.max_num_seqs": 1, "workload.arrivals.rate": 2000}
HASTY = {"workload.clients.timeout": "2 s", "workload.clients.retries.backoff": "1 s"}
CLASSES = {"workload.classes": {"a": {"share": 0.5}, "b": {"share": 0.5, "priority": 3}}}
ROWS = [
    # key, values, where it changes nothing, where it does
    ("routing", ("least_outstanding", "random"), OWN, TWO),
    ("interconnect", ("nvlink4", "pcie4"), CARD, {**CARD, "tensor_parallel_size": 2}),
    ("engine.swap_space", ("1 GiB", "8 MiB"), SWAP, {**SWAPS, "engine.num_gpu_blocks_override": 45}),
    ("engine.host_link.bandwidth", ("25 GB/s", "0.2 GB/s"), SWAP, {**SWAPS, "engine.swap_space": "4 GiB"}),
    ("engine.kv_offloading_size", ("4 GiB", "8 GiB"), {**OFFLOAD, "engine.num_gpu_blocks_override": 20000}, None),
    ("engine.cold_start", (True, False), OWN, {**CARD, "engine.host.cold_step": "50 ms"}),
    ("engine.host.cold_step", ("10 ms", "90 ms"), CARD, {**CARD, "engine.cold_start": True}),
    ("engine.sampler", ("plain", "top_p"), OWN, {**CARD, "engine.host.sampler": "5 ms"}),
    ("engine.host.sampler", ("1 ms", "9 ms"), {**CARD, "engine.sampler": "plain"}, {**CARD, "engine.sampler": "top_p"}),
    ("engine.host.sampler_per_logit", ("1e-9", "9e-9"), OWN, {**CARD, "engine.sampler": "top_p"}),
    ("engine.host.per_streamed_token", ("1 ms", "9 ms"), OWN, CARD),
    ("engine.host.eager_per_layer", ("1 ms", "9 ms"), OWN, {**CARD, "engine.enforce_eager": True}),
    ("engine.host.per_step_tp", ("1 ms", "9 ms"), OWN, {**OWN, "tensor_parallel_size": 2}),
    ("engine.host.per_mixed_layer", ("1 ms", "9 ms"), OWN, {**OWN, "model": "llama-3.1-8b"}),
    ("engine.cudagraph_capture_sizes", ([1, 8], [64]), OWN, CARD),
    ("engine.enforce_eager", (True, False), OWN, None),
    ("engine.gpu_memory_utilization", (0.8, 0.9), {**CARD, "engine.num_gpu_blocks_override": 900}, CARD),
    ("engine.quantization", ("fp8", "awq"), {**OWN, "model": "llama-3.1-8b", "engine.num_gpu_blocks_override": 900}, CARD),
    ("engine.watermark", (0.0, 0.2), OWN, TIGHT),
    ("engine.enable_prefix_caching", (True, False), OWN, {**TIGHT, "workload.prefix.shared_tokens": 64}),
    ("engine.preemption", ("recompute_newest", "least_kv"), {**OWN, "engine.num_gpu_blocks_override": 5000}, TIGHT),
    ("engine.max_num_batched_tokens", (512, 4096), {**OWN, "engine.batching": "static"}, {**OWN, "workload.arrivals.rate": 500}),
    ("workload.predictor", ("oracle", "class_mean"), OWN, {**TIGHT, "engine.ordering": "sjf"}),
    ("engine.ordering", ("priority", {"policy": "priority", "preempt": True}), OWN, {**TIGHT, **CLASSES}),
    ("workload.clients.timeout", ("2 s", "5 s"), OWN, CROWD),
    ("workload.clients.max_in_flight", (30, 50), OWN, CROWD),
    ("workload.clients.retries.attempts", (1, 4), {**OWN, **HASTY}, {**CROWD, **HASTY}),
    ("workload.classes.b.priority", (3, 0), {**TIGHT, **CLASSES}, {**TIGHT, **CLASSES, "engine.ordering": "priority"}),
]
NOT_FIGURES = ("scenario", "no_effect", "notes", "warnings", "prediction", "kv", "envelope", "engine")


def told(sets: dict, key: str, value) -> tuple[dict, set[str], dict]:
    """Figures, keys that are said to change nothing, and the whole summary."""
    summary = simulate(load_text(TEXT, sets={**sets, key: value})).summary()
    figures = {name: part for name, part in summary.items() if name not in NOT_FIGURES}
    figures["kv_used"] = {k: summary["kv"][k] for k in ("sustained_concurrency", "usage_peak", "waiting")}
    return figures, {one["key"] for one in summary["no_effect"]}, summary


@pytest.mark.parametrize(("key", "values", "idle", "live"), ROWS, ids=[row[0] for row in ROWS])
def test_what_changes_nothing_is_said_and_what_does_is_not(key, values, idle, live):
    first, second = (told(idle, key, value) for value in values)
    assert key in first[1] and key in second[1]
    assert first[0] == second[0]
    assert key in " ".join(screen_of(first[2]).split())
    if live is not None:
        first, second = (told(live, key, value) for value in values)
        assert first[0] != second[0], "this row shows nothing: the key does not matter here"
        assert key not in first[1] | second[1]


def screen_of(summary: dict) -> str:
    """The screen of a summary."""
    from llmqsim.report.tables import render

    return render(summary)


def test_every_rule_is_tried():
    tried = {row[0] for row in ROWS}
    untried = [keys for keys, _ in RULES if not any(key == k or key.startswith(f"{k}.") for key in tried for k in keys)]
    assert untried == []


def test_nothing_is_said_of_keys_that_nobody_wrote():
    result = simulate(load_text(TEXT, sets=OWN))
    assert result.summary()["no_effect"] == [] and "no effect" not in screen(result)


def test_explain_says_what_holds_before_a_run():
    assert [one["key"] for one in explain(load_text(TEXT, sets={**OWN, "routing": "random"}))["no_effect"]] == ["routing"]
