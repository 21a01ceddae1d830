"""Results as files: JSON and CSV, the same bytes for the same run, complete or not there at all (llmqsim/files.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmqsim import files

if TYPE_CHECKING:
    from llmqsim.result import Result


def to_json(summary: dict[str, Any]) -> str:
    """JSON text with the keys in the order given, UTF-8, no NaN or infinity (ValueError), one trailing newline."""
    return json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(summary: dict[str, Any], path: str | Path) -> None:
    """Write the figures of Result.summary() (or metrics.events.measure()). Raises DataError when it can't."""
    text = to_json(summary)
    files.write_text(path, text)


def write_requests(result: Result, path: str | Path) -> None:
    """Write the table of requests as CSV (columns as Result.to_frame(), empty for NaN). Raises DataError."""
    frame = result.to_frame()
    files.write(path, lambda file: frame.to_csv(file, lineterminator="\n"))
