"""Draw docs/figures/swap_or_recompute.png: where computing KV again beats swapping it, over context and model.

    python docs/swap_or_recompute.py [--out docs/figures/swap_or_recompute.png]

Times are C05's (llmqsim/claims/c05.py): a request alone on its GPUs, each with a link of its own to the host.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from llmqsim.claims import Setting
from llmqsim.claims.c05 import ratios
from llmqsim.report import drawing

DOCS = Path(__file__).parent
CONTEXTS = [2**power for power in range(7, 16)]
LINKS = {"a100-sxm-80gb": ("A100, PCIe 4 (25 GB/s)", "25 GB/s"), "h100-sxm": ("H100, PCIe 5 (50 GB/s)", "50 GB/s")}
MODELS = {
    "Llama-2-7B (32 KV heads of 32)": {"model": "llama-2-7b"},
    "the same in fp8 weights": {"model": "llama-2-7b", "engine.quantization": "fp8"},
    "Llama-2-13B (40 of 40)": {"model": "llama-2-13b"},
    "Llama-3.1-8B (8 of 32)": {"model": "llama-3.1-8b"},
    "Yi-34B, TP 2 (8 of 56)": {"model": "yi-34b", "tensor_parallel_size": 2},
    "Llama-3.1-70B, TP 4 (8 of 64)": {"model": "llama-3.1-70b", "tensor_parallel_size": 4},
}
COPIES = {False: "merged copies", True: "copied block by block"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=str(DOCS / "figures" / "swap_or_recompute.png"), metavar="OUT.png")
    draw(parser.parse_args().out)


def draw(path: str) -> None:
    """A column a GPU, a row a way of copying, a line a model."""
    plt = drawing.pyplot()
    setting = Setting(DOCS.parent / "scenarios" / "claims")
    figure, axes = plt.subplots(2, 2, figsize=(11, 8), sharex=True, sharey=True, layout="constrained")
    for row, (pieces, copies) in zip(axes, COPIES.items(), strict=True):
        for axis, (gpu, (name, bandwidth)) in zip(row, LINKS.items(), strict=True):
            for colour, (model, sets) in zip(drawing.COLOURS, MODELS.items(), strict=False):
                if gpu.startswith("a100") and "engine.quantization" in sets:
                    continue  # its tensor cores have no fp8
                values = ratios(
                    setting, {"gpu": gpu, "engine.host_link.bandwidth": bandwidth, **sets}, CONTEXTS, pieces
                )
                known = [(x, y) for x, y in zip(CONTEXTS, values, strict=True) if y is not None]
                axis.plot(*zip(*known, strict=True), marker="o", markersize=3, color=colour, label=model)
            axis.axhspan(0.01, 1, color="tab:red", alpha=0.08)
            axis.axhline(1, color="black", linewidth=0.8)
            axis.set(xscale="log", yscale="log", ylim=(0.15, 150), title=f"{name}, {copies}")
            axis.set_xticks(CONTEXTS, [f"{x:,}" for x in CONTEXTS], rotation=45)
            axis.set_yticks([0.2, 0.5, 1, 2, 5, 10, 20, 50], ["0.2", "0.5", "1", "2", "5", "10", "20", "50"])
            axis.minorticks_off()
            axis.grid(alpha=0.3)
            axis.text(128, 0.19, "computing again is faster", color="tab:red")
            axis.text(128, 92, "swapping is faster")
    for axis in axes[:, 0]:
        axis.set_ylabel("compute again / swap there and back")
    for axis in axes[1]:
        axis.set_xlabel("tokens of context")
    figure.legend(*axes[0, 1].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    drawing.save(figure, path)


if __name__ == "__main__":
    main()
