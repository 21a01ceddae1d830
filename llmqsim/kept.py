"""What was worked out once and is kept on disk between processes, under a digest of all that it comes from.

The rules of jit/disk.py hold: only files that nobody but their owner or root can write are read, and where nothing can be
kept, nothing is. Who reads must take what is damaged for missing.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from llmqsim.jit import disk

FOLDER = "costs"
MOST_FILES = 200
"""kept; beyond, the older half goes. A file takes a few hundred KB at most"""


def read(name: str) -> bytes | None:
    """What was kept under a name; None where there is nothing that can be trusted."""
    for home in disk.homes(FOLDER):
        with suppress(OSError):
            if disk.is_safe(home) and disk.is_safe(home / name):
                return (home / name).read_bytes()
    return None


def write(name: str, content: bytes) -> None:
    """Keep it, where that is possible; never half of it."""
    for home in disk.homes(FOLDER):
        with suppress(OSError):
            disk.make(home)
            if disk.is_safe(home) and os.access(home, os.W_OK):
                _put(home, name, content)
                return


def _put(home: Path, name: str, content: bytes) -> None:
    """A whole file or none; where there are many, the older half makes room."""
    kept = sorted(home.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for path in kept[: len(kept) // 2] if len(kept) >= MOST_FILES else ():
        path.unlink(missing_ok=True)
    handle, beside = tempfile.mkstemp(dir=home, suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(beside, 0o644)
        os.replace(beside, home / name)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
