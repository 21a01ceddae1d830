"""Physical forms of the kernel families: from shapes and a few constants to seconds.

Each form takes constants by name, columns of shapes (float64 arrays) and the machine, and gives seconds of one call. A
form carries what follows from the hardware (arithmetic, traffic, launch, links); what remains is the residual table's
(cost/residual.py). `at_datasheet` is the same physics with nothing fitted: the slower of arithmetic and traffic at the
GPU's published peaks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Columns = Mapping[str, np.ndarray]
Constants = Mapping[str, float]

WEIGHT_BYTES = {
    "bfloat16": 2.0,
    "float16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0,
    "int8": 1.0,
    "int8_wo": 1.0,
    "int4_wo": 0.5,
    "w4afp8": 0.5,
    "w4a16_mxfp4": 0.53,
    "w4a8_mxfp4_mxfp8": 0.53,
    "nvfp4": 0.56,
}
"""bytes of a weight (or message element) by dtype label; 4-bit floats carry one 8-bit scale for each 32 (16: nvfp4)"""

WEIGHT_ONLY = ("int8_wo", "int4_wo", "w4a16_mxfp4")
"""weights that are unpacked and multiplied in 16 bits: inputs are not quantised"""


@dataclass(frozen=True)
class Machine:
    """What a form needs to know of a GPU: dense peaks (FLOP/s by dtype), bytes/s of memory and of the link."""

    name: str
    flops_per_s: Mapping[str, float]
    memory_bytes_per_s: float
    link_bytes_per_s: float
    multiprocessors: int
    l2_bytes: float

    def peak(self, dtype: str) -> float:
        """FLOP/s of the tensor cores for a dtype label; a GPU without 8-bit arithmetic computes in 16 bits."""
        eight_bit = dtype in ("fp8", "fp8_block")
        return self.flops_per_s.get("fp8" if eight_bit else "bfloat16", self.flops_per_s["bfloat16"])


@dataclass(frozen=True)
class Work:
    """Arithmetic, memory traffic and link traffic of one call, arrays."""

    flops: np.ndarray
    memory_bytes: np.ndarray
    link_bytes: np.ndarray


@dataclass(frozen=True)
class Form:
    """A family's physics: t0 + added + (compute^p + memory^p + link^p + floor^p)^(1/p), the soft maximum of rates.

    work : traffic and arithmetic from shapes. added : further seconds (start-up of thread blocks, a second stage).
    extra : (name, start, lower, upper) of constants beside those of the roofline. floor : whether the CPU's launches
    hide short kernels, as they do without CUDA graphs.
    """

    work: Callable[[Columns, Constants, Machine, str], Work]
    added: Callable[[Columns, Constants], np.ndarray] | None = None
    extra: tuple[tuple[str, float, float, float], ...] = ()
    floor: bool = False

    def bounds(self) -> tuple[tuple[str, float, float, float], ...]:
        """(name, start, lower, upper) of every constant; all are positive."""
        return (
            ("t0_s", 5e-6, 3e-7, 1e-3),
            ("compute_efficiency", 0.6, 0.01, 1.3),
            ("memory_efficiency", 0.7, 0.01, 1.6),
            ("overlap", 2.0, 1.0, 12.0),
            *((("floor_s", 3e-5, 1e-6, 1e-2),) if self.floor else ()),
            *self.extra,
        )

    def seconds(self, constants: Constants, columns: Columns, machine: Machine, dtype: str) -> np.ndarray:
        """Seconds of one call for each row of `columns`."""
        work = self.work(columns, constants, machine, dtype)
        rate = constants["memory_efficiency"]
        parts = [
            work.flops / (machine.peak(dtype) * constants["compute_efficiency"]),
            work.memory_bytes / (machine.memory_bytes_per_s * rate),
            work.link_bytes / (machine.link_bytes_per_s * rate),
        ]
        if self.floor:
            parts.append(np.full_like(parts[0], constants["floor_s"]))
        longest = np.maximum(np.maximum.reduce(parts), 1e-15)
        soft = sum((part / longest) ** constants["overlap"] for part in parts) ** (1.0 / constants["overlap"])
        added = self.added(columns, constants) if self.added else 0.0
        return constants["t0_s"] + added + longest * soft

    def at_datasheet(self, columns: Columns, machine: Machine, dtype: str) -> np.ndarray:
        """The textbook roofline at published peaks: nothing fitted, no launch."""
        plain = {name: 1.0 if name.endswith("_ratio") else lower for name, _, lower, _ in self.extra}
        work = self.work(columns, plain, machine, dtype)
        parts = (
            work.flops / machine.peak(dtype),
            work.memory_bytes / machine.memory_bytes_per_s,
            work.link_bytes / machine.link_bytes_per_s,
        )
        return np.maximum(np.maximum.reduce(parts), 1e-9)


def _zero(columns: Columns) -> np.ndarray:
    return np.zeros_like(next(iter(columns.values())), dtype=np.float64)


def gemm_work(c: Columns, k: Constants, machine: Machine, dtype: str) -> Work:
    """Y[m, n] = X[m, k] W[k, n]; 8-bit kernels also read X in 16 bits and write it in 8 (dynamic quantisation)."""
    width = WEIGHT_BYTES.get(dtype, 2.0)
    inputs = 2.0 if width == 2.0 or dtype in WEIGHT_ONLY else 2.0 + 2 * width
    moved = inputs * c["m"] * c["k"] + width * c["n"] * c["k"] + 2.0 * c["m"] * c["n"]
    return Work(2.0 * c["m"] * c["n"] * c["k"], moved, _zero(c))


def causal_pairs(query, kv, window) -> np.ndarray:
    """Keys seen by `query` causal tokens that end at position `kv`, each seeing at most `window` (0: all)."""
    prefix = kv - query
    full = query * prefix + query * (query + 1.0) / 2.0
    reach = np.where(window > 0, window, kv)
    short = np.clip(reach - prefix, 0.0, query)  # queries that see fewer than `reach` keys
    windowed = short * prefix + short * (short + 1.0) / 2.0 + (query - short) * reach
    return np.where((window > 0) & (window < kv), windowed, full)


def prefill_work(c: Columns, k: Constants, machine: Machine, dtype: str) -> Work:
    """Causal attention; `diagonal_tokens` keys more for every query (masked parts of tiles, start-up of a tile)."""
    pairs = causal_pairs(c["q_len"], c["kv_len"], c["window"]) + c["q_len"] * k["diagonal_tokens"]
    blocks = c["batch"] * c["num_heads"] * np.ceil(c["q_len"] / 128.0)
    share = np.clip(blocks / machine.multiprocessors, 1e-9, 1.0)
    flops = 4.0 * c["batch"] * c["num_heads"] * c["head_dim"] * pairs / share
    kv = 2.0 * c["kv_bytes"] * c["kv_len"] * c["num_kv_heads"]
    moved = c["batch"] * c["head_dim"] * (4.0 * c["q_len"] * c["num_heads"] + kv)
    return Work(flops, moved, _zero(c))


def _context(c: Columns) -> np.ndarray:
    context = c["kv_history"] + 1.0
    return np.where(c["window"] > 0, np.minimum(context, c["window"]), context)


def decode_work(c: Columns, k: Constants, machine: Machine, dtype: str) -> Work:
    """One new token a request; a request reads `floor_tokens` at least (first tile)."""
    rows = np.maximum(_context(c), k["floor_tokens"])
    moved = c["batch"] * c["head_dim"] * (2.0 * c["kv_bytes"] * rows * c["num_kv_heads"] + 4.0 * c["num_heads"])
    return Work(4.0 * c["batch"] * rows * c["num_heads"] * c["head_dim"], moved, _zero(c))


def mla_context_work(c: Columns, k: Constants, machine: Machine, dtype: str) -> Work:
    """Causal latent attention of a prompt at DeepSeek's geometry: 192 per query head, 128 per value head."""
    pairs = c["q_len"] * (c["q_len"] + 1.0) / 2.0 + c["q_len"] * k["diagonal_tokens"]
    moved = c["batch"] * c["q_len"] * (2.0 * 320.0 * c["num_heads"] + c["kv_bytes"] * 576.0)
    return Work(2.0 * 320.0 * c["batch"] * c["num_heads"] * pairs, moved, _zero(c))


def mla_decode_work(c: Columns, k: Constants, machine: Machine, dtype: str) -> Work:
    """One new token a request over its latent KV (512 + 64 wide), weights absorbed."""
    rows = np.maximum(c["kv_history"] + 1.0, k["floor_tokens"])
    moved = c["batch"] * (c["kv_bytes"] * 576.0 * rows + 2.0 * 1088.0 * c["num_heads"])
    return Work(2.0 * 1088.0 * c["batch"] * c["num_heads"] * rows, moved, _zero(c))


def mla_projection_work(c: Columns, k: Constants, machine: Machine, dtype: str) -> Work:
    """Batched product over heads between the 128-wide head and the 512-wide latent."""
    width = WEIGHT_BYTES.get(dtype, 2.0)
    moved = c["num_heads"] * (width * 128.0 * 512.0 + 2.0 * c["batch"] * 640.0)
    return Work(2.0 * 128.0 * 512.0 * c["batch"] * c["num_heads"], moved, _zero(c))


def active_experts(tokens, topk, experts, balanced=True) -> np.ndarray:
    """Experts that a batch touches: min(E, n k) when timed balanced, E (1 - (1 - k/E)^n) under random routing."""
    if balanced:
        return np.minimum(experts, tokens * topk)
    return experts * -np.expm1(tokens * np.log1p(-np.minimum(topk / experts, 1.0 - 1e-12)))


def moe_work(c: Columns, k: Constants, machine: Machine, dtype: str) -> Work:
    """Three matrices of [hidden x inter / tp] for each touched expert of this GPU."""
    matrix = 3.0 * c["hidden"] * c["inter"] / c["tp"]
    experts = np.maximum(c["num_experts"] / c["ep"], 1.0)
    pairs = np.maximum(c["num_tokens"] * c["topk"] / c["ep"], 1.0)
    touched = np.minimum(experts, pairs)
    moved = touched * matrix * WEIGHT_BYTES.get(dtype, 2.0)
    moved = moved + pairs * 2.0 * (3.0 * c["hidden"] + 4.0 * c["inter"] / c["tp"])
    # an expert's rows fill tiles: few rows cost as much arithmetic as `tile_rows`
    rows = touched * k["tile_rows"] + pairs
    return Work(2.0 * matrix * rows, moved, _zero(c))


VOLUME = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}


def collective_work(op: str) -> Callable[[Columns, Constants, Machine, str], Work]:
    """Bytes that each GPU sends: the share (g - 1) / g of the message, twice for a sum."""

    def work(c: Columns, k: Constants, machine: Machine, dtype: str) -> Work:
        share = VOLUME[op] * (c["num_gpus"] - 1.0) / c["num_gpus"]
        return Work(_zero(c), _zero(c), share * c["message_bytes"])

    return work


def send_recv_work(c: Columns, k: Constants, machine: Machine, dtype: str) -> Work:
    """The message, once."""
    return Work(_zero(c), _zero(c), c["message_bytes"])


LIBRARY_BYTES = 8 * 1024**2
"""largest message of the engines' own all-reduce kernels; beyond it they use NCCL"""
ONE_STAGE_BYTES, ONE_STAGE_BYTES_8 = 512 * 1024, 256 * 1024
"""below, up to 4 (more) GPUs sum in one stage, every GPU reading all messages; 2 GPUs always do. Limits of vLLM's
csrc/custom_all_reduce.cuh, from memory; the steps are plain in the timings"""


@dataclass(frozen=True)
class EngineReduce:
    """An engine's own all-reduce: one stage while small, two beyond; NCCL at `library_ratio` of its rate at last.

    at_limit : whether a message of exactly LIBRARY_BYTES goes to NCCL already. vLLM's does, SGLang's and TensorRT-LLM's
    do not; the timings show it.
    """

    at_limit: bool

    def _library(self, c: Columns) -> np.ndarray:
        size = c["message_bytes"]
        return size >= LIBRARY_BYTES if self.at_limit else size > LIBRARY_BYTES

    def _one_stage(self, c: Columns) -> np.ndarray:
        limit = np.where(c["num_gpus"] <= 4, ONE_STAGE_BYTES, ONE_STAGE_BYTES_8)
        return ((c["num_gpus"] == 2) | (c["message_bytes"] < limit)) & ~self._library(c)

    def work(self, c: Columns, k: Constants, machine: Machine, dtype: str) -> Work:
        """Bytes over the link of one GPU."""
        ring = 2.0 * (c["num_gpus"] - 1.0) / c["num_gpus"] * c["message_bytes"]
        moved = np.where(self._one_stage(c), (c["num_gpus"] - 1.0) * c["message_bytes"], ring)
        return Work(_zero(c), _zero(c), np.where(self._library(c), ring / k["library_ratio"], moved))

    def added(self, c: Columns, k: Constants) -> np.ndarray:
        """Seconds of further GPUs, of the second stage and of NCCL's start."""
        library = self._library(c)
        second = np.where(self._one_stage(c) | library, 0.0, k["second_stage_s"])
        return (c["num_gpus"] - 2.0) * k["per_gpu_s"] + second + np.where(library, k["library_s"], 0.0)


def streaming_work(c: Columns, k: Constants, machine: Machine, dtype: str) -> Work:
    """`rows` x `width` 16-bit cells, read and written once."""
    return Work(_zero(c), 4.0 * c["rows"] * c["width"], _zero(c))


def quantise_work(c: Columns, k: Constants, machine: Machine, dtype: str) -> Work:
    """m x k 16-bit cells read, 8-bit cells written."""
    return Work(_zero(c), 3.0 * c["m"] * c["k"], _zero(c))
