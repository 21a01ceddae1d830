"""Figures of measured against predicted kernel times, on blocks that no fit saw, and of what the prediction misses by.

    python calibration/figures.py --kernels ../shared/data/kernels --out docs/figures

One PNG for each group of families. Left: predicted against measured, every row held out with its whole block
(llmqsim/calibrate/holdout.py). Right: predicted over measured minus 1 against the size that matters to the family;
median and the 10th to 90th percentile of form and table, and the median of the form alone. Same input, same pixels.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from llmqsim.calibrate.build import NEVER_FITTED  # noqa: E402 after the path is set
from llmqsim.calibrate.fit import FEWEST_ROWS  # noqa: E402
from llmqsim.calibrate.holdout import errors, held_out  # noqa: E402
from llmqsim.calibrate.rows import Rows, split  # noqa: E402
from llmqsim.calibrate.tables import read_parts  # noqa: E402
from llmqsim.cost.store import machine  # noqa: E402
from llmqsim.errors import UserError  # noqa: E402

GPUS = {"A100": "tab:blue", "H100": "tab:orange", "H200": "tab:green", "L40S": "tab:red", "A40": "tab:purple"}
"""first part of a device label to its colour"""
MOST_POINTS = 500
"""points drawn for each GPU, evenly spread over its rows; the figures in the titles are of all rows"""
BINS = 14


@dataclass(frozen=True)
class Panel:
    """One row of a figure. accepts : which configurations, by their columns. size : column on the abscissa."""

    title: str
    family: str
    size: str
    unit: str
    accepts: dict[str, tuple]


FULL = {"dtype": ("bfloat16",), "kv_dtype": ("bfloat16",), "head_dim": (128,), "window": (0,)}
FIGURES: dict[str, tuple[Panel, ...]] = {
    "gemm": tuple(
        Panel(f"GEMM {dtype}", "gemm", "m", "rows m", {"dtype": (dtype,), "timing": ("graph",)})
        for dtype in ("bfloat16", "fp8", "fp8_block")
    ),
    "attention": (
        Panel("prefill attention", "prefill_attention", "q_len", "prompt tokens", FULL),
        Panel("decode attention", "decode_attention", "kv_history", "context tokens", FULL),
    ),
    "latent_attention": (
        Panel("MLA prefill", "mla_context", "q_len", "prompt tokens", {}),
        Panel("MLA decode", "mla_decode", "kv_history", "context tokens", {}),
        Panel("MLA projections", "mla_projection", "batch", "tokens", {}),
    ),
    "experts": tuple(
        Panel(f"experts {dtype}", "moe", "num_tokens", "tokens", {"dtype": (dtype,), "distribution": ("balanced",)})
        for dtype in ("bfloat16", "fp8", "fp8_block")
    ),
    "all_reduce": (
        Panel("all-reduce, graph", "collective", "message_bytes", "bytes", {"op": ("all_reduce",), "mode": ("graph",)}),
        Panel("all-reduce, eager", "collective", "message_bytes", "bytes", {"op": ("all_reduce",), "mode": ("eager",)}),
    ),
    "links": (
        Panel("NCCL collectives", "collective", "message_bytes", "bytes", {"mode": ("nccl-tests",)}),
        Panel("send/recv", "send_recv", "message_bytes", "bytes", {}),
    ),
    "others": (
        Panel("fp8 quantise", "quantize", "m", "rows m", {}),
        Panel("operators timed by Vidur", "layer_ops", "num_tokens", "tokens", {}),
    ),
}


def main() -> None:
    """Draw the figures asked for (all of them), one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=Path, required=True, help="folder of the kernel tables (parquet)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "figures", help="folder of the PNG files")
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=list(FIGURES), help="figures to draw")
    given = parser.parse_args()
    try:
        plot = pyplot()
        parts = list(read_parts(given.kernels))
    except UserError as error:
        sys.exit(str(error))
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.only:
        draw(plot, FIGURES[name], parts, given.out / f"{name}.png")
        print(given.out / f"{name}.png")


def pyplot():
    """matplotlib.pyplot without a screen; raises UserError with the command that installs it."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("figures need matplotlib: pip install 'llmqsim[figures]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def draw(plot, panels: tuple[Panel, ...], parts: list, path: Path) -> None:
    """One figure to `path`, whole or not at all."""
    figure, axes = plot.subplots(len(panels), 2, figsize=(9, 2.6 * len(panels)), squeeze=False)
    for panel, (left, right) in zip(panels, axes):
        found = [(rows, *held_out(rows, machine(str(rows.config["gpu"])))) for rows in chosen(panel, parts)]
        found = [_seen(*one) for one in found if np.isfinite(one[1]).any()]
        scatter(left, panel, found)
        residuals(right, panel, found)
    figure.tight_layout()
    part = path.with_suffix(".png.part")
    figure.savefig(part, format="png", dpi=80, metadata={"Software": None})
    os.replace(part, path)
    plot.close(figure)


def chosen(panel: Panel, parts: list):
    """The rows of each configuration of a panel that can be fitted."""
    for part in parts:
        if part.family.name == panel.family:
            frame = part.frame[~part.frame["flag"].isin(NEVER_FITTED)]
            for column, values in panel.accepts.items():
                frame = frame[frame[column].isin(values)]
            for rows in split(part.family, frame.reset_index(drop=True)):
                if len(rows) >= FEWEST_ROWS:
                    yield rows


def _seen(rows: Rows, table: np.ndarray, form: np.ndarray) -> tuple[Rows, np.ndarray, np.ndarray]:
    seen = np.isfinite(table)
    return rows.part(seen), table[seen], form[seen]


def scatter(axes, panel: Panel, found: list) -> None:
    """Predicted against measured microseconds, a colour for each GPU."""
    measured = np.concatenate([rows.seconds for rows, *_ in found])
    told = errors(np.concatenate([table for _, table, _ in found]), measured)
    for gpu, colour in GPUS.items():
        mine = [(rows.seconds, table) for rows, table, _ in found if str(rows.config["gpu"]).split("-")[0] == gpu]
        if mine:
            x, y = (np.concatenate(values) * 1e6 for values in zip(*mine))
            some = np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).astype(np.int64))
            axes.plot(x[some], y[some], ".", color=colour, markersize=1.5, label=gpu)
    ends = np.array([measured.min(), measured.max()]) * 1e6
    axes.plot(ends, ends, color="black", linewidth=0.6)
    axes.set(xscale="log", yscale="log", xlabel="measured, us", ylabel="predicted, us")
    axes.set_title(
        f"{panel.title}: {told['median_percent']:.1f} / {told['p90_percent']:.1f} % of {told['rows']:,} held-out rows",
        fontsize=8,
    )
    axes.legend(fontsize=7, markerscale=5, loc="upper left", frameon=False)


def residuals(axes, panel: Panel, found: list) -> None:
    """Predicted over measured minus 1, per cent, by size."""
    measured, table, form, size = (
        np.concatenate(values)
        for values in zip(*((rows.seconds, t, f, rows.columns[panel.size]) for rows, t, f in found))
    )
    logs = np.log2(np.maximum(size, 1.0))
    edges = np.unique(np.quantile(logs, np.linspace(0, 1, BINS + 1)))
    bins = np.clip(np.searchsorted(edges, logs, side="right") - 1, 0, max(len(edges) - 2, 0))
    used = np.unique(bins)
    at = np.array([2 ** np.median(logs[bins == i]) for i in used])
    off, alone = (table / measured - 1.0) * 100, (form / measured - 1.0) * 100
    low, middle, high = (np.array([np.percentile(off[bins == i], q) for i in used]) for q in (10, 50, 90))
    axes.fill_between(at, low, high, color="tab:blue", alpha=0.25, label="form and table, 10th to 90th percentile")
    axes.plot(at, middle, "o-", color="tab:blue", markersize=3, label="form and table, median")
    axes.plot(at, [np.median(alone[bins == i]) for i in used], "s--", color="tab:gray", markersize=2.5,
              label="form alone, median")
    axes.axhline(0.0, color="black", linewidth=0.6)
    axes.set(xscale="log", xlabel=panel.unit, ylabel="off by, %", ylim=(-40, 40))
    axes.legend(fontsize=6.5, loc="upper left", frameon=False)


if __name__ == "__main__":
    main()
