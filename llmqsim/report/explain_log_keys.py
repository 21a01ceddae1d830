"""What of a start-up log the scenario says otherwise, and the keys that would make their lines agree."""

from __future__ import annotations

from typing import Any

from llmqsim.kv.kinds import Release
from llmqsim.report.explain_log_start import RESERVES, Start, beside_weights
from llmqsim.report.startup_lines import StartLog
from llmqsim.scenario.load import Scenario

GIB = 2**30
SAME = 0.002
"""keys are proposed for lines that differ by more than this share"""
SETTINGS = ("max_num_batched_tokens", "max_num_seqs")


def settings_that_differ(scenario: Scenario, start: Start, log: StartLog) -> list[dict[str, Any]]:
    """What the log says of the server and the scenario says otherwise, each with its key."""
    found = []

    def differ(key: str, ours: Any, logged: Any, name: str) -> None:
        if logged is not None and ours != logged:
            found.append({"key": key, "ours": ours, "log": logged, "line": log.lines.get(name)})

    options, release = start.options, log.release
    if release is not None and Release.of(start.release).numbers != Release.of(release).numbers:
        differ("engine.preset", start.release, release, "version")
    differ("tensor_parallel_size", start.tp, _whole(log, "tensor_parallel_size"), "tensor_parallel_size")
    stages = _whole(log, "pipeline_parallel_size")
    differ("pipeline_parallel_size", options.pipeline_parallel_size, stages, "pipeline_parallel_size")
    if "utilization" in log and abs(log["utilization"] - options.gpu_memory_utilization) > 1e-9:
        differ("engine.gpu_memory_utilization", options.gpu_memory_utilization, log.get("utilization"), "utilization")
    for name in SETTINGS:
        differ(f"engine.{name}", getattr(options, name), _whole(log, name), name)
    differ("engine.max_model_len", options.max_model_len, _whole(log, "max_model_len"), "max_model_len")
    if dtype := log.words.get("kv_cache_dtype"):
        known = {"auto": "auto", "bfloat16": "bfloat16"} | {d: "fp8" for d in ("fp8", "fp8_e4m3", "fp8_e5m2")}
        differ("engine.kv_cache_dtype", options.kv_cache_dtype, known.get(dtype, dtype), "kv_cache_dtype")
    if caching := log.words.get("enable_prefix_caching"):
        differ(
            "engine.enable_prefix_caching", options.enable_prefix_caching, caching == "True", "enable_prefix_caching"
        )
    if told := log.words.get("async_scheduling"):
        differ("engine.async_scheduling", options.in_flight == 2, told.lower().endswith("enabled"), "async_scheduling")
    return found


def _whole(log: StartLog, name: str) -> int | None:
    value = log.get(name)
    return None if value is None else int(value)


def keys_that_agree(start: Start, log: StartLog) -> dict[str, str]:
    """Scenario keys that take the log's figures, for lines that differ by more than rounding."""
    keys: dict[str, str] = {}
    weights = -sum(item.bytes for item in start.items if item.name in ("weights", "vision"))
    if log.get("weights", 0) and abs(weights / log["weights"] - 1) > SAME:
        keys["engine.memory.weights"] = _gib(log["weights"])
    if "activation" in log and "non_torch" in log:
        keys["engine.memory.activation"] = _gib(log["activation"])
        keys["engine.memory.other"] = _gib(log["non_torch"])
    elif (told := beside_weights(start, log)) is not None and told[0] > 0:
        reserve = -sum(item.bytes for item in start.items if item.name not in RESERVES)
        graphs = -sum(item.bytes for item in start.items if item.name == "CUDA graphs")
        if abs(told[0] - reserve) > SAME * max(reserve, told[0]):
            keys["engine.memory.other"] = _gib(max(0.0, told[0] - graphs))
    if log.get("kv", 0) > 0 and abs(start.pool / log["kv"] - 1) > SAME:
        keys["engine.kv_cache_memory_bytes"] = _gib(log["kv"])
    return keys


def _gib(count: float) -> str:
    return f"{count / GIB:.4f} GiB"


def notes_about(start: Start, log: StartLog, length: int) -> list[str]:
    """Sentences about what the comparison rests on."""
    notes = []
    if start.drafted:
        told = f"speculative decoding of the log: {start.drafted} tokens a step and {start.draft_layers} more layers are counted"
        notes.append(told + " in the pool, their weights are not")
    hybrid = start.layout(start.pool)
    if hybrid is not None:
        if "max_num_batched_tokens" not in log:
            notes.append(
                f"the log states no token budget: windows are counted with {hybrid.in_flight_tokens:,} tokens in flight"
            )
        if hybrid.rule.why:
            notes.append(hybrid.rule.why)
        notes.append("the token line changed its meaning in vLLM 0.21; concurrency x length compares across releases")
    logged = log.words.get("model")
    if logged and not _alike(logged, start.model.name):
        notes.append(f"the log is of {logged}, the scenario of {start.model.name}")
    if "concurrency" not in log and "tokens" not in log and "blocks" not in log:
        notes.append("the log states no tokens and no concurrency")
    return notes


def _alike(logged: str, name: str) -> bool:
    letters = ["".join(c for c in text.lower() if c.isalnum()) for text in (logged.rpartition("/")[2], name)]
    return letters[0].startswith(letters[1][:8]) or letters[1].startswith(letters[0][:8])
