"""Start-up lines of real servers (../shared/data/startup_logs.csv), and what is worked out beside them.

`python -m tests.unit.startup_logs` from the root prints the table of docs/models.md. What a log does not state and is
taken here stands under `ROWS` with the row; shapes that are not in ../shared are from memory.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

from llmqsim.hardware.gpu import gpu
from llmqsim.hardware.hf_config import model_from_config
from llmqsim.hardware.model import Model, model
from llmqsim.hardware.serving import engine_options
from llmqsim.kv.account import account
from llmqsim.kv.hybrid import Layout, Manager
from llmqsim.kv.kinds import Release, kinds, manager, model_layout

SHARED = Path(__file__).parents[3] / "shared" / "data"
LOGS = SHARED / "startup_logs.csv"
CONFIGS = SHARED / "model_configs"
GIB = 2**30

GRANITE_MICRO = {
    "model_type": "granite", "hidden_size": 2560, "num_hidden_layers": 40, "num_attention_heads": 40,
    "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 100352,
    "max_position_embeddings": 131072, "tie_word_embeddings": True,
}  # fmt: skip
NEMOTRON_4B = {
    "model_type": "nemotron_h", "hidden_size": 3136, "hybrid_override_pattern": "M-M-M-MM-M-M*-M-M*-M-M-M*-M-M-MM*-MMM-M-M-",
    "num_hidden_layers": 42, "num_attention_heads": 40, "head_dim": 128, "num_key_value_heads": 8,
    "intermediate_size": 12544, "mamba_num_heads": 96, "mamba_head_dim": 80, "ssm_state_size": 128, "n_groups": 8,
    "conv_kernel": 4, "mlp_hidden_act": "relu2", "vocab_size": 131072, "max_position_embeddings": 262144,
}  # fmt: skip
QWEN35_9B = {
    "model_type": "qwen3_5", "hidden_size": 4096, "num_hidden_layers": 32, "full_attention_interval": 4,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 12288,
    "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4, "mamba_ssm_dtype": "float32", "vocab_size": 248320, "max_position_embeddings": 262144,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """What a start is worked out from. release, budget: as printed, or what the log's own numbers need."""

    of: str | dict
    release: str = "vllm-0.12"
    gpu: str = ""
    quantization: str = ""
    budget: int | None = None
    seqs: int | None = None
    batches: int = 1
    state_mode: str = ""
    drafted: int = 0
    draft_layers: int = 0
    tp: int = 1
    data_parallel: int = 1
    pages: int | None = None
    """printed num_gpu_blocks"""
    eager: bool = False
    left_out: tuple[str, ...] = ()
    """modules that the checkpoint leaves in 16 bits"""
    request: tuple[float, int] | None = None
    """GiB that the log says one request of so many tokens needs"""
    solved: bool = False
    """`pages` are not printed, but solved from the token line, so that only the concurrency is a test"""
    weights: str = ""
    """why the weights can't be compared"""


ROWS = {
    "w01": Row("gemma-3-27b-it", "vllm-0.11", budget=8192, pages=89_994),
    "w03": Row("gemma-3-27b-it", "vllm-0.26", "l40s", "fp8", budget=2048, batches=2),  # 4,096 in flight fits
    "w04": Row("gemma-4-e2b", "vllm-0.26", budget=2048, batches=2, seqs=8, weights="the file has no audio tower"),
    "w07a": Row("gemma-4-31b-it-nvfp4", "vllm-0.20", quantization="awq", budget=2048),  # the card of w07b
    "w07b": Row("gemma-4-31b-it-nvfp4", "vllm-0.21", "a100-sxm-80gb", "awq", budget=2048),
    "w08a": Row("gemma-4-31b-it-nvfp4", "vllm-0.25", budget=32_768, batches=2, request=(45.79, 262_144)),
    "w08b": Row("gemma-4-31b-it-nvfp4", "vllm-0.26", budget=32_768, batches=2, request=(70.79, 262_144)),
    "w09": Row("gemma-4-26b-a4b", "vllm-0.19", "a100-sxm-80gb", eager=True),
    "w10": Row("gpt-oss-20b", "vllm-0.19", "a100-sxm-80gb"),
    "w11": Row("gpt-oss-20b", "vllm-0.12", "l4", budget=2048),
    "w13": Row("gpt-oss-120b", "vllm-0.10", "h100-sxm"),
    "w15": Row(
        "gemma-4-26b-a4b", "vllm-0.26", budget=2048, batches=2, request=(5.98, 262_144)
    ),  # needs 4,096 in flight
    "h01": Row("qwen3.5-27b", "vllm-0.19", budget=16_384, state_mode="none", pages=1_487, solved=True),
    "h02": Row("qwen3.5-35b-a3b", "vllm-0.20", quantization="nvfp4", left_out=("state_dtype",)),  # card not named
    "h04a": Row("qwen3.5-35b-a3b", "vllm-0.24", budget=8192, batches=2),
    "h04b": Row("qwen3.5-35b-a3b", "vllm-0.24", budget=8192, batches=2),
    "h05": Row("qwen3.5-27b", "vllm-0.24", budget=8192, batches=2, drafted=3, draft_layers=1, tp=2),
    "h06": Row(
        "qwen3.5-27b", "vllm-0.24", "rtx-a6000", "nvfp4", weights="which modules are left in 16 bits is not stated"
    ),
    "h07": Row("qwen3.5-27b", "vllm-0.24", drafted=3, draft_layers=1, tp=2, pages=424, solved=True),
    "h09": Row("kimi-linear-48b-a3b-instruct", "vllm-0.11", budget=64_000, tp=2),
    "h11": Row(NEMOTRON_4B, "vllm-0.13", quantization="fp8", budget=2048, weights="widths from memory"),
    "h14": Row(QWEN35_9B, "vllm-0.16", budget=2048),
    "d01": Row(GRANITE_MICRO, "vllm-0.11", quantization="fp8"),
    "d03": Row("mistral-7b", "vllm-0.11", quantization="gptq", budget=2048, pages=52_510),
    "d04": Row("qwen3-14b", "vllm-0.10"),
    "d05": Row("qwen3-0.6b", "vllm-0.15", weights="its tower is not in the shape taken"),
    "d07": Row("llama-3.1-70b", "vllm-0.8", quantization="int8", pages=1_381),  # card not named
    "d08": Row("llama-3.1-405b-fp8", "vllm-0.6", tp=8),
    "m02": Row("qwen3-30b-a3b", "vllm-0.8", tp=4),
    "m03": Row("qwen3-235b-a22b", "vllm-0.10", "l40s", "fp8_block", tp=8),  # the weights are those of eight GPUs
    "m05": Row("qwen3-vl-30b-a3b", "vllm-0.20", "rtx-pro-6000", "fp8"),
    "m07a": Row("qwen3-235b-a22b", "vllm-0.9", "h100-sxm", "fp8_block", tp=4),
    "m07b": Row("qwen3-235b-a22b", "sglang-0.5", "h100-sxm", "fp8_block", tp=4),
    "m08a": Row("glm-4.5", "vllm-0.12", quantization="awq", tp=2),
    "m08b": Row("glm-4.5", "vllm-0.12", quantization="awq", tp=2),
}
NOT_WORKED_OUT = {
    "w05": "a fork with a draft of its own; its log is not explained",
    "h10": "KV in nvfp4, which is not modelled; no KV memory printed",
    "h16": "the exact model is not stated",
    "h17a": "no configuration of GLM-5.3-Flash", "h18a": "no configuration of Qwen3.8-Flash-Next",
    "h18b": "no configuration of Qwen3.8-Flash-Next", "h19a": "no configuration of Qwen3.8-Flash-Next",
    "h19b": "no configuration of Qwen3.8-Flash-Next", "h19c": "no configuration of Qwen3.8-Flash-Next",
    "h20a": "max_model_len is not stated, on which the token line hangs",
    "s02": "27B or 9B, not stated", "s03": "neither card nor memory is stated",
    "s04": "DeepSeek-V4 is refused: its layout is its own", "t01": "TensorRT-LLM of 2023, before the releases of the preset",
    "t03": "the model is not stated",
}  # fmt: skip


def starts() -> dict[str, dict[str, str]]:
    """Rows of the file by their id; empty where it is not there."""
    if not LOGS.is_file():
        return {}
    with LOGS.open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def network(row: Row) -> Model:
    """The model of a row."""
    if isinstance(row.of, dict):
        made = model_from_config(row.of)
    elif (CONFIGS / f"{row.of}.json").is_file():
        made = model_from_config(CONFIGS / f"{row.of}.json")
    else:
        made = model(row.of)
    types = {"awq": "int4", "gptq": "int4"}
    made = made.quantized(types.get(row.quantization, row.quantization)) if row.quantization else made
    return replace(made, **dict.fromkeys(row.left_out, "bfloat16"))


def laid_out(row: Row, log: dict[str, str]) -> tuple[Layout, Manager]:
    """Groups and pages under the release of a row."""
    made = network(row)
    width = 1 if log["kv_dtype"].startswith("fp8") else 2
    its = kinds(made, row.tp, width, drafted=row.drafted, draft_layers=row.draft_layers)
    rule = manager(Release.of(row.release), batches=row.batches, state_mode=row.state_mode)
    return model_layout(its, rule, 16, row.drafted), rule


def capacity_tokens(row: Row, log: dict[str, str], pool_bytes: float) -> float:
    """Concurrency x length for a pool: what compares across releases."""
    made, rule = laid_out(row, log)
    length = int(log["concurrency_len"] or log["max_model_len"] or network(row).max_position_embeddings)
    pages = row.pages or made.pages(int(pool_bytes))
    budget = (row.budget or 8192) * rule.in_flight_batches
    return made.concurrency(pages, length, budget, rule.state_mode) * length


def request_gib(row: Row, log: dict[str, str]) -> float:
    """GiB that one request needs by the start-up count."""
    made, rule = laid_out(row, log)
    pages = made.startup_pages(row.request[1], row.budget * rule.in_flight_batches, rule.state_mode)
    return pages * made.page_bytes / GIB


def old_token_line(row: Row, log: dict[str, str]) -> int:
    """The token line of releases before 0.21."""
    made, _ = laid_out(row, log)
    return made.pages(int(float(log["kv_gib"]) * GIB)) // len(made.groups) * made.block_tokens


def measured_tokens(log: dict[str, str]) -> float | None:
    """The log's concurrency x length; its tokens where it prints no concurrency."""
    if log["concurrency"]:
        return float(log["concurrency"]) * float(log["concurrency_len"])
    return float(log["kv_tokens"]) if log["kv_tokens"] else None


def pool_from_configuration(row: Row, log: dict[str, str]) -> float | None:
    """Bytes of the pool of one GPU from the configuration alone; None without a card or its share."""
    if not row.gpu or not log["util"]:
        return None
    made, card = network(row), gpu(row.gpu)
    given = {"gpu_memory_utilization": float(log["util"]), "data_parallel_size": row.data_parallel}
    given["kv_cache_dtype"] = "fp8" if log["kv_dtype"].startswith("fp8") else "auto"
    given |= {"max_num_batched_tokens": row.budget} if row.budget else {}
    given |= {"max_num_seqs": row.seqs} if row.seqs else {}
    given |= {"enforce_eager": True} if row.eager else {}
    options, _, _ = engine_options(row.release, card, made, row.tp, given)
    return sum(item.bytes for item in account(made, card, row.tp, options))


def weights_gib(row: Row) -> float:
    """GiB of weights on one GPU."""
    return network(row).weight_bytes(row.tp, 1, row.data_parallel) / GIB


def table() -> list[str]:
    """Lines of the table of docs/models.md."""
    lines = [
        "| start | model | weights, GiB: ours / log | KV, GiB, from the configuration: ours / log | concurrency x length: "
        "ours, from the log's memory / log |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, log in starts().items():
        if name in NOT_WORKED_OUT:
            lines.append(f"| {name} | {log['model']} | | | {NOT_WORKED_OUT[name]} |")
            continue
        row = ROWS[name]
        weights = f"{weights_gib(row):.2f} / {float(log['weights_gib']):.2f}" if log["weights_gib"] else ""
        weights = row.weights if weights and row.weights else weights
        pool = pool_from_configuration(row, log)
        kv = f"{pool / GIB:.2f} / {float(log['kv_gib']):.2f}" if pool is not None and log["kv_gib"] else ""
        told, fits = measured_tokens(log), ""
        memory = float(log["kv_gib"]) * GIB if log["kv_gib"] else None
        if told is not None and (memory or row.pages):
            ours = capacity_tokens(row, log, memory or 0)
            fits = f"{ours:,.0f} / {told:,.0f} ({100 * (ours / told - 1):+.1f} %)"
            fits += ", pages solved from the token line" if row.solved else ""
        elif told is not None and pool is not None:
            ours = capacity_tokens(row, log, pool)
            fits = f"{ours:,.0f} / {told:,.0f} ({100 * (ours / told - 1):+.1f} %), from the configuration alone"
        if row.request:
            fits = (
                f"{request_gib(row, log):.2f} / {row.request[0]:.2f} GiB for one request of {row.request[1]:,} tokens"
            )
        if name == "w07a":
            fits = f"{old_token_line(row, log):,} / 55,000 (two figures): pages // groups x block"
        lines.append(f"| {name} | {log['model']} | {weights} | {kv} | {fits} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
