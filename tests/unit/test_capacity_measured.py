"""KV blocks against every server of the serving data whose pool is known, within 3 %."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmqsim.hardware.data import read_preset
from llmqsim.hardware.gpu import gpu
from llmqsim.hardware.hf_config import model_from_config
from llmqsim.hardware.model import model
from llmqsim.hardware.serving import engine_options
from llmqsim.kv.capacity import bytes_per_block_per_gpu, kv_capacity

CASES = Path(__file__).parents[3] / "shared" / "data" / "serving" / "cases.yaml"
GIB = 1024**3
UTILISATION = {
    # The run states 0.9, at which weights and measured KV alone need more memory than the share holds (71.5 of 71.3 GiB).
    "Qwen/Qwen3-14B": 0.92
}
NOT_STATED = "vb-a100-qwen25-32b-tp2-kv8p22gib"
"""its memory share is unknown, so that the pool can't be worked out"""


def measured_cases():
    """(id, config) of every case with a measured pool, each deployment once."""
    if not CASES.is_file():
        return []
    import yaml

    found = {}
    for case in yaml.load(CASES.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["cases"]:
        config = case["config"]
        if (config.get("kv_blocks") or config.get("kv_gib_per_gpu")) and case["id"] != NOT_STATED:
            key = (config["model"], config["gpu"], config["tp"], config.get("kv_blocks"), config.get("kv_gib_per_gpu"))
            found.setdefault(key, (case["id"], config))
    return list(found.values())


def deviation(config) -> tuple[int, float]:
    """Blocks worked out, and by how much they differ from the measured pool."""
    network, card, tp = model(config["model"]), gpu(config["gpu"].lower()), config["tp"]
    preset = "vllm-" + ".".join(config["engine_version"].split()[0].split(".")[:2])
    options, _, _ = engine_options(
        preset,
        card,
        network,
        tp,
        {
            "max_num_seqs": config["max_num_seqs"],
            "max_num_batched_tokens": config["max_num_batched_tokens"],
            "gpu_memory_utilization": UTILISATION.get(config["model"], config["gpu_memory_utilization"]),
            "max_model_len": config["max_model_len"],
        },
    )
    measured = config.get("kv_blocks") or config["kv_gib_per_gpu"] * GIB / bytes_per_block_per_gpu(network, tp, options)
    blocks = kv_capacity(network, card, tp, options).blocks
    return blocks, blocks / measured - 1


def page_row(name, config) -> str:
    """The row of docs/engine_presets.md about one server."""
    blocks, off = deviation(config)
    measured = f"{config['kv_blocks']:,}" if config.get("kv_blocks") else f"{config['kv_gib_per_gpu']:g} GiB"
    share = f"{UTILISATION.get(config['model'], config['gpu_memory_utilization']):g}"
    version = config["engine_version"].split()[0]
    cells = (config["model"], f"{config['tp']} x {config['gpu']}", version, share, measured, f"{blocks:,}")
    return f"| {' | '.join(cells)} | {round(100 * off, 1) + 0.0:+.1f} % |"


@pytest.mark.skipif(not CASES.is_file(), reason="needs the measured serving runs in ../shared/data/serving")
def test_every_measured_deployment_is_covered():
    models = {config["model"] for _, config in measured_cases()}
    assert len(measured_cases()) >= 11 and len(models) >= 8


@pytest.mark.skipif(not CASES.is_file(), reason="needs the measured serving runs in ../shared/data/serving")
@pytest.mark.parametrize(("name", "config"), measured_cases(), ids=[name for name, _ in measured_cases()])
def test_blocks_of_measured_servers(name, config):
    assert abs(deviation(config)[1]) <= 0.03


@pytest.mark.skipif(not CASES.is_file(), reason="needs the measured serving runs in ../shared/data/serving")
def test_the_page_shows_these_figures():
    page = (Path(__file__).parents[2] / "docs" / "engine_presets.md").read_text(encoding="utf-8")
    for name, config in measured_cases():
        assert page_row(name, config) in page


def test_windows_free_what_they_do_not_see():
    network = model("gpt-oss-120b")
    options, _, _ = engine_options("vllm-0.19", gpu("h100-sxm"), network, 2, {"max_num_batched_tokens": 2048})
    pool = kv_capacity(network, gpu("h100-sxm"), 2, options)
    # 18 + 18 layers: two groups; a window of 128 takes the tokens of a budget of 2,048 and one page more
    assert pool.hybrid.need(100_000) == 6250 + (-(-(128 - 1 + 2048) // 16) + 1)
    assert pool.hybrid_concurrency(131_072) > 1.9 * pool.tokens / 131_072
    plain = kv_capacity(model("yi-34b"), gpu("h100-sxm"), 2, options, check_max_model_len=False)
    assert plain.hybrid is None and plain.hybrid_concurrency(4096) == plain.guaranteed_concurrency(4096)


def test_a_latent_cache_is_whole_on_every_gpu():
    network, card = model("deepseek-v3"), gpu("h200")
    for tp in (8, 16):
        options, _, _ = engine_options("vllm-0.19", card, network, tp, {})
        pool = kv_capacity(network, card, tp, options)
        assert pool.bytes_per_block_per_gpu == 61 * 576 * 2 * 16
    assert "512 latent + 64 rotary" in pool.formula


def test_stages_and_expert_parallelism():
    network, card = model("llama-3.1-70b"), gpu("h100-sxm")
    flat, _, _ = engine_options("vllm-0.19", card, network, 2, {})
    staged, _, _ = engine_options("vllm-0.19", card, network, 2, {"pipeline_parallel_size": 2})
    one, two = (kv_capacity(network, card, 2, o, check_max_model_len=False) for o in (flat, staged))
    assert two.bytes_per_block_per_gpu * 2 == one.bytes_per_block_per_gpu
    assert two.blocks > 5 * one.blocks
    moe = model("mixtral-8x7b")
    sliced, _, _ = engine_options("vllm-0.19", card, moe, 2, {})
    whole, _, _ = engine_options("vllm-0.19", card, moe, 2, {"enable_expert_parallel": True})
    assert kv_capacity(moe, card, 2, sliced).blocks == kv_capacity(moe, card, 2, whole).blocks


def test_a_larger_step_and_counted_graphs_leave_less():
    network, card = model("qwen3-14b"), gpu("h100-sxm")

    def blocks(preset, **overrides):
        options, _, _ = engine_options(preset, card, network, 1, {"gpu_memory_utilization": 0.9, **overrides})
        return kv_capacity(network, card, 1, options).blocks

    small = blocks("vllm-0.19", max_num_batched_tokens=2048, max_num_seqs=256)
    assert blocks("vllm-0.19", max_num_batched_tokens=16384) < blocks("vllm-0.19") < small
    assert blocks("vllm-0.24") < blocks("vllm-0.19")
    assert blocks("vllm-0.24", enforce_eager=True) == blocks("vllm-0.19")


def test_each_memory_rule_adds_up():
    network, card = model("llama-3.1-8b"), gpu("h100-sxm")
    rules = {entry["memory"]["rule"] for entry in read_preset("engines.yaml")["engines"].values()}
    assert rules == {"vllm", "sglang", "trtllm"}
    for preset in ("vllm-0.19", "sglang-0.5", "trtllm-1.0"):
        options, _, _ = engine_options(preset, card, network, 1, {})
        pool = kv_capacity(network, card, 1, options)
        assert sum(item.bytes for item in pool.items[:-1]) == pool.items[-1].bytes
    options, _, _ = engine_options("sglang-0.5", card, network, 1, {})
    # 0.5 GiB + 1.5 MiB x 8,192 + 2 MiB x 256 + 1/8 GiB = 13.125 GiB of 79.2
    assert options.gpu_memory_utilization == pytest.approx(1 - 13.125 / 79.2, abs=1e-4)


def test_a_model_that_does_not_fit_is_told_with_its_arithmetic():
    from llmqsim.errors import ScenarioError

    network, card = model("deepseek-v3"), gpu("h100-sxm")
    options, _, _ = engine_options("vllm-0.19", card, network, 8, {})
    with pytest.raises(ScenarioError, match=r"does not fit on 8 x h100-sxm .*weights 79.29 GiB .*= 71.28 GiB"):
        kv_capacity(network, card, 8, options)


def test_a_config_of_a_new_family_needs_no_preset():
    made = model_from_config(
        {
            "model_type": "mixtral", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
            "num_key_value_heads": 2, "intermediate_size": 2048, "vocab_size": 1000, "max_position_embeddings": 4096,
            "num_local_experts": 4, "num_experts_per_tok": 2,
        }
    )
    options, _, _ = engine_options("vllm-0.19", gpu("l4"), made, 1, {})
    assert kv_capacity(made, gpu("l4"), 1, options).blocks > 100_000
