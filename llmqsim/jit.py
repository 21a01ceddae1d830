"""The one place that talks to numba: how kernels are compiled, cached on disk and announced.

No `fastmath`, no `parallel`: both reorder floating-point work, and a result must be the same byte for byte.

numba looks only at the file of a function to see whether its machine code on disk is still good. A kernel here is made
of others and of constants from other files, so the stamp of its cache is a digest of all of them: an upgrade, or an
edit, never runs code that was compiled from older sources.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numba

_ANNOUNCERS: list[Callable[[], None]] = []
_SOURCES = (
    "jit.py",
    "kernels.py",
    "batchers/__init__.py",
    "orders/__init__.py",
    "routers/__init__.py",
    "rules.py",
    "layout.py",
    "columns.py",
    "records.py",
    "requests.py",
)
"""files of which machine code is made"""


def kernel(function):
    """Compile a scalar rule or a loop on first use and keep the machine code on disk.

    With NUMBA_DISABLE_JIT=1 it stays plain Python.
    """
    if numba.config.DISABLE_JIT:
        return function
    # _nrt=False: kernels allocate nothing, and counting references to their arrays at every call made them 3 times slower
    compiled = numba.njit(cache=True, fastmath=False, nogil=True, _nrt=False)(function)
    compiled._cache._cache_file._source_stamp = _stamp()
    return compiled


def inlined(function):
    """A kernel that one other calls: made a part of it, so that all that it is made of is not optimised once more."""
    if numba.config.DISABLE_JIT:
        return function
    return numba.njit(inline="always", _nrt=False)(function)


@cache
def _stamp() -> str:
    """Digest of everything that kernels are made of."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for name in _SOURCES for path in folder.rglob(name)):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def is_cold(dispatcher) -> bool:
    """True when a kernel has no machine code on disk that is still good, so that its first call will compile."""
    return not (numba.config.DISABLE_JIT or dispatcher.signatures or dispatcher._cache._cache_file._load_index())


def without_linear_algebra() -> None:
    """For a process in which nobody but us compiles (the command line): no kernel of ours needs a BLAS.

    numba imports SciPy's when it first loads machine code, for np.dot and its like, and that takes as long as serving
    two hundred thousand requests.
    """
    if "scipy.linalg" in sys.modules or "numba.np.arraymath" in sys.modules:
        return
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]  # "there is no such module", to numba alone
    try:
        import numba.np.arraymath  # noqa: F401
    finally:
        del sys.modules["scipy.linalg"]


def announce_with(say: Callable[[], None]) -> None:
    """Call `say` once, before the first kernel that takes seconds to compile does so."""
    _ANNOUNCERS.append(say)


def about_to_call(dispatcher) -> None:
    """A kernel made of many others is about to be called: announce it if that takes seconds."""
    if _ANNOUNCERS and is_cold(dispatcher):
        _ANNOUNCERS.pop()()
        _ANNOUNCERS.clear()
