"""Which measured kernel timings each family is fitted on, as arrays of shapes and seconds.

The tables are those of ../shared/data/kernels; its README says what every column means and which pitfalls the choices
below answer. All rows are bf16 compute, timed by AIConfigurator's collector (Apache-2.0) on one backend version.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

WEIGHT_COPIES = 6
"""copies of a weight that the collector cycles through; where all fit in L2, a timing says nothing about HBM"""
SMALLEST_SIDE = 512
"""n and k below this do not occur in a layer"""
CACHED_KV = (0.02, 1.25)
"""shares of L2 between which a decode timing reads KV from the cache, as a serving engine never does: every layer has
its own KV, and the weights pass between. Below, the launch decides; above, HBM."""
SHORTEST_CHUNK = 64
"""tokens of the shortest prefill taken; below, kernels are those of decoding, and the launch is most of the time"""
SHORT_CONTEXT, SHORT_CONTEXT_WEIGHT = 127, 0.25
"""decode contexts below are rare in serving but more than half of the rows: they count less in the fit"""
HEAD_DIM = 128


@dataclass(frozen=True)
class Rows:
    """Shapes (a mapping of float64 arrays), measured seconds, and the block that each row is held out with."""

    shape: dict[str, np.ndarray]
    seconds: np.ndarray
    block: np.ndarray
    left_out: int
    """rows of the same backend that were not taken, see the module's constants"""
    weight: np.ndarray
    """weight of each residual in the fit; errors are never weighted"""

    def __len__(self) -> int:
        return len(self.seconds)

    def part(self, take: np.ndarray) -> Rows:
        """The rows where `take` is true."""
        shape = {name: values[take] for name, values in self.shape.items()}
        return Rows(shape, self.seconds[take], self.block[take], 0, self.weight[take])


def read(folder: Path, table: str, gpu: str, version: str, **equal: object) -> pd.DataFrame:
    """Rows of one table for a GPU and vLLM version whose columns equal the given values, impossible ones left out."""
    path = folder / f"{table}.parquet"
    if not path.is_file():
        raise SystemExit(f"{path}: no such file; give the folder of the kernel tables with --kernels")
    data = pd.read_parquet(path)
    keep = (data.gpu == gpu) & (data.backend == "vllm") & (data.backend_version == version)
    if "flag" in data:
        keep &= data.flag.astype(str) != "super_peak"
    for column, value in equal.items():
        keep &= data[column] == value
    if not keep.any():
        raise SystemExit(f"{path}: no rows for {gpu}, vllm {version}, {equal}")
    return data[keep]


def gemm(folder: Path, gpu: str, version: str, l2_bytes: int) -> Rows:
    """Linear layers in bf16 whose weights are read from HBM. A block is one (n, k): all m of it are held out."""
    data = read(folder, "gemm", gpu, version, dtype="bfloat16", timing="graph")
    cached = WEIGHT_COPIES * 2.0 * data.n.astype(float) * data.k.astype(float) <= l2_bytes
    small = data[["n", "k"]].min(axis=1) < SMALLEST_SIDE
    return _rows(data, ~(cached | small), ["m", "n", "k"], ["n", "k"])


def prefill(folder: Path, gpu: str, version: str, kv_dtype: str) -> Rows:
    """Causal prefill without prefix or window, head size 128. A block is one (heads, KV heads)."""
    data = read(folder, "attention_context", gpu, version, dtype="bfloat16", kv_dtype=kv_dtype)
    keep = (data.head_dim == HEAD_DIM) & (data.window == 0) & (data.q_len >= SHORTEST_CHUNK)
    return _rows(data, keep, ["batch", "q_len", "num_heads", "num_kv_heads"], ["num_heads", "num_kv_heads"])


def decode(folder: Path, gpu: str, version: str, kv_dtype: str, l2_bytes: int) -> Rows:
    """One decode step over paged KV, no window, head size 128, KV not in L2. A block is one (heads, KV heads)."""
    data = read(folder, "attention_decode", gpu, version, dtype="bfloat16", kv_dtype=kv_dtype)
    width = 1 if kv_dtype == "fp8" else 2
    kv = 2.0 * width * HEAD_DIM * data.batch * data.num_kv_heads * (data.kv_history + 1.0)
    cached = (kv > CACHED_KV[0] * l2_bytes) & (kv < CACHED_KV[1] * l2_bytes)
    keep = (data.head_dim == HEAD_DIM) & (data.window == 0) & ~cached
    rows = _rows(data, keep, ["batch", "kv_history", "num_heads", "num_kv_heads"], ["num_heads", "num_kv_heads"])
    rows.weight[rows.shape["kv_history"] < SHORT_CONTEXT] = SHORT_CONTEXT_WEIGHT
    return rows


def all_reduce(folder: Path, gpu: str, version: str) -> Rows:
    """All-reduce inside a CUDA graph on one node. A block is one number of GPUs."""
    data = read(folder, "collectives", gpu, version, op="all_reduce", mode="graph", nodes=1)
    return _rows(data, data.num_gpus > 1, ["num_gpus", "message_bytes"], ["num_gpus"])


def elementwise_check(folder: Path, vidur_gpu: str) -> Rows:
    """Residual additions timed by Vidur (MIT), from 512 tokens on (times are rounded to 1 us). A block is one model."""
    data = pd.read_parquet(folder / "layer_ops.parquet")
    data = data[(data.gpu == vidur_gpu) & (data.op == "add")]
    return _rows(data, data.num_tokens >= 512, ["num_tokens", "hidden"], ["hidden"])


def _rows(data: pd.DataFrame, keep: pd.Series, shape: list[str], block: list[str]) -> Rows:
    kept = data[keep].sort_values(shape, kind="stable")
    names = kept[block].astype(str).agg("x".join, axis=1).to_numpy()
    arrays = {column: kept[column].to_numpy(dtype=np.float64) for column in shape}
    seconds = kept.latency_us.to_numpy(dtype=np.float64) * 1e-6
    return Rows(arrays, seconds, names, int((~keep).sum()), np.ones(len(kept)))
