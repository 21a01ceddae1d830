"""Names as benchmark files spell them, to presets."""

from __future__ import annotations

import pytest

from llmqsim.errors import ScenarioError
from llmqsim.validate.names import engine_preset, gpu_preset, model_preset, version_by_date


@pytest.mark.parametrize(
    ("written", "preset"),
    [
        ("H100-SXM-80GB", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("A100-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("A100-PCIE-80GB", "a100-pcie-80gb"),
        ("H200-SXM-141GB", "h200"),
        ("RTX-PRO-6000-Blackwell-96GB", "rtx-pro-6000"),
        ("L40S-48GB", "l40s"),
        ("NVIDIA B200-SXM-192GB", "b200"),
        ("GB200-NVL72", "gb200"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Tesla T4", "t4"),
    ],
)
def test_gpus(written, preset):
    assert gpu_preset(written) == preset


@pytest.mark.parametrize(
    ("written", "preset"),
    [
        ("LLaMA-7B", "llama-2-7b"),
        ("llama2-70b", "llama-2-70b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.1-70b"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "llama-3.1-8b"),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b"),
        ("Meta-Llama-3-70B-Instruct", "llama-3-70b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "qwen3-30b-a3b"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "qwen2.5-7b"),
        ("DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b-v0.1"),
        ("Llama-4-Maverick", "llama-4-maverick-fp8"),
    ],
)
def test_models(written, preset):
    assert model_preset(written) == preset


@pytest.mark.parametrize("written", ["Llama-3.1-9B", "Qwen3-14B-A3B", "Llama-5-70B", "some/unknown-model"])
def test_a_model_of_another_size_is_not_its_neighbour(written):
    with pytest.raises(ScenarioError, match="dimensions of .* are not known"):
        model_preset(written)


@pytest.mark.parametrize("written", ["Gaudi3", "H100-SXM-20GB", "TPU v5e"])
def test_a_gpu_that_nobody_knows(written):
    with pytest.raises(ScenarioError, match="gpu: unknown"):
        gpu_preset(written)


def test_engines_by_version():
    assert engine_preset("vllm", "0.15.1") == ("vllm-0.14", None)
    assert engine_preset("vllm", "0.23.0 (+ a patch)") == ("vllm-0.19", None)
    assert engine_preset("vllm", "0.10.1.1")[0] == "vllm-0.8"
    assert "stands in" in engine_preset("vllm", "0.3.0")[1]
    assert engine_preset("NIM 1.8.0 (TensorRT-LLM)", None)[0].startswith("trtllm")
    assert "not stated" in engine_preset("sglang", None)[1]
    with pytest.raises(ScenarioError, match="engine: unknown"):
        engine_preset("tgi", "2.0")


def test_a_date_stands_for_the_version_of_its_month():
    assert version_by_date("vllm", "2025-10-29") == "0.11"
    assert version_by_date("vllm", None) is None
    assert engine_preset("vllm", None, version_by_date("vllm", "2025-10-29"))[0] == "vllm-0.8"


def test_experts_over_data_parallel_replicas_are_one_set():
    from llmqsim.validate.deployment import servers

    config = {"engine": "vllm", "engine_version": "0.19.0", "model": "Qwen/Qwen3-30B-A3B", "gpu": "H100-SXM-80GB"}
    shared = servers({**config, "tp": 1, "dp": 2, "ep": 2}, {})
    assert shared.engine["data_parallel_size"] == 2 and shared.engine["enable_expert_parallel"]
    apart = servers({**config, "tp": 2, "dp": 2, "ep": 2}, {})
    assert "data_parallel_size" not in apart.engine and apart.engine["enable_expert_parallel"]
