"""How much memory there is, and refusing what needs more before it is asked for."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

from llmqsim.errors import ScenarioError
from llmqsim.units import format_bytes


def available_bytes() -> float:
    """Memory that can be had now on this machine, or in the container that this runs in; infinite where unknown."""
    known = [math.inf]
    with contextlib.suppress(AttributeError, ValueError, OSError):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                known.append(int(line.split()[1]) * 1024)
    with contextlib.suppress(ValueError, OSError):  # "max" where there is no limit
        known.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(known)


def require(need: float, what: str, hint: str) -> None:
    """Refuse what needs more bytes than can be had. what : "key: so many things"; hint : what would be right.

    Raises ScenarioError with both numbers.
    """
    have = available_bytes()
    if need > have:
        raise ScenarioError(
            f"{what} need {format_bytes(need)} of memory ({need:,.0f} bytes), and {format_bytes(have)} "
            f"({have:,.0f} bytes) are available; {hint}"
        )
