"""How much slower large GEMMs are with real weights than in vLLM's timings, by GPU: the share of the sustained-load rule.

vLLM's collector times uninitialised 16-bit weights, which power-limited GPUs multiply faster than real ones; SGLang's,
TensorRT-LLM's and Vidur's use random values. Their ratio at the same shapes is independent of any serving run.

    python calibration/serving/random_weights.py --kernels ../shared/data/kernels
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from llmqsim.cost.measured import Measured
from llmqsim.hardware.gpu import gpu

LARGE = (512, 8192)
"""rows m of the GEMMs that are compared"""
WIDE = 2048
"""least n and k"""
SAME_SHAPE = (
    ("A100-SXM-80GB", "0.14.0", "sglang", "0.5.10"),
    ("H100-SXM-80GB", "0.19.0", "sglang", "0.5.10"),
    ("H100-SXM-80GB", "0.19.0", "trtllm", "1.3.0rc20"),
    ("H200-SXM-141GB", "0.22.0", "sglang", "0.5.14"),
    ("H200-SXM-141GB", "0.22.0", "trtllm", "1.3.0rc20"),
)
VIDUR = (("A100-80GB", "a100-sxm-80gb", "0.14.0"), ("H100-80GB", "h100-sxm", "0.19.0"))


def same_shape(rows: pd.DataFrame, device: str, version: str, backend: str, other: str) -> pd.Series:
    """Ratio of another backend's times to vLLM's, shape by shape."""
    own = rows[rows.gpu == device]
    times = [
        own[(own.backend == name) & (own.backend_version == at)].groupby(["m", "n", "k"]).latency_us.median()
        for name, at in (("vllm", version), (backend, other))
    ]
    return (times[1] / times[0]).dropna()


def vidur_ratio(rows: pd.DataFrame, device: str, preset: str, version: str) -> pd.Series:
    """Ratio of Vidur's linear layers to the fitted vLLM kernels at the same m, n, k."""
    t = rows[(rows.gpu == device) & rows.num_tokens.between(*LARGE)]
    head = t.hidden / t.n_head
    shapes = {
        "mlp_up_proj": (np.where(t.gated, 2, 1) * t.inter / t.tp, t.hidden),
        "mlp_down_proj": (t.hidden, t.inter / t.tp),
        "attn_pre_proj": ((t.n_head + 2 * t.n_kv_head) * head / t.tp, t.hidden),
        "attn_post_proj": (t.hidden, t.hidden / t.tp),
    }
    measured, ratios = Measured(gpu(preset), "vllm", version), []
    for op, (n, k) in shapes.items():
        n, k = np.asarray(n, dtype=float), np.asarray(k, dtype=float)
        kept = np.asarray(t.op == op) & (n >= WIDE) & (k >= WIDE)
        own = measured.gemm_seconds(t.num_tokens.to_numpy()[kept], n[kept], k[kept]) * 1e6
        ratios.append(t.latency_us.to_numpy()[kept] / own)
    return pd.Series(np.concatenate(ratios))


def main() -> None:
    """Print the ratios: median and quartiles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=Path, required=True)
    folder = parser.parse_args().kernels
    gemm = pd.read_parquet(folder / "gemm.parquet")
    gemm = gemm[(gemm.dtype == "bfloat16") & (gemm.timing == "graph") & gemm.m.between(*LARGE)]
    gemm = gemm[(gemm.n >= WIDE) & (gemm.k >= WIDE) & (gemm.flag != "super_peak")]
    found = [(d, f"{b} {o} / vllm {v}", same_shape(gemm, d, v, b, o)) for d, v, b, o in SAME_SHAPE]
    layers = pd.read_parquet(folder / "layer_ops.parquet")
    found += [(d, f"Vidur / vllm {v}", vidur_ratio(layers, d, p, v)) for d, p, v in VIDUR]
    print("| GPU | times of | shapes | median | quartiles |\n| --- | --- | --- | --- | --- |")
    for device, what, ratio in found:
        low, middle, high = ratio.quantile([0.25, 0.5, 0.75])
        print(f"| {device} | {what} | {len(ratio):,} | {middle:.3f} | {low:.3f}–{high:.3f} |")


if __name__ == "__main__":
    main()
