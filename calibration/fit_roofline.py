"""Fit the constants of the kernel families and write the coefficient files that ship with the package.

    python calibration/fit_roofline.py --kernels ../shared/data/kernels

Robust least squares in log space (soft L1), one backend version a GPU, never pooled. The error that a file reports is
on shapes the fit did not see: whole blocks (all timings of one weight matrix, one head configuration, one number of
GPUs) are held out in five folds, and every row is predicted by the fit without its block. The shipped constants are
fitted on all rows. Same input, same file, byte for byte.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path

import kernel_rows
import numpy as np
import yaml
from forms import PLAIN, Form, decode_form, direct_form, gemm_form, library_form, prefill_form, roofline
from kernel_rows import Rows
from scipy.optimize import least_squares

from llmqsim.cost.operators import AllReduce, Elementwise
from llmqsim.hardware.gpu import Gpu, gpu

FOLDS = 5
SOFT_L1_SCALE = 0.1
"""log error from which a row counts linearly"""
STUDY_ELEMENTWISE = {"t0_s": 1.7e-6, "compute_efficiency": 1.0, "memory_efficiency": 0.7, "overlap": PLAIN}
PRESETS = Path(__file__).resolve().parent.parent / "llmqsim" / "presets" / "coefficients"
TABLES = ("gemm", "attention_context", "attention_decode", "collectives", "layer_ops")
SOURCES = {
    "gemm, attention, all-reduce": "github.com/ai-dynamo/aiconfigurator, "
    "aic-core/src/aiconfigurator_core/systems/data, commit 095f58a5, Apache-2.0",
    "elementwise check": "github.com/microsoft/vidur, data/profiling/compute, commit 7d475133, MIT",
    "elementwise constants, derate": "docs/cost_model.md, fidelity study section 2",
}
DERATE = {"share": 0.08, "start_tokens": 128, "full_tokens": 512}
HEADER = """# Written by calibration/fit_roofline.py; do not edit. `held_out`: errors on shape blocks that a fit did not see.
# Efficiencies are shares of the GPU's datasheet peaks; overlap is the exponent of the soft maximum (.inf: maximum).
"""
TARGETS = {
    "a100-sxm-80gb": ("A100-SXM-80GB", "0.14.0", "A100-80GB"),
    "h100-sxm": ("H100-SXM-80GB", "0.19.0", "H100-80GB"),
}
"""preset to (device, vLLM version, Vidur's device) in the kernel tables"""


def fit(form: Form, rows: Rows, take: np.ndarray) -> dict[str, float]:
    """Constants that fit the rows `take` (bool array) best."""
    shape = {name: values[take] for name, values in rows.shape.items()}
    measured, weight = np.log(rows.seconds[take]), rows.weight[take]

    def residuals(logs):
        return weight * (np.log(form.predict(dict(zip(form.names, np.exp(logs))), shape)) - measured)

    bounds = (np.log(form.lower), np.log(form.upper))
    best = least_squares(residuals, np.log(form.start), bounds=bounds, loss="soft_l1", f_scale=SOFT_L1_SCALE)
    return {name: float(f"{value:.4g}") for name, value in zip(form.names, np.exp(best.x))}


def held_out(form: Form, rows: Rows) -> np.ndarray:
    """Predicted seconds of every row by a fit that did not see its block."""
    blocks = sorted(set(rows.block), key=lambda b: hashlib.sha256(b.encode()).hexdigest())
    fold_of = {block: i % min(FOLDS, len(blocks)) for i, block in enumerate(blocks)}
    fold = np.array([fold_of[block] for block in rows.block])
    predicted = np.empty(len(rows))
    for i in range(fold.max() + 1):
        constants = fit(form, rows, fold != i)
        out = fold == i
        predicted[out] = form.predict(constants, {name: values[out] for name, values in rows.shape.items()})
    return predicted


def errors(predicted: np.ndarray, seconds: np.ndarray) -> dict[str, float]:
    """Median, P90 and bias (median signed error) in per cent."""
    relative = predicted / seconds - 1.0
    return {
        "median_percent": round(float(np.median(np.abs(relative))) * 100, 1),
        "p90_percent": round(float(np.percentile(np.abs(relative), 90)) * 100, 1),
        "bias_percent": round(float(np.median(relative)) * 100, 1),
    }


def entry(constants: dict, rows: Rows, held_out_errors: dict[str, float]) -> dict:
    """One family as it stands in a coefficient file."""
    counts = {"rows": len(rows), "rows_not_taken": rows.left_out, "blocks": len(set(rows.block))}
    return {"constants": constants, **counts, "held_out": held_out_errors}


def family(form: Form, rows: Rows, extra: dict[str, float] | None = None) -> dict:
    """One family's entry: constants, counts and errors."""
    constants = fit(form, rows, np.ones(len(rows), dtype=bool)) | (extra or {})
    return entry(constants, rows, errors(held_out(form, rows), rows.seconds))


def decode_family(card: Gpu, rows: Rows, kv_bytes: int) -> dict:
    """Decode attention; FlashAttention 2 (Ampere) splits the KV of grouped queries only."""
    ampere = card.architecture == "ampere"
    fixed = {"compute_efficiency": 1.0, "overlap": PLAIN}
    extra = fixed if ampere else fixed | {"grouped_t0_s": 0.0, "unsplit_blocks_per_multiprocessor": 0.0}
    return family(decode_form(card, kv_bytes, ampere), rows, extra)


def all_reduce_family(card: Gpu, rows: Rows) -> dict:
    """The two regimes of all-reduce, one entry."""
    own = rows.shape["message_bytes"] < AllReduce.direct_bytes
    constants, predicted = {}, np.empty(len(rows))
    for name, form, take in (("direct", direct_form(card), own), ("library", library_form(card), ~own)):
        part = rows.part(take)
        constants[name] = fit(form, part, np.ones(len(part), dtype=bool))
        predicted[take] = held_out(form, part)
    return entry(constants, rows, errors(predicted, rows.seconds))


def elementwise_family(card: Gpu, rows: Rows) -> dict:
    """Constants of the fidelity study, checked against Vidur's residual additions, on which nothing is fitted."""
    kernel = Elementwise(roofline(STUDY_ELEMENTWISE, card))
    predicted = kernel.seconds(1, 3 * 2 * rows.shape["num_tokens"] * rows.shape["hidden"])
    check = {"rows": len(rows), **errors(predicted, rows.seconds)}
    return {"constants": STUDY_ELEMENTWISE, "fitted": False, "check": check}


def coefficients(name: str, folder: Path) -> dict:
    """The content of one GPU's coefficient file."""
    device, version, vidur = TARGETS[name]
    card = gpu(name)
    gemm = kernel_rows.gemm(folder, device, version, card.l2_bytes)
    prefill = kernel_rows.prefill(folder, device, version, "bfloat16")
    decode = kernel_rows.decode(folder, device, version, "bfloat16", card.l2_bytes)
    families = {
        "gemm": family(gemm_form(card), gemm),
        "prefill_attention": family(prefill_form(card, 2), prefill),
        "decode_attention": decode_family(card, decode, 2),
        "elementwise": elementwise_family(card, kernel_rows.elementwise_check(folder, vidur)),
        "all_reduce": all_reduce_family(card, kernel_rows.all_reduce(folder, device, version)),
    }
    if "fp8" in card.flops_per_s:
        eight_bit = kernel_rows.prefill(folder, device, version, "fp8")
        families["prefill_attention_fp8_kv"] = family(prefill_form(card, 1), eight_bit)
        eight_bit = kernel_rows.decode(folder, device, version, "fp8", card.l2_bytes)
        families["decode_attention_fp8_kv"] = decode_family(card, eight_bit, 1)
    box = {
        "step tokens": gemm.shape["m"].max(),
        "decode batch": decode.shape["batch"].max(),
        "decode context": decode.shape["kv_history"].max() + 1,
        "prefill context": prefill.shape["q_len"].max(),
    }
    return {
        "gpu": name,
        "measured_on": device,
        "backend": f"vllm {version}",
        "dtype": "bfloat16",
        "sources": SOURCES,
        "input_sha256": {table: digest(folder / f"{table}.parquet") for table in TABLES},
        "derate": DERATE,
        "box": {axis: int(value) for axis, value in box.items()},
        "families": families,
    }


def digest(path: Path) -> str:
    """First 16 hexadecimal digits of a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def write(path: Path, content: dict) -> None:
    """Write a coefficient file whole or not at all."""
    text = HEADER + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def main() -> None:
    """Fit every target and print the error of each family on held-out blocks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=Path, required=True, help="folder of the kernel tables (parquet)")
    parser.add_argument("--out", type=Path, default=PRESETS, help="folder of the coefficient files")
    chosen = parser.parse_args()
    for name in TARGETS:
        content = coefficients(name, chosen.kernels)
        write(chosen.out / f"{name}.yaml", content)
        for family_name, found in content["families"].items():
            error = found.get("held_out") or found["check"]
            print(f"{name:15s} {family_name:26s} rows {found.get('rows', 0):6d}  {error}  {found['constants']}")


if __name__ == "__main__":
    main()
