"""Lowered step costs between processes: the tables of a deployment, kept on disk under a digest of all they come from.

Lowering takes a tenth of a second, which a process that answers one question spends once for each deployment. What is
read from disk is what lowering would give, bit for bit: the digest covers the deployment, the fits, the presets and the
code by content, and NumPy with what it uses of the processor. Where it lies and who may have written it: llmqsim/kept.py.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from llmqsim import kept
from llmqsim.jit import disk

PARTS = ("cost", "hardware", "presets/coefficients", "presets/devices.yaml", "options.py")
"""what of the package lowering is made of, besides the fits"""
TOLD = "told"


def digest_of(*what: Any, fits: Path | None) -> str:
    """The name under which costs are kept. what : dataclasses of plain data, told apart by their `repr`.

    fits : folder of fitted kernels, by content; None: those that ship.
    """
    digest = hashlib.sha256(_made_of().encode())
    folder = disk.PACKAGE / "presets" / "kernels" if fits is None else fits
    digest.update(_content(sorted(path for path in folder.iterdir() if path.is_file())))
    for one in what:
        digest.update(repr(one).encode() + b"\0")
    return digest.hexdigest()


@cache
def _made_of() -> str:
    """Digest of the code and the presets behind the tables, of NumPy, and of the processor as NumPy sees it."""
    from numpy._core import _multiarray_umath as umath  # pyright: ignore[reportAttributeAccessIssue]

    features = sorted(name for name, there in getattr(umath, "__cpu_features__", {}).items() if there)
    digest = hashlib.sha256(f"numpy {np.__version__} {' '.join(features)}".encode())
    for part in PARTS:
        place = disk.PACKAGE / part
        found = [path for path in place.iterdir() if path.suffix in (".py", ".yaml")] if place.is_dir() else [place]
        digest.update(_content(sorted(found)))
    return digest.hexdigest()


def _content(paths: Iterable[Path]) -> bytes:
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.digest()


def read(name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Arrays and plain data that were kept under a name; None where there are none that can be trusted."""
    content = kept.read(f"{name}.npz")
    if content is None:
        return None
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = dict(archive)
        return arrays, json.loads(arrays.pop(TOLD).tobytes())
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):  # damaged: lowered and written again
        return None


def write(name: str, arrays: dict[str, np.ndarray], told: dict[str, Any]) -> None:
    """Keep arrays and plain data under a name, where that is possible."""
    content = io.BytesIO()
    text = np.frombuffer(json.dumps(told).encode(), dtype=np.uint8)
    np.savez(content, **{**arrays, TOLD: text})  # pyright: ignore[reportArgumentType]
    kept.write(f"{name}.npz", content.getvalue())
