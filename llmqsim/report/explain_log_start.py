"""A start as the scenario has it: model, card, options and memory account, with what the log says of drafts and states."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.errors import ScenarioError
from llmqsim.hardware.gpu import Gpu
from llmqsim.hardware.model import Model
from llmqsim.kv.account import Item, account
from llmqsim.kv.capacity import bytes_per_block_per_gpu
from llmqsim.kv.pools import HybridPool, hybrid_pool
from llmqsim.options import EngineOptions
from llmqsim.report.startup_lines import StartLog
from llmqsim.scenario.build import measured_memory, resolve
from llmqsim.scenario.load import Scenario

RESERVES = ("memory", "weights", "vision", "KV pool", "left free")
"""items of the account that are not what an engine keeps for running"""
DRAFT_LAYERS = {"mtp": 1, "eagle": 1, "eagle3": 1, "deepseek_mtp": 1, "qwen3_next_mtp": 1, "ngram": 0, "suffix": 0}
"""layers that methods of speculative decoding add to the pool; of others the log does not say how many"""


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


def start_of(scenario: Scenario, log: StartLog) -> Start:
    """Resolve a scenario of one server. Raises ScenarioError for pools, or without a model or a GPU."""
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


def beside_weights(start: Start, log: StartLog) -> tuple[float, str] | None:
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
