"""Start-up lines in wordings of several releases and dressings of terminals; wordings from memory, figures made up."""

from __future__ import annotations

import pytest

from llmqsim.report.startup_lines import parse

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("\x1b[1;36m(EngineCore_DP0 pid=12)\x1b[0;0m INFO Available KV cache memory: \x1b[1m53.50\x1b[0m GiB", {"kv": 53.5 * GIB}),
        (
            "INFO Free memory on device (78.7/79.11 GiB) on startup. Desired GPU memory utilization is (0.9, 71.2 GiB). Actual "
            "usage is 15.27 GiB for weight, 1.2 GiB for peak activation, 0.1 GiB for non-torch memory, and 0.59 GiB for "
            "CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=58000000000` (54.0 GiB)",
            {
                "memory": 79.11 * GIB, "utilization": 0.9, "weights": 15.27 * GIB, "activation": 1.2 * GIB,
                "non_torch": 0.1 * GIB, "graphs": 0.59 * GIB,
            },
        ),
        (
            "Memory profiling results: duration=2.07 seconds, total_gpu_memory=79.11GiB, initial_memory_usage=15.49GiB, "
            "non_torch_memory=0.63GiB, kv_cache_size=54.37GiB, gpu_memory_utilization=0.90",
            {"memory": 79.11 * GIB, "kv": 54.37 * GIB, "utilization": 0.9},
        ),
        (
            "vllm serve m --tensor-parallel-size 2 --max-model-len=32768 --gpu-memory-utilization 0.85 --max-num-seqs 64",
            {"tensor_parallel_size": 2, "max_model_len": 32768, "utilization": 0.85, "max_num_seqs": 64},
        ),
        ("INFO # CPU blocks: 100, # GPU blocks: 2000", {"blocks": 2000}),
        ("INFO Overriding num_gpu_blocks=5000 with num_gpu_blocks_override=100", {"blocks": 100}),
        (
            "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in "
            "KV cache (59648).",
            {"tokens": 59648, "needed_tokens": 131072},
        ),
        ('{"msg": "GPU KV cache size: 389,600 tokens"}\r\n', {"tokens": 389600}),
    ],
)  # fmt: skip
def test_figures(text, figures):
    assert parse(text).figures == pytest.approx(figures)
