"""Draw docs/figures/fleet_by_trace.png: how many GPUs a plan buys that knows only so much of the traffic.

    python docs/fleet_by_trace.py TRACES [--out docs/figures/fleet_by_trace.png]

TRACES : a folder that holds the published traces below. For each, the fleet that keeps the SLO is sought for requests of
mean lengths, for the best two-parameter fit, for the model that `workload fit --traffic` chooses, all fitted on the whole
trace, and for the trace itself; drawn traffic is judged by the mean attainment of three drawings. Some minutes of one core.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from llmqsim import from_mapping, simulate
from llmqsim.report import drawing
from llmqsim.workload.model.candidates import candidates
from llmqsim.workload.model.score import fit_again, fit_traffic
from llmqsim.workload.model.traffic import TrafficModel, draw_traffic
from llmqsim.workload.replay import scatter
from llmqsim.workload.trace import Trace, read_trace
from llmqsim.workload.writing import write_trace

TRACES = {
    "Azure code": ("azure2023_code", 4.0, "2 s"),
    "Azure conversation": ("azure2023_conv", 16.0, "2 s"),
    "Mooncake": ("mooncake_conversation", 1.0, "20 s"),
}
"""file, factor on the rate, so that fleets are of several GPUs, and TTFT to keep (Mooncake's longest prompts take 15 s)"""
TPOT = "100 ms"
ATTAINMENT = 0.95
DRAWINGS = 3
MOST = 128
NAMES = ("means only", "two parameters", "our model", "the trace itself")


def main() -> None:
    """Search, print and draw."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("traces", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/figures/fleet_by_trace.png"))
    arguments = parser.parse_args()
    found: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for title, (name, factor, ttft) in TRACES.items():
            trace = read_trace(arguments.traces / f"{name}.csv.gz")
            if "mooncake" in name:
                trace = replace(trace, arrival_s=scatter(trace.arrival_s))
            trace = replace(trace, arrival_s=(trace.arrival_s - trace.arrival_s[0]) / factor)
            found[title] = fleets(trace, Path(folder), ttft)
            print(f"{title}: " + ", ".join(f"{name} {size}" for name, size in zip(NAMES, found[title], strict=True)), flush=True)
    draw(found, str(arguments.out))


def fleets(trace: Trace, folder: Path, ttft: str) -> list[int]:
    """GPUs for each of NAMES."""
    kinds = {one.key: one.model for one in candidates(trace, None)}
    fit = fit_traffic(trace)
    models = [kinds["means"], kinds["two"], fit_again(trace, fit)]
    print(f"  chosen: {fit.chosen}", flush=True)
    span = float(trace.arrival_s[-1])
    return [fewest(drawn(model, span, folder), ttft) for model in models] + [fewest(written([trace], folder), ttft)]


def drawn(model: TrafficModel, span: float, folder: Path) -> list[Path]:
    """Traces of a model, as long as the trace."""
    return written([draw_traffic(model, 0, replication, None, span) for replication in range(DRAWINGS)], folder)


def written(traces: list[Trace], folder: Path) -> list[Path]:
    """Files of traces, without what the fleet does not look at."""
    paths = [folder / f"{i}.csv" for i in range(len(traces))]
    for path, trace in zip(paths, traces, strict=True):
        write_trace(replace(trace, prefix_ids=None, labels={}, session=None, numbers={}), path)
    return paths


def fewest(paths: list[Path], ttft: str) -> int:
    """The smallest fleet whose mean attainment is enough, by doubling and bisection."""
    high = 1
    while attained(paths, high, ttft) < ATTAINMENT:
        high *= 2
        if high > MOST:
            return MOST
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if attained(paths, middle, ttft) >= ATTAINMENT else (middle, high)
    return high


def attained(paths: list[Path], gpus: int, ttft: str) -> float:
    """Share of the requests within the SLO, mean over files."""
    shares = []
    for path in paths:
        scenario = {
            "workload": {"trace": {"file": path.name}}, "model": "llama-3.1-8b", "gpu": "a100-sxm-80gb", "replicas": gpus,
            "routing": "least_outstanding", "engine": {"preset": "vllm-0.19"}, "slo": {"ttft": ttft, "tpot": TPOT, "attainment": ATTAINMENT},
        }  # fmt: skip
        shares.append(simulate(from_mapping(scenario, folder=str(path.parent)), keep="summary").summary()["attainment"])
    return float(np.mean(shares))


def draw(found: dict[str, list[int]], path: str) -> None:
    """Bars by trace."""
    plot = drawing.pyplot()
    figure, axes = plot.subplots(figsize=(7.5, 3.8), layout="constrained")
    places = np.arange(len(found))
    for i, name in enumerate(NAMES):
        heights = [sizes[i] for sizes in found.values()]
        bars = axes.bar(places + 0.2 * (i - 1.5), heights, 0.19, label=name, color=drawing.COLOURS[i])
        axes.bar_label(bars, fontsize=8)
    axes.set_xticks(places)
    axes.set_xticklabels(list(found))
    axes.set_ylabel("GPUs (A100) that keep the SLO", fontsize=8)
    axes.legend(fontsize=8, frameon=False)
    drawing.save(figure, path)


if __name__ == "__main__":
    main()
