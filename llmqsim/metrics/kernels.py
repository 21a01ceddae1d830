"""Loops of the figures that numpy has no fast form for: exact sums, and two sorted series walked side by side."""

from __future__ import annotations

from llmqsim.jit import kernel

EXPONENTS = 2048
MANTISSA = 52
HALF = 26
"""bits of the lower part of a mantissa: sums of either part stay below 2**63 for 2**36 values"""


@kernel
def add_floats(bits, low, high):
    """Add float64 values without rounding, the mantissas of each exponent by themselves.

    bits : int64[n], the values' own bits. low, high : int64[EXPONENTS], what is added to: mantissa = high x 2**HALF + low.
    """
    for i in range(bits.size):
        word = bits[i]
        exponent = (word >> MANTISSA) & (EXPONENTS - 1)
        mantissa = word & ((1 << MANTISSA) - 1)
        if exponent > 0:
            mantissa |= 1 << MANTISSA
        if word < 0:
            mantissa = -mantissa
        low[exponent] += mantissa & ((1 << HALF) - 1)
        high[exponent] += mantissa >> HALF


@kernel
def count_up_to(times, looks, counts):
    """How many of `times` are not after each of `looks`; both int64 and sorted. Written into counts, int64[looks]."""
    passed = 0
    for i in range(looks.size):
        while passed < times.size and times[passed] <= looks[i]:
            passed += 1
        counts[i] = passed
