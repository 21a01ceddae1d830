"""The one place that talks to numba: how kernels are compiled, kept on disk and announced.

`once.py` links and optimises the kernels below a call from Python once, `disk.py` keeps machine code between processes.

No `fastmath`, no `parallel`: both reorder floating-point work, and a result must be the same byte for byte.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import numba

from llmqsim.jit import disk, once

_OPTIONS = {"nogil": True, "_nrt": False}
"""_nrt: kernels allocate nothing; counting references to their arrays at every call made them 3 times slower"""
_ANNOUNCERS: list[Callable[[], None]] = []


class Kernel:
    """A scalar rule or a loop, compiled on first use.

    Called from Python, it is machine code of its own, with all that it calls inside, and kept on disk. Called by
    another kernel, it becomes a part of that one. What numba needs for either is made when it is needed: a run has
    hundreds of kernels and calls ten of them.
    """

    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.py_func = function

    def __call__(self, *arguments):
        return self.called(*arguments)

    @functools.cached_property
    def called(self):
        """The dispatcher for calls from Python."""
        options = _OPTIONS if self.part is None else {**_OPTIONS, "no_cfunc_wrapper": True}
        called = numba.njit(**options)(self.py_func)
        called._cache = self._cache
        return called if self.part is None else once.whole(called)

    @functools.cached_property
    def part(self):
        """The dispatcher for calls from other kernels; None where numba's own way is taken, in which both are one."""
        if not once.works():
            return None
        return once.part(numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(self.py_func))

    @functools.cached_property
    def _cache(self) -> disk.Cache:
        return disk.Cache(self.py_func)

    @property
    def _numba_type_(self):
        """How numba sees this object inside another kernel."""
        return (self.part or self.called)._numba_type_

    @property
    def signatures(self) -> list:
        """Types of arguments for which Python has called it in this process."""
        return list(self.called.signatures) if "called" in self.__dict__ else []

    def is_cold(self) -> bool:
        """True where it has no machine code yet that is still good, so that its first call will compile."""
        return not (self.signatures or self._cache.holds_any())


def kernel(function):
    """Decorator for a `Kernel`. With NUMBA_DISABLE_JIT=1 it stays plain Python."""
    return function if numba.config.DISABLE_JIT else Kernel(function)


def inlined(function):
    """A kernel that one other calls: made a part of it, so that all that it is made of is not optimised once more."""
    if numba.config.DISABLE_JIT:
        return function
    return numba.njit(inline="always", _nrt=False)(function)


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


def about_to_call(what) -> None:
    """A kernel made of many others is about to be called: announce it if that takes seconds."""
    if _ANNOUNCERS and isinstance(what, Kernel) and what.is_cold():
        _ANNOUNCERS.pop()()
        _ANNOUNCERS.clear()
