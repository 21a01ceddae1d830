"""Where a yes becomes a no: the smallest number that is kept, and the largest load that is."""

from __future__ import annotations

from collections.abc import Callable

FIRST_STEP = 0.08
"""of the number to start from"""
HEADROOM_STEPS = (1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0)


def smallest(kept: Callable[[int], bool], start: int, fewest: int, most: int) -> int | None:
    """The smallest number that is kept, from `fewest` to `most`: doubling steps from `start`, then bisection.

    None where none is kept up to `most`. It takes for granted that one more never hurts.
    """
    low, high = fewest - 1, max(fewest, min(start, most))
    step = max(1, round(FIRST_STEP * high))
    if kept(high):
        while high - step > low:  # downwards, while it is still kept
            if not kept(high - step):
                low = high - step
                break
            high, step = high - step, 2 * step
    else:
        while not kept(high):
            if high >= most:
                return None
            low, high, step = high, min(high + step, most), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high


def headroom_factor(kept_at: Callable[[float], bool]) -> float:
    """The largest load, as a multiple of today's, that is kept: steps, then two bisections."""
    low, high = 1.0, None
    for factor in HEADROOM_STEPS:
        if kept_at(factor):
            low = factor
        else:
            high = factor
            break
    for _ in range(2):
        if high is None:
            break
        middle = (low + high) / 2
        low, high = (middle, high) if kept_at(middle) else (low, middle)
    return low
