"""The one place that talks to numba: how kernels are compiled, kept on disk and announced.

`once.py` links and optimises the kernels below a call from Python once, `disk.py` keeps machine code between processes.

No `fastmath`, no `parallel`: both reorder floating-point work, and a result must be the same byte for byte.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numba

from llmqsim.jit import disk, once

_OPTIONS = {"nogil": True, "_nrt": False}
"""_nrt: kernels allocate nothing; counting references to their arrays at every call made them 3 times slower"""
_ANNOUNCERS: list[Callable[[], None]] = []


def kernel(function):
    """Compile a scalar rule or a loop on first use.

    Called from Python, it is machine code of its own, with all that it calls inside, and kept on disk. Called by
    another kernel, it becomes a part of that one. With NUMBA_DISABLE_JIT=1 it stays plain Python.
    """
    if numba.config.DISABLE_JIT:
        return function
    if once.works():
        called = numba.njit(no_cfunc_wrapper=True, **_OPTIONS)(function)
        once.split(called, numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(function))
    else:
        called = numba.njit(**_OPTIONS)(function)
    called._cache = disk.Cache(function)
    return called


def inlined(function):
    """A kernel that one other calls: made a part of it, so that all that it is made of is not optimised once more."""
    if numba.config.DISABLE_JIT:
        return function
    return numba.njit(inline="always", _nrt=False)(function)


def is_cold(dispatcher) -> bool:
    """True when a kernel has no machine code on disk that is still good, so that its first call will compile."""
    return not (numba.config.DISABLE_JIT or dispatcher.signatures or dispatcher._cache.holds_any())


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
