"""`llmqsim fits`: the smallest layout by hand, concurrency as the start-up count, and what is refused.

Right values: weights over memory by hand; the start-up counts of test_hybrid.py.
"""

from __future__ import annotations

import json

import pytest

from llmqsim.cli import main
from llmqsim.errors import ScenarioError
from llmqsim.hardware.gpu import gpu
from llmqsim.hardware.model import model
from llmqsim.report.fits import fits, fits_text


def test_a_plain_model_is_what_divides():
    """llama-3.1-8b: 131,072 bytes a token; the pool of the account over them, in whole blocks."""
    found = fits(["llama-3.1-8b"], ["h100-sxm"], "vllm-0.19")[0]
    assert (found.tensor_parallel_size, found.pipeline_parallel_size) == (1, 1)
    left = 0.9 * gpu("h100-sxm").usable_memory_bytes - model("llama-3.1-8b").weight_bytes()
    assert 0.9 * left < found.kv_tokens * 131_072 < left
    assert found.concurrency == pytest.approx(found.kv_tokens / 8192, rel=1e-3)
    assert found.step_fits and 0.005 < found.step_s < 0.05


def test_the_smallest_layout_holds_weights_and_one_request():
    """405 billion parameters in 16 bits are 756 GiB: 16 GPUs of 80, 8 of 141; nothing of 48."""
    found = {one.gpu: one for one in fits(["llama-3.1-405b"], ["h100-sxm", "h200", "l40s"])}
    assert found["h100-sxm"].tensor_parallel_size == 16 and found["h200"].tensor_parallel_size == 8
    assert found["l40s"].why == "does not fit on 16 GPUs"


def test_a_windowed_model_counts_its_windows():
    full, windowed = fits(["llama-3.1-8b", "gemma-3-4b"], ["h200"])
    assert full.concurrency / full.concurrency_longest == pytest.approx(full.longest / 8192, rel=1e-3)
    assert windowed.concurrency / windowed.concurrency_longest < windowed.longest / 8192 / 1.5


def test_what_is_not_modelled_is_said_once():
    found = fits(["qwen3.5-27b"], ["h100-sxm", "h200"])
    page = fits_text(found, "vllm-0.26", 8192, 32)
    assert page.count("48 x gated delta net: priced as attention over a window") == 1
    assert page.count("vision_config") == 1


def test_the_command(tmp_path, capsys):
    out = tmp_path / "fits.json"
    asked = ["fits", "--models", "phi-4", "--gpus", "NVIDIA H100 80GB HBM3", "--tokens", "4096", "--json", str(out)]
    assert main(asked) == 0
    assert "| phi-4 | h100-sxm | TP1 |" in capsys.readouterr().out
    assert json.loads(out.read_text())["rows"][0]["gpu"] == "h100-sxm"
    assert main(["fits", "--models", "phy-4", "--gpus", "h100"]) == 2
    assert "unknown preset (got 'phy-4'); did you mean" in capsys.readouterr().err
    assert main(["fits", "--tokens", "0"]) == 2 and main(["fits", "--models", ","]) == 2


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("NVIDIA GB10", "no data for this card: .*nearest that has: rtx-pro-6000"),
        ("NVIDIA GeForce RTX 2080 Ti", "nearest that has: t4"),
        ("NVIDIA H1000", "unknown preset"),
    ],
)
def test_cards_without_data_are_refused_by_name(name, told):
    with pytest.raises(ScenarioError, match=told):
        gpu(name)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"), ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie"), ("NVIDIA L40S", "l40s"), ("Tesla T4", "t4"), ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"), ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"), ("H100", "h100-sxm"),
    ],
)  # fmt: skip
def test_cards_by_what_nvidia_smi_prints(name, key):
    assert gpu(name).name == key


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("deepseek-v3.1", "deepseek-v3"), ("glm-4.6", "glm-4.7"), ("mistral-small-3.2", "mistral-small-3.2-24b"),
        ("Llama-4-Maverick-17B-128E-Instruct", "llama-4-maverick-bf16"), ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Llama-3.1-8B-Instruct", "llama-3.1-8b"), ("llama-3.1-8b", "llama-3.1-8b"), ("Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b-2507"),
    ],
)  # fmt: skip
def test_short_and_long_names_of_models(name, key):
    assert model(name).name == key


def test_the_2507_builds_take_longer_requests():
    assert model("Qwen/Qwen3-235B-A22B-Instruct-2507").max_position_embeddings == 262_144
    assert model("Qwen/Qwen3-235B-A22B").max_position_embeddings == 40_960


def test_a_beginning_that_several_share_is_no_name():
    with pytest.raises(ScenarioError, match="unknown preset .got 'llama-3.1'."):
        model("llama-3.1")
