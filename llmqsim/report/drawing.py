"""What all figures share: matplotlib without a screen, the same bytes for the same numbers, one sentence without it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from llmqsim.errors import UserError
from llmqsim.files import write_bytes

COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:gray")
FORMATS = (".png", ".svg", ".pdf")


def check(path: str | None) -> None:
    """Refuse a figure that can't be drawn before any work is done. Raises UserError."""
    if path is None:
        return
    if Path(path).suffix.lower() not in FORMATS:
        raise UserError(f"{path}: --figure: unknown kind of picture; name it {', '.join(FORMATS)}")
    pyplot()


def pyplot() -> Any:
    """matplotlib.pyplot on the Agg backend. Raises UserError where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("figures need matplotlib; install it with pip install 'llmqsim[figures]'") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "llmqsim"
    from matplotlib import pyplot as plt

    return plt


def save(figure: Any, path: str) -> None:
    """Write a figure whole or not at all, and close it. Raises DataError."""
    kind = Path(path).suffix.lower().lstrip(".")
    buffer = io.BytesIO()
    stamps = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
    figure.savefig(buffer, format=kind, dpi=150, metadata=stamps[kind])
    pyplot().close(figure)
    write_bytes(path, buffer.getvalue())
