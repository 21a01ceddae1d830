"""`llmqsim explain --log FILE`: the start-up lines of a vLLM server beside what is worked out, and keys that make them agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmqsim.kv.hybrid import STATE
from llmqsim.kv.pools import HybridPool
from llmqsim.report.explain_log_keys import keys_that_agree, notes_about, settings_that_differ
from llmqsim.report.explain_log_start import RESERVES, Start, beside_weights, start_of
from llmqsim.report.startup_lines import StartLog
from llmqsim.scenario.load import Scenario
from llmqsim.version import __version__


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


def beside_log(scenario: Scenario, log: StartLog) -> dict[str, Any]:
    """The comparison as plain data: `lines`, `settings` that differ, `keys` that would make the lines agree, `notes`.

    Raises ScenarioError for a scenario without model or GPU, or with pools of its own.
    """
    start = start_of(scenario, log)
    length = int(log.get("concurrency_tokens") or log.get("max_model_len") or 0) or start.options.max_model_len or 0
    lines = [*_memory(start, log), *_capacity(start, log, length)]
    settings = settings_that_differ(scenario, start, log)
    return {
        "version": __version__,
        "file": scenario.path,
        "log": log.path,
        "model": start.model.name,
        "logged_model": log.words.get("model"),
        "engine_version": log.words.get("version"),
        "lines": [line.to_json() for line in lines],
        "settings": settings,
        "keys": keys_that_agree(start, log),
        "notes": notes_about(start, log, length),
    }


def _memory(start: Start, log: StartLog) -> list[Line]:
    """Weights, what else is taken, and what is left for KV, on each GPU."""
    weights = -sum(item.bytes for item in start.items if item.name in ("weights", "vision"))
    reserve = -sum(item.bytes for item in start.items if item.name not in RESERVES)
    found = [Line("weights on each GPU", "bytes", weights, log.get("weights"), log.lines.get("weights"))]
    if log.get("memory"):
        share = log.get("utilization") or 1.0
        budget = start.items[0].bytes
        found.insert(0, Line("memory for everything", "bytes", budget, log["memory"] * share, log.lines.get("memory")))
    if (told := beside_weights(start, log)) is not None:
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
