"""Fit of the 2023 presets' host time and slow-down of large steps on static batches of Llama-2-70B.

    prefill = serial + mixed x layers + per_running x B + max(floor x layers, GPU x slow-down(tokens))
    decode  = serial + per_running x B + max(floor x layers, GPU)

GPU is the kernels' time without any host; serial and floor are longer on servers of the A100's time (`ampere`). Seven
numbers and a factor; minimised is the sum of both mean absolute percentage errors. Each GPU and TP is left out once.

    python calibration/serving/static_batches.py --table ../shared/data/serving/static_batch_dev.csv
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import differential_evolution

from llmqsim.cost.kernels import prefill_attention_ns, step_ns
from llmqsim.cost.lower import StepCost, lower
from llmqsim.hardware.gpu import gpu
from llmqsim.hardware.model import model
from llmqsim.hardware.serving import engine_options
from llmqsim.options import HostCost

NETWORK, LAYERS = "llama-2-70b", 80
GPUS = {"A100-SXM-80GB": "a100-sxm-80gb", "H100-SXM-80GB": "h100-sxm"}
NAMES = ("serial ms", "floor ms a layer", "ampere", "per running ms", "mixed ms a layer", "share", "from", "full")
BOUNDS = [(2, 15), (0.15, 0.5), (1, 1.8), (0.1, 0.4), (0, 0.4), (0.2, 1.2), (300, 1500), (1600, 9000)]
LONGEST_MS = 5.0
"""ms of prefill a token; one row of the table is ten times below its neighbours and is left out"""


def without_host(name: str, tp: int) -> StepCost:
    """Step costs of the kernels alone."""
    card, network = gpu(GPUS[name]), model(NETWORK)
    options, _, _ = engine_options("static-2023", card, network, tp, {"max_num_seqs": 256, "sampler": "plain"})
    return lower(network, card, tp, replace(options, max_num_batched_tokens=40_000), HostCost(), 16_384)


def kernels_ms(cost: StepCost, row) -> tuple[float, float]:
    """(prefill, decode step) of one row, ms."""
    batch, prompt = int(row.batch_size), int(row.prompt_tokens)
    attention = batch * prefill_attention_ns(cost.costs, cost.params, prompt, prompt)
    prefill = step_ns(cost.costs, cost.params, 0, 0, batch * prompt, batch, attention, batch, batch)
    places = np.linspace(1, row.output_tokens, 8).astype(int)
    decode = [
        step_ns(cost.costs, cost.params, batch, batch * (prompt + int(at)), 0, 0, 0.0, batch, batch) for at in places
    ]
    return prefill / 1e6, float(np.mean(decode)) / 1e6


def table(path: Path) -> pd.DataFrame:
    """The measured rows with the kernels' times."""
    rows = pd.read_csv(path)
    costs = {key: without_host(*key) for key in set(zip(rows.gpu, rows.tp))}
    both = [kernels_ms(costs[row.gpu, row.tp], row) for row in rows.itertuples()]
    rows["gpu_prefill"], rows["gpu_decode"] = zip(*both, strict=True)
    rows["tokens"] = rows.batch_size * rows.prompt_tokens
    rows["ampere"] = rows.gpu.str.startswith("A100").astype(float)
    return rows[rows.prefill_ms > rows.gpu_prefill / LONGEST_MS]


def predicted(x: np.ndarray, rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """(prefill, decode) ms for parameters in the order of NAMES."""
    serial, floor, ampere, each, mixed, share, start, full = x
    older = 1 + (ampere - 1) * rows.ampere
    ramp = np.clip(np.log(rows.tokens / start) / np.log(full / start), 0, 1)
    common = serial * older + each * rows.batch_size
    least = LAYERS * floor * older
    prefill = common + mixed * LAYERS + np.maximum(least, rows.gpu_prefill * (1 + share * ramp))
    return prefill, common + np.maximum(least, rows.gpu_decode)


def errors(x: np.ndarray, rows: pd.DataFrame) -> tuple[float, float]:
    """Mean absolute percentage errors of prefill and decode."""
    prefill, decode = predicted(x, rows)
    measured = rows.prefill_ms, rows.decode_ms_per_token
    return tuple(100 * float((p / m - 1).abs().mean()) for p, m in zip((prefill, decode), measured))


def fit(rows: pd.DataFrame, rounds: int = 80) -> np.ndarray:
    """The best parameters."""
    return differential_evolution(lambda x: sum(errors(x, rows)), BOUNDS, seed=0, maxiter=rounds).x


def main() -> None:
    """Print the fit with its standard errors, and what it says of a GPU and TP left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, required=True)
    rows = table(parser.parse_args().table)
    best, rng = fit(rows, 200), np.random.default_rng(0)
    again = [fit(rows.sample(len(rows), replace=True, random_state=int(rng.integers(2**31))), 25) for _ in range(12)]
    print("| parameter | value | standard error |\n| --- | --- | --- |")
    for name, value, spread in zip(NAMES, best, np.std(again, axis=0, ddof=1)):
        print(f"| {name} | {value:.3g} | {spread:.2g} |")
    print(f"\nmean error: prefill {errors(best, rows)[0]:.1f} %, decode {errors(best, rows)[1]:.1f} %, {len(rows)} rows\n")
    print("| left out | prefill | decode |\n| --- | --- | --- |")
    for (card, tp), out in rows.groupby(["gpu", "tp"]):
        prefill, decode = errors(fit(rows.drop(out.index)), out)
        print(f"| {card}, TP{tp} | {prefill:.1f} % | {decode:.1f} % |")


if __name__ == "__main__":
    main()
