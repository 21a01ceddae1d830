"""Text to numbers and back: "250 ms", "80 GiB", "12 req/s". The only place that knows 10**9 and 1024**3.

Parsing is exact: the text becomes a fraction, and that becomes a float (or int) once, at the end.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from numbers import Real
from typing import Any

from llmqsim.errors import UserError, did_you_mean

NS_PER_S = 1_000_000_000
KIB, MIB, GIB = 1024, 1024**2, 1024**3

SECONDS: dict[str, Fraction] = {
    "ns": Fraction(1, NS_PER_S),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
BYTES: dict[str, Fraction] = {
    "B": Fraction(1),
    "kB": Fraction(10**3),
    "MB": Fraction(10**6),
    "GB": Fraction(10**9),
    "TB": Fraction(10**12),
    "KiB": Fraction(KIB),
    "MiB": Fraction(MIB),
    "GiB": Fraction(GIB),
    "TiB": Fraction(1024**4),
}
RATES: dict[str, Fraction] = {"req/s": Fraction(1), "req/min": Fraction(1, 60), "req/h": Fraction(1, 3600)}
BANDWIDTHS: dict[str, Fraction] = {f"{unit}/s": size for unit, size in BYTES.items()}
FLOP_RATES: dict[str, Fraction] = {
    "FLOP/s": Fraction(1),
    "GFLOP/s": Fraction(10**9),
    "TFLOP/s": Fraction(10**12),
    "PFLOP/s": Fraction(10**15),
}
_SPELLINGS = {"µs": "us", "μs": "us", "/s": "req/s", "/min": "req/min", "/h": "req/h"}

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,2})?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*([^\d\s/.+-][^\s/]*|)\s*(?:/\s*({_NUMBER}|[A-Za-z]+)\s*)?")
_LONGEST = 60
"""characters of a quantity; more can only be a mistake, and would make exact arithmetic slow"""


class QuantityError(UserError, ValueError):
    """A quantity that can't be read. `problem` says what is wrong with `value`, `hint` what would be right."""

    def __init__(self, value: Any, problem: str, hint: str):
        self.value, self.problem, self.hint = value, problem, hint
        super().__init__(f"{problem} (got {value!r}); {hint}")


def parse_seconds(value: str | float) -> float:
    """Read a time in seconds: "500 ms", "1.5 s", "10 min", a quotient "0.1 s / 1024", or a bare number of seconds.

    Raises QuantityError. Negative times are read as such; whether one makes sense is the caller's question.
    """
    return float(_parse(value, SECONDS, "a time", "'500 ms'", quotient=True))


def parse_bytes(value: str | float) -> int:
    """Read a size in whole bytes (nearest): "80 GiB" (1024**3), "10 GB" (10**9), or a bare number of bytes.

    Raises QuantityError.
    """
    return round(_parse(value, BYTES, "a size", "'80 GiB'"))


def parse_rate(value: str | float) -> float:
    """Read a rate per second: "12 req/s", "6.45/s", "300 req/min", or a bare number per second.

    Raises QuantityError.
    """
    return float(_parse(value, RATES, "a rate", "'12 req/s'"))


def parse_bandwidth(value: str | float) -> float:
    """Read bytes per second: "3.35 TB/s" (10**12), "900 GB/s", or a bare number. Raises QuantityError."""
    return float(_parse(value, BANDWIDTHS, "a bandwidth", "'3.35 TB/s'"))


def parse_flops(value: str | float) -> float:
    """Read operations per second: "989 TFLOP/s", or a bare number. Raises QuantityError."""
    return float(_parse(value, FLOP_RATES, "a rate of arithmetic", "'989 TFLOP/s'"))


def to_ns(seconds: float | Fraction) -> int:
    """Return the nearest whole nanosecond, half to even. For arrays: np.rint(seconds * NS_PER_S).astype(np.int64)."""
    return round(Fraction(seconds) * NS_PER_S)


def to_seconds(ns: Any) -> Any:
    """Return seconds (float) from nanoseconds; works for arrays too."""
    return ns / NS_PER_S


def format_seconds(seconds: float) -> str:
    """Show a time with three significant digits in the unit that reads best: "250 ms", "1.5 s", "10 min"."""
    size = abs(seconds)
    if not math.isfinite(seconds) or size == 0:
        return f"{seconds:g} s"
    for unit, below in (("ns", 1e-6), ("us", 1e-3), ("ms", 1.0), ("s", 300.0), ("min", 7200.0), ("h", math.inf)):
        if size < below * (1 - 5e-4):
            break
    return f"{_digits(seconds / float(SECONDS[unit]))} {unit}"


def format_bytes(size: float) -> str:
    """Show a size in binary units with three significant digits: "80 GiB", "128 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 * float(BYTES[unit]) or unit == "TiB":
            break
    return f"{_digits(size / float(BYTES[unit]))} {unit}"


def format_rate(per_second: float) -> str:
    """Show a rate of requests: "6.45 req/s", or per minute or hour where less than one comes in ten seconds."""
    for unit in ("req/s", "req/min", "req/h"):
        shown = per_second / float(RATES[unit])
        if abs(shown) >= 0.1 or per_second == 0:
            break
    return f"{_digits(shown)} {unit}"


def _digits(value: float) -> str:
    """Three significant digits, never in exponent form, no trailing zeros after the point."""
    if abs(value) >= 999.5:
        return f"{value:.0f}"
    return f"{float(f'{value:.3g}'):.12f}".rstrip("0").rstrip(".")


def _parse(value: Any, units: dict[str, Fraction], what: str, example: str, quotient: bool = False) -> Fraction:
    hint = f"write a number and a unit, such as {example} (units: {', '.join(units)})"
    if isinstance(value, bool) or not isinstance(value, (str, Real)):
        raise QuantityError(value, f"must be {what}", hint)
    if not isinstance(value, str):
        if not math.isfinite(value):
            raise QuantityError(value, f"must be {what}, and finite", hint)
        return Fraction(value)
    match = _QUANTITY.fullmatch(value) if len(value) <= _LONGEST else None
    if not match:
        raise QuantityError(value, f"must be {what}", hint)
    number, unit, over = match.groups()
    divisor = Fraction(1)
    if over and over[0].isalpha():
        unit = f"{'req' if unit in ('request', 'requests') else unit}/{over}"
    elif over:
        divisor = Fraction(over)
        if not quotient or divisor <= 0:
            raise QuantityError(value, "must have no divisor" if not quotient else "must have a divisor above 0", hint)
    unit = _SPELLINGS.get(unit, unit)
    if unit and unit not in units:
        guess = did_you_mean(unit, units).removeprefix("; ")
        raise QuantityError(value, f"unknown unit '{unit}'", f"{guess} {hint}".strip())
    return Fraction(number) * (units[unit] if unit else 1) / divisor
