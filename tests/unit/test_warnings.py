"""What is not modelled and applies is said before the answer, with its direction, and is not said where it does not.

Right values: the counts of layers in the files themselves; for windowed models a closed form, requests times what each
layer holds (a full layer the whole context, a windowed one at most its window).
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from llmqsim import load, load_text, simulate
from llmqsim.errors import ScenarioError
from llmqsim.hardware.hf_config import model_from_config
from llmqsim.hardware.model import model, model_names
from llmqsim.planner.compare import compare
from llmqsim.planner.theory import check_theory
from llmqsim.planner.warned import warned_if_built
from llmqsim.report import tradeoff_screen
from llmqsim.report.compare_screen import compare_text
from llmqsim.report.explain import explain
from llmqsim.report.explain_page import explain_text
from llmqsim.report.tables import screen
from llmqsim.report.theory_screen import theory_text
from llmqsim.scenario.build_warnings import window_factor
from llmqsim.simulation import prepare
from llmqsim.tradeoff import tradeoff

CONFIGS = Path(__file__).parents[3] / "shared" / "data" / "model_configs"
TEXT = """\
workload: {requests: 4, arrivals: {process: constant, rate: 1 req/s}, lengths: {prompt: 8000, output: 200}}
model: llama-3.1-8b
gpu: h100-sxm
engine: {preset: vllm-0.19}
"""
PLAIN = {
    "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 52, "num_attention_heads": 8, "num_key_value_heads": 8,
    "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 32768,
}  # fmt: skip

SAID = {
    "deepseek-v3.1-nvfp4": {"quantization_config"},
    "deepseek-v3.2": {"index_topk"},
    "devstral-small-2-24b": {"vision_config"},
    "gemma-3-27b-it": {"vision_config"},
    "gemma-3-4b-it": {"vision_config"},
    "gemma-3n-e4b": {"altup_num_inputs", "model_type"},
    "gemma-4-26b-a4b": {"vision_config"},
    "gemma-4-31b-it-nvfp4": {"vision_config"},
    "gemma-4-e2b": {"vision_config"},
    "glm-5": {"index_topk"},
    "kimi-k2.5": {"vision_config"},
    "lfm2.5-vl-1.6b": {"vision_config"},
    "minimax-m3": {"sparse_attention_config"},
    "mistral-small-3.1-24b-instruct-2503": {"vision_config"},
    "nemotron-3-super-120b-a12b-fp8": {"quantization_config"},
    "qwen2.5-vl-7b-instruct": {"vision_config"},
    "qwen3-vl-235b-a22b": {"vision_config"},
    "qwen3-vl-8b": {"vision_config"},
    "qwen3.5-122b-a10b": {"vision_config"},
    "qwen3.5-27b": {"vision_config"},
    "qwen3.5-35b-a3b": {"vision_config"},
    "qwen3.5-397b-a17b": {"vision_config"},
}
"""file -> keys that are said; of the others nothing is said, or the file is refused"""
REFUSED = {
    "deepseek-v4-flash": "caches of compressed tokens",
    "deepseek-v4-pro": "caches of compressed tokens",
    "falcon-mamba-7b": "no layer keeps keys and values",
    "granite-4.0-h-tiny-fp8": "vocab_size: missing",
}
"""file -> why"""


def codes(sets: dict, text: str = TEXT) -> dict[str, str]:
    """Code to text of what a scenario warns of."""
    return {one.code: one.text for one in prepare(load_text(text, sets=sets)).caveats()}


@pytest.mark.skipif(not CONFIGS.is_dir(), reason="the model configurations are not in this checkout")
def test_published_configurations_say_what_is_not_modelled_or_are_refused():
    said, refused = {}, {}
    for path in sorted(CONFIGS.glob("*.json")):
        try:
            keys = {one.key for one in model_from_config(path).unmodelled}
        except ScenarioError as error:
            refused[path.stem] = str(error)
            continue
        if keys:
            said[path.stem] = keys
    assert said == SAID
    assert set(refused) == set(REFUSED)
    assert all(why in refused[name] for name, why in REFUSED.items())


def test_presets_are_read_as_they_are():
    """Towers, sparse attention and streams are said of presets, too; nothing about their family."""
    keys = {one.key for name in model_names() for one in model(name).unmodelled}
    assert keys == {"vision_config", "index_topk", "sparse_attention_config", "altup_num_inputs"}


@pytest.mark.parametrize(
    ("extra", "key", "told"),
    [
        # 4 stars in 52 layers: 13 times the KV of the four that attend
        ({"hybrid_override_pattern": "M-M-M*M-M-M-M*-MMMMMM" + "M-" * 10 + "M*-M*-M-M-M"}, "hybrid_override_pattern", "13 times too large"),
        ({"layer_types": ["conv"] * 26 + ["full_attention"] * 26}, "layer_types", "2 times too large"),
        ({"attn_type_list": [0] * 39 + [1] * 13}, "attn_type_list", "4 times too large"),
        ({"linear_attn_config": {"full_attn_layers": [4, 8]}}, "linear_attn_config", "26 times too large"),
        ({"num_kv_shared_layers": 26}, "num_kv_shared_layers", "2 times too large, so too few requests"),
        ({"use_cla": True, "cla_share_factor": 2}, "use_cla", "2 times too large"),
        ({"index_topk": 2048}, "index_topk", "2,048 keys of a context; it is priced as dense, so long contexts are too slow"),
        ({"global_head_dim": 512, "head_dim": 128}, "global_head_dim", "too small, so too many requests"),
        ({"num_global_key_value_heads": 2}, "num_global_key_value_heads", "heads of their own"),
        ({"model_type": "totally_new_arch"}, "model_type", "'totally_new_arch' is read as a plain transformer"),
        ({"vision_config": {"depth": 32}}, "vision_config", "too many requests fit"),
        ({"brand_new_attn_window": 7}, "brand_new_attn_window", "may err either way"),
    ],
)  # fmt: skip
def test_a_file_that_is_read_as_dense_says_what_that_leaves_out(tmp_path, extra, key, told):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PLAIN | extra))
    found = {one.key: one.effect for one in model_from_config(path, "dense").unmodelled}
    assert set(found) == {key, "model_type"} and told in found[key]
    asked = {"model": {"config": str(path), "architecture": "dense"}, "workload.lengths.prompt": 100}
    scenario = load_text(TEXT, sets=asked)
    said = [one.text for one in prepare(scenario).caveats() if one.code == "architecture"]
    assert sum(key in text for text in said) == 1
    page = explain_text(explain(scenario)).split("\n")
    assert page[0].startswith("warning: ") and key in " ".join(page[:5])


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"hybrid_override_pattern": "M" * 48 + "*" * 4}, "ssm_state_size: missing from the config.json"),
        ({"hybrid_override_pattern": "Q" * 52}, "hybrid_override_pattern: layers of this kind are not known here .got 'Q'"),
        ({"layer_types": ["conv"] * 26 + ["full_attention"] * 26}, "conv_L_cache: missing"),
        ({"layer_types": ["retention"] * 52}, "layer_types: layers of this kind are not known here .got 'retention'"),
        ({"layer_types": ["linear_attention"] * 52}, "layer_types: linear attention without the sizes of its state"),
        ({"linear_attn_config": {"full_attn_layers": [99]}}, "linear_attn_config.full_attn_layers: must list layers from 1"),
        ({"index_topk": 2048}, "index_topk: sparse attention without the width of its index keys"),
        ({"model_type": "totally_new_arch"}, "'totally_new_arch' is not known here; the nearest that is: llama"),
        ({"model_type": "totally_new", "kv_lora_rank": 512}, "the nearest that is: deepseek_v3.*architecture: dense"),
        ({"model_type": "qwen4_moe"}, "the nearest that is: qwen3_moe"),
        ({"model_type": "deepseek_v4"}, "caches of compressed tokens.*nearest that is: deepseek_v32"),
        ({"brand_new_attn_window": 7}, "brand_new_attn_window: not understood"),
        ({"attn_type_list": [0] * 52}, "attn_type_list: no layer keeps keys and values"),
        ({"sliding_window_pattern": "LXG"}, "sliding_window_pattern: must be a number, or letters L and G"),
    ],
)
def test_what_is_not_understood_is_refused_with_the_nearest(extra, why):
    with pytest.raises(ScenarioError, match=why):
        model_from_config(PLAIN | extra)


def test_an_architecture_can_be_named():
    strange = PLAIN | {"model_type": "qwen9"}
    assert model_from_config(strange, "qwen2").qkv_bias and not model_from_config(strange, "dense").qkv_bias
    assert [one.key for one in model_from_config(strange, "qwen2").unmodelled] == ["model_type"]
    with pytest.raises(ScenarioError, match="architecture: not known .got 'qwen99'"):
        model_from_config(strange, "qwen99")


@pytest.mark.parametrize(
    "off",
    [
        {"use_cla": False}, {"num_kv_shared_layers": 0}, {"vision_config": None}, {"layer_types": ["full_attention"] * 52},
        {"attention_dropout": 0.1}, {"attention_bias": True}, {"rope_scaling": {"factor": 8}}, {"index_topk": None},
    ],
)  # fmt: skip
def test_keys_that_are_off_or_harmless_say_nothing(off):
    assert model_from_config(PLAIN | off).unmodelled == ()


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"model_type": "bert"}, "model_type: .*'bert'"),
        ({"model_type": "whisper", "is_encoder_decoder": True}, "model_type: .*'whisper'"),
        ({"model_type": "new", "is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"model_type": "new", "architectures": ["NewForMaskedLM"]}, "architectures: .*NewForMaskedLM"),
    ],
)
def test_encoders_are_refused(extra, named):
    with pytest.raises(ScenarioError, match=named + ".*give a decoder-only model"):
        model_from_config(PLAIN | extra)


@pytest.mark.parametrize(
    ("name", "full", "windowed", "window"), [("gemma-3-27b", 10, 52, 1024), ("gpt-oss-120b", 18, 18, 128)]
)
def test_windowed_models_say_by_how_much_too_few_run(name, full, windowed, window):
    """8,000 + 200 tokens: all layers hold 8,200 here; a hybrid manager holds 8,200 in `full` and `window` in the rest."""
    right = (full + windowed) * 8200 / (full * 8200 + windowed * window)
    told = codes({"model": name})["windowed_kv"]
    assert f"about {right:.2g} times as many requests of 8,200 tokens, so concurrency is too low" in told


def test_a_window_that_no_request_fills_and_an_engine_that_kept_all_say_nothing():
    short = {"workload.lengths.prompt": 50, "workload.lengths.output": 50}
    assert "windowed_kv" not in codes({"model": "gemma-3-27b", **short})
    assert "windowed_kv" not in codes({"model": "gemma-3-27b", "engine.preset": "vllm-0.6"})
    assert codes({}) == {}


def test_lengths_that_differ_are_weighed_by_what_they_hold():
    import numpy as np

    assert window_factor(0.5, 100, np.array([50, 50])) == 1
    assert window_factor(0.5, 100, np.array([50, 250])) == pytest.approx(300 / (50 + 125 + 50))


def test_the_floor_of_a_windowed_model_is_what_the_run_can_reach():
    """gemma-3-4b, prompts of 30,000: the pool in full layers holds what the run reaches, not what a hybrid one logs."""
    sets = {"model": "gemma-3-4b", "gpu": "a100-sxm-80gb", "engine.max_model_len": 16384}
    kv = explain(load_text(TEXT, sets=sets))["kv"]
    assert kv["guaranteed_concurrency"] == kv["tokens"] / 16384
    assert kv["guaranteed_concurrency_formula"].startswith(f"{kv['tokens']:,} / 16,384 = {kv['tokens'] / 16384:.2f}")
    shown, result = kv["hybrid_concurrency_formula"].split(" = ")
    pages, each = (float(part.split()[0].replace(",", "")) for part in shown.split(" / "))
    assert float(result.split()[0]) == pytest.approx(pages / each, rel=1e-3)
    # 5 full and 29 windowed layers: groups of 5, six of them with a window of 1,024, budget 2,048
    assert each == 1024 + 6 * (math.ceil((1023 + 2048) / 16) + 1) and kv["pool"]["padding_layers"] == 1
    sets = {"model": "gemma-3-4b", "workload.lengths": {"prompt": 30000, "output": 200}, "engine.max_model_len": 30200}
    sets |= {"workload.arrivals": {"process": "burst"}, "workload.requests": 40, "engine.max_num_seqs": 64}
    kv = simulate(load_text(TEXT, sets={**sets, "engine.num_gpu_blocks_override": 8001})).summary()["kv"]
    assert kv["guaranteed_concurrency"] <= kv["sustained_concurrency"]["peak"] + 1


def test_eager_mode_says_that_it_hardly_costs_anything():
    told = codes({"engine.enforce_eager": True})["enforce_eager"]
    assert "32 layers takes some 16 to 26 ms at least, so TPOT is too low" in told  # 0.5 to 0.8 ms a layer
    assert codes({"engine.enforce_eager": False}) == {}
    assert codes({"engine.enforce_eager": True, "engine.host.eager_per_layer": "0.6 ms"}) == {}
    assert codes({"engine.enforce_eager": True, "cost": {"model": "constant", "step": 0.01}}) == {}


@pytest.mark.parametrize(
    ("preset", "card", "said"),
    [
        ("vllm-0.19", "h100-sxm", False),
        ("vllm-0.22", "h100-sxm", True),  # the alias names one release
        ("vllm-0.24", "h100-sxm", True),
        ("vllm-0.14", "a100-sxm-80gb", False),
        ("vllm-0.19", "a100-sxm-80gb", True),
    ],
)
def test_kernels_of_another_release_are_said(preset, card, said):
    told = codes({"engine.preset": preset, "gpu": card}).get("kernel_version", "")
    assert bool(told) == said
    assert not said or (f"the preset is {preset}" in told and "2 to 12 %" in told)


def test_another_engines_kernels_and_costs_of_ones_own():
    assert (
        "another engine's kernels by more"
        in codes({"engine.preset": "trtllm-0.12", "workload.lengths.prompt": 100})["kernel_version"]
    )
    assert codes({"engine.preset": "vllm-0.24", "cost": {"model": "constant", "step": 0.01}}) == {}


def test_ranks_that_share_experts_say_that_they_do_not_wait():
    shared = {"model": "qwen3-30b-a3b", "engine.enable_expert_parallel": True, "tensor_parallel_size": 2}
    assert "expert_parallel" not in codes(shared)
    told = codes({**shared, "replicas": 4, "engine.data_parallel_size": 4})["expert_parallel"]
    assert "the 4 ranks that share experts step freely" in told and "TPOT is too low" in told


def test_screen_json_and_page_say_the_same_first():
    scenario = load_text(TEXT, sets={"engine.preset": "vllm-0.24", "engine.enforce_eager": True})
    result = simulate(scenario)
    told = result.summary()["warnings"]
    assert [one["code"] for one in told] == ["enforce_eager", "kernel_version"]
    assert explain(scenario)["warnings"] == told
    shown = [" ".join(text.split()) for text in (screen(result), explain_text(explain(scenario)))]
    assert all(one["text"] in text for one in told for text in shown)
    assert shown[1].startswith("warning: ")


def test_answers_from_many_runs_say_it_first_and_for_which_variant(tmp_path):
    path = tmp_path / "s.yaml"
    small = TEXT.replace("prompt: 8000", "prompt: 100") + "slo: {ttft: 500 ms, tpot: 50 ms}\n"
    path.write_text(small + "variants: {newer: {engine.preset: vllm-0.24}}\n")
    told = compare(path, ["base", "newer"], 1)
    assert [one["text"].partition(":")[0] for one in told["warnings"]] == ["newer"]
    assert compare_text(told).startswith("warning: newer: kernels were timed under vllm 0.19.0")
    whole = compare(path, ["newer"], 1, sets=["engine.preset=vllm-0.24"])["warnings"]
    assert [one["text"].partition(" ")[0] for one in whole] == ["kernels"]
    assert warned_if_built(load(path, sets={"model": "llama-3.1-405b"})) == []  # it does not fit
    newer = ["engine.preset=vllm-0.24", "workload.requests=40"]
    theory = check_theory(path, sets=newer, replications=2)
    knob = tradeoff(str(path), "engine.max_num_seqs", [8], sets=newer)
    assert [one["code"] for one in theory["warnings"]] == ["kernel_version"] == [one["code"] for one in knob.warnings]
    assert tradeoff_screen.told(knob)["warnings"] == list(knob.warnings)
    assert all(text.startswith("warning: kernels") for text in (theory_text(theory), tradeoff_screen.screen(knob)))
