"""What to type: the `llmqsim compare` that shows a lever again, and the options of `vllm serve` that pull it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from llmqsim.planner.advise.trial import Bench
from llmqsim.planner.compare import REPLICATIONS

Overrides = Sequence[tuple[str, Any]]
VLLM: dict[str, str] = {
    "engine.max_num_seqs": "--max-num-seqs",
    "engine.max_num_batched_tokens": "--max-num-batched-tokens",
    "engine.long_prefill_token_threshold": "--long-prefill-token-threshold",
    "engine.gpu_memory_utilization": "--gpu-memory-utilization",
    "engine.kv_cache_dtype": "--kv-cache-dtype",
    "engine.quantization": "--quantization",
    "engine.enable_chunked_prefill": "--enable-chunked-prefill",
    "engine.enable_prefix_caching": "--enable-prefix-caching",
    "engine.async_scheduling": "--async-scheduling",
    "engine.enable_expert_parallel": "--enable-expert-parallel",
    "tensor_parallel_size": "--tensor-parallel-size",
    "pipeline_parallel_size": "--pipeline-parallel-size",
}
"""scenario key to the option of vLLM that it is named after"""


def text(value: Any) -> str:
    """A plain value as YAML that fits on a command line."""
    return value if isinstance(value, str) else json.dumps(value)


def together(levers_sets: Sequence[Overrides]) -> tuple[tuple[str, Any], ...]:
    """The overrides of several levers in order; of one key the last."""
    every = [item for sets in levers_sets for item in sets]
    last = {key: place for place, (key, _) in enumerate(every)}
    return tuple(item for place, item in enumerate(every) if last[item[0]] == place)


def compare(bench: Bench, name: str, sets: Overrides, replications: int) -> str:
    """The command that compares the scenario with the same after these overrides."""
    words = ["llmqsim", "compare", bench.path]
    for item in bench.sets:
        words += ["--set", item if isinstance(item, str) else f"{item[0]}={text(item[1])}"]
    if bench.variant:
        base = "+".join(bench.variant)
        words += ["--variants", f"{base},{base}+{name}"]
    for key, value in sets:
        words += ["--variant-set", f"{name}:{key}={text(value)}"]
    words += ["--replications", str(replications)] if replications not in (1, REPLICATIONS) else []
    words += ["--seed", str(bench.seed)] if bench.seed is not None else []
    return shlex.join(words)


def advise(bench: Bench, prices: Sequence[str]) -> str:
    """The command that asks the same again."""
    words = ["llmqsim", "advise", bench.path]
    for variant in bench.variant:
        words += ["--variant", variant]
    for item in bench.sets:
        words += ["--set", item if isinstance(item, str) else f"{item[0]}={text(item[1])}"]
    for price in prices:
        words += ["--price", price]
    words += ["--seed", str(bench.seed)] if bench.seed is not None else []
    return shlex.join(words)


def served(preset: str, sets: Overrides) -> tuple[list[str], list[str]]:
    """Options of `vllm serve` for these overrides, and what else must change, as KEY=VALUE.

    A pool's options begin with its name. preset : of the engine; another one than vLLM's has no such options.
    """
    options, others = [], []
    for key, value in sets:
        pool, plain = (
            (key.split(".")[1] + ": ", ".".join(key.split(".")[2:])) if key.startswith("pools.") else ("", key)
        )
        option = VLLM.get(plain) if preset.startswith("vllm") else None
        if plain == "engine.ordering" and value == "priority" and preset.startswith("vllm"):
            option = "--scheduling-policy"
        if option is None or value is None or value is False:
            others.append(f"{key}={text(value)}")
        else:
            options.append(pool + (option if value is True else f"{option} {value}"))
    return options, others
