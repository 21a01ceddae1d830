"""The best split of six GPUs against the prompt/output ratio and the SLO: `python scenarios/disaggregation/pd_ratio.py`.

Prompt and output have 2,400 tokens together on average. Goodput is the highest rate at which 90 % of the requests meet
both targets (llmqsim/planner/goodput.py). Writes pd_ratio.json beside itself and docs/figures/pd_ratio.png; --figure only draws.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from llmqsim import load
from llmqsim.planner.goodput import goodput, grid
from llmqsim.simulation import prepare

HERE = Path(__file__).parent
SCENARIO, DATA = str(HERE / "pd_ratio.yaml"), HERE / "pd_ratio.json"
FIGURE = HERE.parents[1] / "docs" / "figures" / "pd_ratio.png"
GPUS, TOKENS = 6, 2400
RATIOS = (1, 4, 16, 64)
SLOS = {
    "tight (TTFT 300 ms, TPOT 12 ms)": (0.3, 0.012),
    "usual (TTFT 500 ms, TPOT 20 ms)": (0.5, 0.020),
    "loose (TTFT 2 s, TPOT 50 ms)": (2.0, 0.050),
}
SPLITS = [f"{count}P{GPUS - count}D" for count in range(1, GPUS)]


def lengths(ratio: float) -> dict[str, int]:
    """Mean prompt and output tokens."""
    output = round(TOKENS / (1 + ratio))
    return {
        "workload.lengths.prompt.lognormal.mean": TOKENS - output,
        "workload.lengths.output.lognormal.mean": output,
    }


def measure() -> dict[str, dict[str, dict[str, float]]]:
    """SLO -> deployment -> ratio -> goodput, req/s."""
    found: dict[str, dict[str, dict[str, float]]] = {name: {} for name in SLOS}
    for deployment in ("colocated", *SPLITS):
        for ratio in RATIOS:
            sets: dict = lengths(ratio)
            if deployment != "colocated":
                prefill = int(deployment[0])
                sets |= {"pools.prefill.replicas": prefill, "pools.decode.replicas": GPUS - prefill}
            variant = "colocated" if deployment == "colocated" else None
            rates = goodput(prepare(load(SCENARIO, variant=variant, sets=sets)), SLOS.values(), grid(3, 120, 1.25))
            for name, slo in SLOS.items():
                found[name].setdefault(deployment, {})[str(ratio)] = round(rates[slo], 3)
            print(deployment, ratio, [round(rate, 1) for rate in rates.values()], flush=True)
    return found


def draw(found: dict) -> None:
    """Left: the best split by ratio. Right: what it gains over six GPUs that do both."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    styles = (("#c0392b", "o", -0.06), ("#2c7fb8", "s", 0.0), ("#555555", "^", 0.06))
    for (name, rows), (colour, marker, apart) in zip(found.items(), styles, strict=True):
        best = [max(SPLITS, key=lambda split: rows[split][str(ratio)]) for ratio in RATIOS]
        left.plot(RATIOS, [int(split[0]) + apart for split in best], color=colour, marker=marker, label=name, alpha=0.8)
        gains = [
            rows[split][str(ratio)] / rows["colocated"][str(ratio)] if rows["colocated"][str(ratio)] else None
            for split, ratio in zip(best, RATIOS, strict=True)
        ]
        right.plot(RATIOS, gains, color=colour, marker=marker, label=name)
    left.set(ylabel=f"prefill GPUs of {GPUS} in the best split", ylim=(0.5, GPUS - 0.5), title="best P:D")
    left.set_yticks(range(1, GPUS), SPLITS)
    right.axhline(1, color="black", linewidth=0.8)
    right.text(RATIOS[0], 0.985, "six GPUs that do both", va="top", fontsize=8)
    right.set(ylabel="goodput of the best split / of no split", title="is it worth it?")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(RATIOS, [str(ratio) for ratio in RATIOS])
        axes.minorticks_off()
        axes.set_xlabel("prompt tokens / output tokens (2,400 together)")
        axes.grid(alpha=0.3)
    left.legend(fontsize=8)
    figure.suptitle(
        "Llama-3.1-8B on six H100s, vLLM 0.19 with NIXL over 400G RDMA: goodput at 90 % attainment", fontsize=10
    )
    figure.savefig(FIGURE, dpi=110)


def main() -> None:
    if "--figure" not in sys.argv:
        DATA.write_text(json.dumps(measure(), indent=1) + "\n")
    draw(json.loads(DATA.read_text()))


if __name__ == "__main__":
    main()
