"""`llmqsim explain --log FILE`: the start-up lines of a vLLM server beside what is worked out, and keys that make them agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmqsim.errors import ScenarioError
from llmqsim.hardware.gpu import Gpu
from llmqsim.hardware.model import Model
from llmqsim.kv.capacity import Item, account, bytes_per_block_per_gpu
from llmqsim.kv.hybrid import STATE
from llmqsim.kv.kinds import Release
from llmqsim.kv.pools import HybridPool, hybrid_pool
from llmqsim.options import EngineOptions
from llmqsim.report.startup_lines import StartLog
from llmqsim.scenario.build import measured_memory, resolve
from llmqsim.scenario.load import Scenario
from llmqsim.version import __version__

GIB = 2**30
SAME = 0.002
"""keys are proposed for lines that differ by more than this share"""
RESERVES = ("memory", "weights", "vision", "KV pool", "left free")
"""items of the account that are not what an engine keeps for running"""
SETTINGS = ("max_num_batched_tokens", "max_num_seqs")
DRAFT_LAYERS = {"mtp": 1, "eagle": 1, "eagle3": 1, "deepseek_mtp": 1, "qwen3_next_mtp": 1, "ngram": 0, "suffix": 0}
"""layers that methods of speculative decoding add to the pool; of others the log does not say how many"""


@dataclass(frozen=True)
class Line:
    """One line: bytes, tokens or requests. ours, log : None where not known."""

    name: str
    unit: str
    ours: float | None
    log: float | None
    at: int | None = None
    """line of the log"""
    note: str = ""

    @property
    def off(self) -> float | None:
        """Relative difference of ours."""
        return None if self.ours is None or not self.log else self.ours / self.log - 1

    def to_json(self) -> dict[str, Any]:
        """The line as plain data."""
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": self.ours,
            "log": self.log,
            "relative_difference": self.off,
            "line": self.at,
            "note": self.note or None,
        }


@dataclass(frozen=True)
class Start:
    """What a start is worked out from."""

    model: Model
    gpu: Gpu
    tp: int
    options: EngineOptions
    release: str
    items: tuple[Item, ...]
    drafted: int = 0
    draft_layers: int = 0
    state_mode: str = ""

    @property
    def pool(self) -> int:
        """Bytes for KV on each GPU; negative where the server does not start."""
        return sum(item.bytes for item in self.items)

    def layout(self, pool_bytes: int, blocks: int | None = None) -> HybridPool | None:
        """The hybrid pool in so many bytes, or of so many pages; None where all layers keep every token."""
        return hybrid_pool(
            self.model,
            self.tp,
            self.options,
            self.release,
            None if blocks is not None else max(0, pool_bytes),
            blocks or 0,
            drafted=self.drafted,
            draft_layers=self.draft_layers,
            state_mode=self.state_mode,
        )

    @property
    def block_bytes(self) -> int:
        """Bytes of a block of a plain pool on each GPU, drafting layers included."""
        each = bytes_per_block_per_gpu(self.model, self.tp, self.options) or 1
        return each * (self.model.layers + self.draft_layers) // self.model.layers

    def concurrency(self, pool_bytes: int, tokens: int, blocks: int | None = None) -> float:
        """Requests of so many tokens that fit at once in so many bytes of each GPU, or in so many blocks."""
        hybrid = self.layout(pool_bytes, blocks)
        if hybrid is not None:
            return hybrid.concurrency(tokens)
        count = max(0, pool_bytes) // self.block_bytes if blocks is None else blocks
        return count * self.options.block_size / tokens


def beside_log(scenario: Scenario, log: StartLog) -> dict[str, Any]:
    """The comparison as plain data: `lines`, `settings` that differ, `keys` that would make the lines agree, `notes`.

    Raises ScenarioError for a scenario without model or GPU, or with pools of its own.
    """
    start = _start(scenario, log)
    length = int(log.get("concurrency_tokens") or log.get("max_model_len") or 0) or start.options.max_model_len or 0
    lines = [*_memory(start, log), *_capacity(start, log, length)]
    settings = _settings(scenario, start, log)
    return {
        "version": __version__,
        "file": scenario.path,
        "log": log.path,
        "model": start.model.name,
        "logged_model": log.words.get("model"),
        "engine_version": log.words.get("version"),
        "lines": [line.to_json() for line in lines],
        "settings": settings,
        "keys": _keys(start, log),
        "notes": _notes(start, log, length),
    }


def _start(scenario: Scenario, log: StartLog) -> Start:
    if scenario.spec.pools is not None:
        raise ScenarioError("pools: a log is of one server; give a scenario without pools (got pools)")
    network, card, tp, options, _, _ = resolve(scenario)
    if network is None or card is None:
        lacking = "model" if network is None else "gpu"
        raise ScenarioError(f"{scenario.where(lacking)}: {lacking}: missing; a log is compared with a model on a GPU")
    items = account(network, card, tp, options, measured_memory(scenario))
    drafted = int(log.get("drafted") or 0)
    layers = DRAFT_LAYERS.get(log.words.get("drafts", "mtp"), 1) if drafted else 0
    mode = log.words.get("mamba_cache_mode", "")
    return Start(network, card, tp, options, scenario.spec.engine.preset, items, drafted, layers, mode)


def _memory(start: Start, log: StartLog) -> list[Line]:
    """Weights, what else is taken, and what is left for KV, on each GPU."""
    weights = -sum(item.bytes for item in start.items if item.name in ("weights", "vision"))
    reserve = -sum(item.bytes for item in start.items if item.name not in RESERVES)
    found = [Line("weights on each GPU", "bytes", weights, log.get("weights"), log.lines.get("weights"))]
    if log.get("memory"):
        share = log.get("utilization") or 1.0
        budget = start.items[0].bytes
        found.insert(0, Line("memory for everything", "bytes", budget, log["memory"] * share, log.lines.get("memory")))
    if (told := _beside_weights(start, log)) is not None:
        found.append(Line("beside weights and KV", "bytes", reserve, told[0], None, told[1]))
    elif start.items:
        found.append(Line("beside weights and KV", "bytes", reserve, None))
    graphs = -sum(item.bytes for item in start.items if item.name == "CUDA graphs")
    name = "graphs_estimated" if "graphs_estimated" in log else "graphs"
    if log.get(name) is not None:
        note = "" if graphs else "in releases before 0.21 graphs lie outside the pool's share"
        found.append(Line("CUDA graphs", "bytes", graphs or None, log.get(name), log.lines.get(name), note))
    note = "negative: the server does not start" if start.pool <= 0 or (log.get("kv") or 1) <= 0 else ""
    return [*found, Line("KV memory on each GPU", "bytes", start.pool, log.get("kv"), log.lines.get("kv"), note)]


def _beside_weights(start: Start, log: StartLog) -> tuple[float, str] | None:
    """What the server took beside weights and KV: stated, or what its figures leave."""
    if "activation" in log and "non_torch" in log:
        return log["activation"] + log["non_torch"], "activation + non-torch memory"
    if "weights" not in log or "kv" not in log:
        return None
    whole, share = log.get("memory"), log.get("utilization")
    if whole is not None:
        budget, what = whole * (share or 1.0), "the log's memory"
    elif share is not None:
        budget, what = start.gpu.usable_memory_bytes * share, f"the log's share of {start.gpu.name}"
    else:
        budget, what = start.items[0].bytes, "the scenario's memory"
    return budget - log["weights"] - log["kv"], f"{what} - weights - KV"


def _capacity(start: Start, log: StartLog, length: int) -> list[Line]:
    """Tokens, concurrency, and concurrency x length, which alone compares across releases."""
    if not length:
        return []
    memory = log.get("kv")
    blocks = int(log["blocks"]) if "blocks" in log else None
    told = _logged_capacity(start, log, length)
    at = log.lines.get("concurrency") or log.lines.get("tokens") or log.lines.get("blocks")
    found = []
    if "concurrency" in log:
        ours = start.concurrency(start.pool, length)
        found.append(Line(f"requests of {length:,} tokens", "requests", ours, log.get("concurrency"), at))
    own = start.concurrency(start.pool, length) * length
    found.append(Line("concurrency x length", "tokens", own, told, at, "from the configuration alone"))
    if memory is not None or blocks is not None:
        ours = start.concurrency(int(memory or 0), length, blocks) * length
        where = "the log's blocks" if blocks is not None else "the log's KV memory"
        found.append(Line("concurrency x length", "tokens", ours, told, at, f"from {where}"))
    pool = start.layout(int(memory if memory is not None else start.pool), blocks)
    if pool is not None:
        found += _hybrid(pool, log, length)
    elif "tokens" in log and blocks is None and memory is not None:
        ours = start.concurrency(int(memory), 1)
        found.append(Line("GPU KV cache size", "tokens", ours, log.get("tokens"), log.lines.get("tokens")))
    if "needed" in log:
        tokens = int(log.get("needed_tokens") or length)
        need = pool.need(tokens) * pool.layout.page_bytes if pool is not None else _plain_need(start, tokens)
        found.append(
            Line(f"KV of one request of {tokens:,}", "bytes", need, log.get("needed"), log.lines.get("needed"))
        )
    if "longest" in log:
        ours = pool.longest() if pool is not None else start.concurrency(int(memory or start.pool), 1)
        found.append(Line("longest request that fits", "tokens", ours, log.get("longest"), log.lines.get("longest")))
    return found


def _plain_need(start: Start, tokens: int) -> int:
    return -(-tokens // start.options.block_size) * start.block_bytes


def _hybrid(pool: HybridPool, log: StartLog, length: int) -> list[Line]:
    """Lines that only pools of several kinds print."""
    line = pool.token_line(length)
    kind = "concurrency x length" if pool.rule.tokens_by_concurrency else "pages // groups x block"
    found = []
    if "tokens" in log:
        found.append(Line("GPU KV cache size", "tokens", line, log.get("tokens"), log.lines.get("tokens"), kind))
    if "block" in log and any(group.kind.kind == STATE for group in pool.layout.groups):
        found.append(
            Line("attention block", "tokens", pool.layout.block_tokens, log.get("block"), log.lines.get("block"))
        )
    if "padding_layers" in log:
        ours = pool.layout.padding_layers
        found.append(Line("padding layers", "layers", ours, log.get("padding_layers"), log.lines.get("padding_layers")))
    return found


def _logged_capacity(start: Start, log: StartLog, length: int) -> float | None:
    """The log's concurrency x length; of plain pools its tokens."""
    if "concurrency" in log:
        return log["concurrency"] * (log.get("concurrency_tokens") or length)
    if start.layout(start.pool) is not None:
        return None  # tokens of a hybrid pool mean one thing or another
    if "tokens" in log:
        return log.get("tokens")
    return log["blocks"] * start.options.block_size if "blocks" in log else None


def _settings(scenario: Scenario, start: Start, log: StartLog) -> list[dict[str, Any]]:
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


def _keys(start: Start, log: StartLog) -> dict[str, str]:
    """Scenario keys that take the log's figures, for lines that differ by more than rounding."""
    keys: dict[str, str] = {}
    weights = -sum(item.bytes for item in start.items if item.name in ("weights", "vision"))
    if log.get("weights", 0) and abs(weights / log["weights"] - 1) > SAME:
        keys["engine.memory.weights"] = _gib(log["weights"])
    if "activation" in log and "non_torch" in log:
        keys["engine.memory.activation"] = _gib(log["activation"])
        keys["engine.memory.other"] = _gib(log["non_torch"])
    elif (told := _beside_weights(start, log)) is not None and told[0] > 0:
        reserve = -sum(item.bytes for item in start.items if item.name not in RESERVES)
        graphs = -sum(item.bytes for item in start.items if item.name == "CUDA graphs")
        if abs(told[0] - reserve) > SAME * max(reserve, told[0]):
            keys["engine.memory.other"] = _gib(max(0.0, told[0] - graphs))
    if log.get("kv", 0) > 0 and abs(start.pool / log["kv"] - 1) > SAME:
        keys["engine.kv_cache_memory_bytes"] = _gib(log["kv"])
    return keys


def _gib(count: float) -> str:
    return f"{count / GIB:.4f} GiB"


def _notes(start: Start, log: StartLog, length: int) -> list[str]:
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
