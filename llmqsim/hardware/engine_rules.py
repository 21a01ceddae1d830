"""What an engine preset says in rules rather than values: by GPU, by model length, and what a version lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqsim.hardware.gpu import Gpu

GIB = 1024**3
MIB = 1024**2
SPELT = {"swap_space_bytes": "swap_space", "kv_offloading_bytes": "kv_offloading_size"}
"""scenario keys of options whose fields carry their unit"""
Entry = Mapping[str, Any]
Sources = Mapping[str, str]

SGLANG_RESERVE_BYTES = 512 * MIB
SGLANG_BYTES_PER_CHUNK_TOKEN = 3 * MIB // 2
SGLANG_BYTES_PER_GRAPH_ROW = 2 * MIB
SGLANG_BYTES_PER_GPU = GIB // 8
SGLANG_LEAST_RESERVE_BYTES, SGLANG_LARGE_CARD_BYTES = 10 * GIB, 60 * GIB
"""SGLang's mem_fraction_static (docs/engine_presets.md)"""


def defaults_by_gpu(entry: Entry, sources: Sources, values: dict, origins: dict, gpu: Gpu | None) -> None:
    """Slots and token budget, which depend on the card."""
    large = gpu is not None and _is_large(gpu, entry["large_gpus"])
    card = f"{gpu.name} takes the column for {'large cards' if large else 'all others'}" if gpu else "no GPU is named"
    for key in ("max_num_seqs", "max_num_batched_tokens"):
        rule = entry[key]
        column = "large" if large else "other"
        source = sources.get(rule["source"], rule["source"])
        values[key], origins[key] = rule[column], f"{source}; {card}" if rule["large"] != rule["other"] else source
        for limit_gib, tokens in rule.get("below_memory_gib", ()) if gpu else ():
            if gpu.memory_bytes < limit_gib * GIB:
                values[key], origins[key] = tokens, f"{source}; {gpu.name} has less than {limit_gib} GiB"
                break


def _is_large(gpu: Gpu, rule: Entry) -> bool:
    return gpu.memory_bytes >= rule["minimum_memory_bytes"] and gpu.architecture in rule["architectures"]


def prompt_limits(entry: Entry, sources: Sources, values: dict, origins: dict, given: Entry) -> None:
    """Chunking by length, and the budget or length that whole prompts need."""
    chunking, limit = entry["enable_chunked_prefill"], values["max_model_len"]
    longest = chunking.get("above_max_model_len")
    if longest and limit and limit > longest and "enable_chunked_prefill" not in given:
        values["enable_chunked_prefill"] = True
        origins["enable_chunked_prefill"] += f"; max_model_len {limit:,} is above {longest:,}"
    budget = entry["max_num_batched_tokens"]
    if values["enable_chunked_prefill"]:
        if "chunked" in budget and "max_num_batched_tokens" not in given:
            values["max_num_batched_tokens"] = budget["chunked"]
            origins["max_num_batched_tokens"] += "; with chunked prefill"
    elif limit and budget.get("fixed") and "max_model_len" not in given:
        values["max_model_len"] = min(limit, values["max_num_batched_tokens"])
        origins["max_model_len"] += ", cut to max_num_batched_tokens, as prompts are not chunked"
    elif limit and not budget.get("fixed") and "max_num_batched_tokens" not in given:
        values["max_num_batched_tokens"] = max(values["max_num_batched_tokens"], limit)
        origins["max_num_batched_tokens"] += "; raised to max_model_len, as chunked prefill is off"


def capture_sizes(rule: Entry, sources: Sources, max_num_seqs: int) -> tuple[tuple[int, ...], str]:
    """Token counts with a CUDA graph: some small ones, then in strides up to the preset's limits."""
    sizes = list(rule["small"])
    for until, step in rule["steps"]:
        first = (sizes[-1] // step + 1) * step
        sizes += range(first, until + 1, step)
    source = sources.get(rule["source"], rule["source"])
    if not sizes:
        return (), source
    largest = min(sizes[-1], 2 * max_num_seqs) if rule["per_max_num_seqs"] else sizes[-1]
    kept = tuple(size for size in sizes if size <= largest)
    return kept, f"{source}; {len(kept)} sizes up to {kept[-1]}"


def memory_share(entry: Entry, values: dict, origins: dict, gpu: Gpu, tp: int) -> None:
    """SGLang's share of the memory for weights and KV, worked out from what the rest needs."""
    if entry["gpu_memory_utilization"].get("rule") != "sglang":
        return
    chunk, rows = values["max_num_batched_tokens"], max(values["cudagraph_capture_sizes"], default=0)
    gpus = tp * values["pipeline_parallel_size"]
    reserve = SGLANG_RESERVE_BYTES + SGLANG_BYTES_PER_CHUNK_TOKEN * chunk + SGLANG_BYTES_PER_GRAPH_ROW * rows
    reserve += SGLANG_BYTES_PER_GPU * gpus
    if gpu.memory_bytes > SGLANG_LARGE_CARD_BYTES:
        reserve = max(reserve, SGLANG_LEAST_RESERVE_BYTES)
    values["gpu_memory_utilization"] = max(0.05, round(1 - reserve / gpu.usable_memory_bytes, 4))
    origins["gpu_memory_utilization"] += (
        f"; 1 - (0.5 GiB + 1.5 MiB x {chunk:,} tokens + 2 MiB x {rows} graph rows + {gpus} x 1/8 GiB, at least 10 GiB "
        f"on large cards) / {gpu.usable_memory_bytes / GIB:.1f} GiB"
    )


def lacking(name: str, entry: Entry, given: Entry, values: Entry) -> list[str]:
    """Sentences about options that the user set and these versions don't have. What changes nothing is let pass."""
    faults = []
    for key, advice in entry.get("lacks", {}).items():
        if key not in given:
            continue
        done = {"async_scheduling": values["in_flight"] == 2, "cudagraph_capture_sizes": ()}
        if given[key] != done.get(key, values.get(key, 0)):
            key_written = SPELT.get(key, key)
            shown = str(given[key]).lower() if isinstance(given[key], bool) else given[key]
            versions = entry["versions"].split(" (")[0]
            faults.append(
                f"engine.{key_written}: {name} ({versions}) does not have it (got {shown}); leave it out: {advice}"
            )
    return faults
