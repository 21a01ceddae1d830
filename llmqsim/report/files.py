"""Results as files: JSON and CSV, the same bytes for the same run, complete or not there at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from llmqsim.errors import DataError

if TYPE_CHECKING:
    from llmqsim.result import Result


def to_json(summary: dict[str, Any]) -> str:
    """JSON text with the keys in the order given, UTF-8, no NaN or infinity (ValueError), one trailing newline."""
    return json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def check_writable(*paths: str | Path) -> None:
    """Refuse, before any work is done, outputs that could not be written. Raises DataError with every fault."""
    targets = [Path(path) for path in paths]
    faults = [fault for target in targets if (fault := _fault(target))]
    if len({target.resolve() for target in targets}) < len(targets):
        faults.append(f"{targets[0]}: named for two outputs; give each its own file")
    if faults:
        raise DataError(*faults)


def _fault(target: Path) -> str | None:
    if target.is_dir():
        return f"{target}: can't be written: it is a folder; name a file in it"
    if not target.parent.is_dir():
        return f"{target}: can't be written: the folder {target.parent} does not exist; make it first"
    if not os.access(target.parent, os.W_OK):
        return f"{target}: can't be written: no permission in the folder {target.parent}"
    return None


def write_json(summary: dict[str, Any], path: str | Path) -> None:
    """Write the figures of Result.summary() (or metrics.events.measure()). Raises DataError when it can't."""
    text = to_json(summary)
    _write(path, lambda file: file.write(text))


def write_requests(result: Result, path: str | Path) -> None:
    """Write the table of requests as CSV (columns as Result.to_frame(), empty for NaN). Raises DataError."""
    frame = result.to_frame()
    _write(path, lambda file: frame.to_csv(file, lineterminator="\n"))


def check_writable(*paths: str | Path) -> None:
    """Raise DataError, naming every fault, when a file can't be written there: better before a run than after it."""
    faults = []
    for path in paths:
        target = Path(path)
        if target.is_dir():
            faults.append(f"{path}: is a folder; give the name of a file")
        elif not target.parent.is_dir():
            faults.append(f"{path}: no folder '{target.parent}'; make it first, or give another path")
        elif not os.access(target.parent, os.W_OK):
            faults.append(f"{path}: the folder '{target.parent}' can't be written to; give another path")
    if faults:
        raise DataError(*faults)


def _write(path: str | Path, fill: Callable[[IO[str]], Any]) -> None:
    """Fill a temporary file beside `path` and put it in place in one step."""
    target = Path(path)
    check_writable(target)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            fill(file)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
    except BaseException as problem:
        os.unlink(name)
        if isinstance(problem, OSError):
            raise DataError(f"{path}: can't be written: {problem.strerror}") from None
        raise
