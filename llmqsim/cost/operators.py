"""One physical form for each kernel family: the time of one call from the shape of its operands.

All take arrays (or numbers) of shapes and give float64 seconds. Constants come from the coefficient files, where they
were fitted on measured timings; `work` is what follows from the shape alone. Later refinements (residual tables,
further families) keep this face: shape in, seconds out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PREFILL_TILE_TOKENS = 128
"""query tokens that one thread block of a flash-attention prefill kernel handles (head size 128; FA2 and FA3)"""


@dataclass(frozen=True)
class Roofline:
    """t = t0 + (compute^p + memory^p)^(1/p): launch, then the slower of arithmetic and memory traffic.

    flops_per_s, bytes_per_s : what kernels of the family reach at best (peak x fitted efficiency). overlap : p >= 1;
    1 means that the two add, infinity that the shorter one is hidden (the textbook roofline).
    """

    t0_s: float
    flops_per_s: float
    bytes_per_s: float
    overlap: float = float("inf")

    def busy_s(self, flops, moved_bytes):
        """Seconds without the launch."""
        compute = np.asarray(flops, dtype=np.float64) / self.flops_per_s
        memory = np.asarray(moved_bytes, dtype=np.float64) / self.bytes_per_s
        longer, shorter = np.maximum(compute, memory), np.minimum(compute, memory)
        if self.overlap == float("inf"):
            return longer
        ratio = np.divide(shorter, longer, out=np.zeros_like(longer), where=longer > 0)
        return longer * (1.0 + ratio**self.overlap) ** (1.0 / self.overlap)

    def seconds(self, flops, moved_bytes):
        """Seconds of one call."""
        return self.t0_s + self.busy_s(flops, moved_bytes)

    def formula(self, flops: float, moved_bytes: float) -> str:
        """The formula with its numbers filled in."""
        return f"{self.t0_s * 1e6:.1f} us + {self.busy_formula(flops, moved_bytes)}"

    def busy_formula(self, flops: float, moved_bytes: float) -> str:
        """The same without the launch."""
        terms = f"{flops:.3g} FLOP / {self.flops_per_s:.3g}, {moved_bytes:.3g} B / {self.bytes_per_s:.3g}"
        kind = "max" if self.overlap == float("inf") else f"norm_{self.overlap:.3g}"
        return f"{kind}({terms})"


@dataclass(frozen=True)
class Gemm:
    """Y[m, n] = X[m, k] W[k, n] in 16 bits."""

    roofline: Roofline
    element_bytes: int = 2

    def work(self, m, n: int, k: int):
        """(FLOPs, bytes moved) of one call."""
        m = np.asarray(m, dtype=np.float64)
        return 2.0 * m * n * k, self.element_bytes * (m * k + 1.0 * n * k + m * n)

    def seconds(self, m, n: int, k: int):
        """Seconds of one call for m rows."""
        return self.roofline.seconds(*self.work(m, n, k))


@dataclass(frozen=True)
class PrefillAttention:
    """Causal attention of chunks of `query` tokens that follow `prefix` tokens already in the KV cache.

    diagonal_tokens : keys a query costs beyond those it sees (masked parts of tiles on the diagonal, start-up of a
    tile). kv_bytes_per_s : rate at which KV is read. A call that has fewer thread blocks than the GPU multiprocessors
    reaches only that share of the FLOP rate. A chunk on a prefix was not measured: it is taken to cost what a plain
    prefill of equal FLOPs and queries does, and at least the reading of its KV.
    """

    roofline: Roofline
    diagonal_tokens: float
    multiprocessors: int
    kv_bytes_per_s: float

    def work(self, query, prefix, heads: int, kv_heads: int, head_dim: int, kv_bytes: int, batch=1):
        """(FLOPs with the diagonal's, bytes of queries and outputs, bytes of KV) of one layer on one GPU."""
        query, prefix = np.asarray(query, dtype=np.float64), np.asarray(prefix, dtype=np.float64)
        pairs = query * (prefix + query / 2.0 + self.diagonal_tokens)
        rows = 4.0 * batch * query * heads * head_dim
        kv = 2.0 * batch * kv_bytes * (query + prefix) * kv_heads * head_dim
        return 4.0 * batch * heads * head_dim * pairs, rows, kv

    def busy_s(self, query, prefix, heads: int, kv_heads: int, head_dim: int, kv_bytes: int, batch=1):
        """Seconds of one layer without the launch."""
        flops, rows, kv = self.work(query, prefix, heads, kv_heads, head_dim, kv_bytes, batch)
        blocks = batch * heads * np.ceil(np.asarray(query, dtype=np.float64) / PREFILL_TILE_TOKENS)
        share = np.clip(blocks / self.multiprocessors, 1e-9, 1.0)
        return np.maximum(self.roofline.busy_s(flops / share, rows), kv / self.kv_bytes_per_s)

    def seconds(self, query, prefix, heads: int, kv_heads: int, head_dim: int, kv_bytes: int, batch=1):
        """Seconds of one layer, one call."""
        return self.roofline.t0_s + self.busy_s(query, prefix, heads, kv_heads, head_dim, kv_bytes, batch)


@dataclass(frozen=True)
class DecodeAttention:
    """Attention of one new token in each of `batch` requests over `context` tokens each (the new one included).

    floor_tokens : a request costs at least as much as one of this context (first tile). per_block_s : for each KV head
    of each request (start-up of its thread blocks). grouped_t0_s : more launch time where query heads share KV heads
    (FlashAttention 2 splits their KV and adds a combining kernel). unsplit_blocks : where it does not split (a KV head
    for each query head), as many thread blocks are needed to draw the full bandwidth; 0 where KV is always split.
    """

    roofline: Roofline
    floor_tokens: float
    per_block_s: float
    grouped_t0_s: float = 0.0
    unsplit_blocks: float = 0.0

    def work(self, batch, context, heads: int, kv_heads: int, head_dim: int, kv_bytes: int):
        """(FLOPs, bytes moved) of one layer on one GPU."""
        batch, context = np.asarray(batch, dtype=np.float64), np.asarray(context, dtype=np.float64)
        rows = np.maximum(context, self.floor_tokens)
        moved = batch * (2.0 * kv_bytes * rows * kv_heads + 4.0 * heads) * head_dim
        return 4.0 * batch * rows * heads * head_dim, moved

    def seconds(self, batch, context, heads: int, kv_heads: int, head_dim: int, kv_bytes: int):
        """Seconds of one layer, one call."""
        flops, moved = self.work(batch, context, heads, kv_heads, head_dim, kv_bytes)
        blocks = np.asarray(batch, dtype=np.float64) * kv_heads
        grouped = np.not_equal(heads, kv_heads)
        if self.unsplit_blocks:
            share = np.clip(blocks / self.unsplit_blocks, 1e-9, 1.0)
            moved = moved / np.where(grouped, 1.0, share)
        launch = np.where(grouped, self.grouped_t0_s, 0.0) + blocks * self.per_block_s
        return launch + self.roofline.seconds(flops, moved)


@dataclass(frozen=True)
class Elementwise:
    """Norms, activations, rotary embedding, KV write, sampling: memory traffic alone."""

    roofline: Roofline

    def seconds(self, calls: int, moved_bytes):
        """Seconds of `calls` kernels that move so many bytes together."""
        return calls * self.roofline.t0_s + self.roofline.busy_s(0.0, moved_bytes)


@dataclass(frozen=True)
class AllReduce:
    """Sum over the GPUs of a replica: vLLM's own kernel below `direct_bytes`, NCCL from there on.

    The own kernel works in one stage (every GPU reads all messages) while they are small, in two beyond (reduce-scatter
    and all-gather, `second_stage_s` more). Limits: vLLM's csrc/custom_all_reduce.cuh, from memory; the steps are plain
    in the timings.
    """

    direct: Roofline
    second_stage_s: float
    library: Roofline
    direct_bytes: int = 8 * 1024**2
    one_stage_bytes_4: int = 512 * 1024
    """below this message size up to 4 GPUs work in one stage (2 GPUs always do)"""
    one_stage_bytes_8: int = 256 * 1024
    """the same for more than 4 GPUs"""
    small: Roofline | None = None
    """another protocol of the library: the faster of both is taken (NCCL's low-latency one for small messages)"""

    def direct_seconds(self, message_bytes, gpus):
        """Seconds of one call of the engine's own kernel."""
        message = np.asarray(message_bytes, dtype=np.float64)
        limit = np.where(np.less_equal(gpus, 4), self.one_stage_bytes_4, self.one_stage_bytes_8)
        one_stage = np.equal(gpus, 2) | (message < limit)
        moved = np.where(one_stage, (gpus - 1) * message, ring_bytes(message, gpus))
        return np.where(one_stage, 0.0, self.second_stage_s) + self.direct.seconds(0.0, moved)

    def seconds(self, message_bytes, gpus):
        """Seconds of one call; 0 for one GPU."""
        message = np.asarray(message_bytes, dtype=np.float64)
        library = self.library.seconds(0.0, ring_bytes(message, gpus))
        if self.small is not None:
            library = np.minimum(library, self.small.seconds(0.0, ring_bytes(message, gpus)))
        both = np.where(message < self.direct_bytes, self.direct_seconds(message, gpus), library)
        return np.where(np.equal(gpus, 1), 0.0, both)


def ring_bytes(message_bytes, gpus):
    """Bytes that each GPU sends when a message is summed in two halves: 2 (g - 1) / g of it."""
    return 2.0 * (gpus - 1) / gpus * message_bytes
