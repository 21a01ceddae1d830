"""The one place that talks to numba: how kernels are compiled, cached on disk and announced.

No `fastmath`, no `parallel`: both reorder floating-point work, and a result must be the same byte for byte.
"""

from __future__ import annotations

from pathlib import Path

import numba

_KERNELS: list = []


def kernel(function):
    """Compile a scalar rule or a loop on first use and keep the machine code on disk."""
    compiled = numba.njit(cache=True, fastmath=False, nogil=True)(function)
    _KERNELS.append(compiled)
    return compiled


def is_cold() -> bool:
    """True when some kernel has no machine code on disk yet, so that the first call will compile."""
    for dispatcher in _KERNELS:
        folder = Path(dispatcher.stats.cache_path)
        function = dispatcher.py_func
        stem = f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}-{function.__code__.co_firstlineno}"
        if not any(folder.glob(f"{stem}.*.nbi")):
            return True
    return False
