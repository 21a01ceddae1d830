"""Whole layers from kernels that no fit saw: four GEMMs and attention, sum against sum.

    python calibration/validate_layers.py --kernels ../shared/data/kernels

Every GEMM and attention time is predicted by a fit without its block (llmqsim/calibrate/holdout.py). A layer is
drawn as four weight matrices from the tables (sides of 1,024 to 16,384) with attention of 32 heads on 8 KV heads (or
32), at the same number of tokens: one prompt, or that many decodes at one context. Same input, same figures.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from llmqsim.calibrate.holdout import errors, held_out  # noqa: E402 after the path is set
from llmqsim.calibrate.rows import Rows, split  # noqa: E402
from llmqsim.calibrate.tables import read_parts  # noqa: E402
from llmqsim.cost.store import machine  # noqa: E402

SETTINGS = (
    ("A100-SXM-80GB", "vllm", "0.14.0"),
    ("A100-SXM-80GB", "sglang", "0.5.10"),
    ("H100-SXM-80GB", "vllm", "0.19.0"),
    ("H100-SXM-80GB", "vllm", "0.24.0"),
    ("H100-SXM-80GB", "sglang", "0.5.10"),
    ("H100-SXM-80GB", "trtllm", "1.3.0rc20"),
    ("H200-SXM-141GB", "vllm", "0.22.0"),
    ("L40S-48GB", "vllm", "0.24.0"),
)
DRAWS = 40
TABLES = ("gemm", "attention_context", "attention_decode")


def main() -> None:
    """Print the error of decode and prefill layers for each setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=Path, required=True, help="folder of the kernel tables (parquet)")
    kernels = parser.parse_args().kernels
    frames = {part.family.name: part for part in read_parts(kernels) if part.family.table in TABLES}
    every = {"decode": [], "prefill": []}
    for setting in SETTINGS:
        gemm = _predicted(frames["gemm"], setting)
        for phase in every:
            attention = _predicted(frames[f"{phase}_attention"], setting)
            sums = layers(gemm, attention, phase)
            every[phase].append(sums)
            print(*setting, phase, _cell(sums))
    for phase, sums in every.items():
        print("all", phase, _cell(np.concatenate(sums)))


def _cell(sums: np.ndarray) -> str:
    found = errors(sums[:, 0], sums[:, 1])
    return f"{found['rows']} layers: {found['median_percent']:.1f} / {found['p90_percent']:.1f} %"


def _predicted(part, setting) -> tuple[Rows, np.ndarray]:
    """The 16-bit rows of a setting (head size 128, no window) and their held-out predictions."""
    frame = part.frame
    keep = frame.dtype == "bfloat16"
    for name, value in zip(("gpu", "backend", "backend_version"), setting):
        keep &= frame[name] == value
    for name, value in (("timing", "graph"), ("kv_dtype", "bfloat16"), ("head_dim", 128), ("window", 0)):
        keep &= frame[name] == value if name in frame else True
    rows = next(split(part.family, frame[keep & (frame.flag != "super_peak")].reset_index(drop=True)))
    return rows, held_out(rows, machine(setting[0]))[0]


def layers(gemm: tuple[Rows, np.ndarray], attention: tuple[Rows, np.ndarray], phase: str) -> np.ndarray:
    """(predicted, measured) seconds of drawn layers."""
    rows, predicted = gemm
    c = rows.columns
    serving = np.isfinite(predicted) & (np.minimum(c["n"], c["k"]) >= 1024) & (np.maximum(c["n"], c["k"]) <= 16384)
    by_tokens = {m: np.flatnonzero(serving & (c["m"] == m)) for m in np.unique(c["m"])}
    other, guess = attention
    a = other.columns
    tokens = a["batch"] if phase == "decode" else a["batch"] * a["q_len"]
    usual = (a["num_heads"] == 32) & np.isin(a["num_kv_heads"], (8, 32)) & np.isfinite(guess) & (tokens <= 8192)
    usual &= (a["kv_history"] >= 127) if phase == "decode" else (a["q_len"] >= 128)
    generator = np.random.default_rng(0)
    sums = []
    for i in np.flatnonzero(usual):
        places = by_tokens.get(tokens[i], np.empty(0, int))
        if len(places) >= 4:
            drawn = generator.choice(places, size=(DRAWS, 4))
            pair = (predicted[drawn].sum(axis=1) + guess[i], rows.seconds[drawn].sum(axis=1) + other.seconds[i])
            sums.append(np.stack(pair, axis=1))
    return np.concatenate(sums)


if __name__ == "__main__":
    main()
