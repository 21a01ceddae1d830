"""Rules for single values: each checks what was written, returns SI units, and says in words what would be right."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticCustomError, core_schema

from llmqsim.errors import did_you_mean
from llmqsim.units import (
    QuantityError,
    parse_bandwidth,
    parse_bytes,
    parse_flops,
    parse_rate,
    parse_seconds,
)

LARGEST_WHOLE = 2**31 - 1
LARGEST_TIME_S = 1e9
"""seconds; about 30 years, so that sums of times stay far inside int64 nanoseconds"""
LARGEST_COST_S = 1e6
"""seconds of a step, or of one of its terms; twelve days, so that only an absurd product of them leaves the clock"""
SPREAD = 1e3
"""coefficients of variation beyond it, or below its inverse, are no traffic, and leave the range of floats"""
LARGEST_RATE_PER_S = 1e9
"""a gap of one nanosecond"""


def wrong(problem: str, hint: str) -> PydanticCustomError:
    """A fault of one value: `problem` reads after the key, `hint` says what would be right."""
    return PydanticCustomError("wrong", "{problem}", {"problem": problem, "hint": hint})


@dataclass(frozen=True)
class Rule:
    """How one value is checked, how the documentation names it, and its JSON Schema. Used as Annotated metadata."""

    check: Callable[[Any], Any]
    says: str
    json: dict[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return dict(self.json)

    def __hash__(self) -> int:  # the JSON part is a dict
        return hash((self.check, self.says))


def whole(minimum: int = 1, maximum: int = LARGEST_WHOLE) -> Rule:
    """A whole number in [minimum, maximum]; True and 2.0 are none."""

    def check(value: Any) -> int:
        if type(value) is not int:
            raise wrong("must be a whole number", f"write a number without point, quotes or unit, at least {minimum}")
        if not minimum <= value <= maximum:
            bound = f"at least {minimum}" if value < minimum else f"at most {maximum}"
            raise wrong(f"must be {bound}", f"write a whole number from {minimum} to {maximum}")
        return value

    says = f"a whole number ≥ {minimum}" if maximum == LARGEST_WHOLE else f"a whole number, {minimum} to {maximum}"
    return Rule(check, says, {"type": "integer", "minimum": minimum, "maximum": maximum})


def between(lowest: float, highest: float) -> Rule:
    """A number in [lowest, highest]."""
    bounds = f"from {lowest:g} to {highest:g}"

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise wrong("must be a number", f"write a number {bounds}, without quotes or unit")
        if not lowest <= value <= highest:
            raise wrong(f"must be {bounds}", "write a number in that range")
        return float(value)

    return Rule(check, f"a number {bounds}", {"type": "number", "minimum": lowest, "maximum": highest})


def number(above: float = 0.0, at_most: float = math.inf, below: float = math.inf, hint: str = "") -> Rule:
    """A finite number x with above < x, x <= at_most, x < below. hint : what to write instead."""
    ceiling = f" and at most {at_most:g}" if at_most < math.inf else f" and below {below:g}" if below < math.inf else ""
    bounds = f"above {above:g}{ceiling}"

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise wrong("must be a number", hint or f"write a number {bounds}, without quotes or unit")
        if not (math.isfinite(value) and above < value <= at_most and value < below):
            raise wrong(f"must be {bounds}", hint or "write a finite number in that range")
        return float(value)

    json: dict[str, Any] = {"type": "number", "exclusiveMinimum": above}
    json |= {"maximum": at_most} if at_most < math.inf else {}
    json |= {"exclusiveMaximum": below} if below < math.inf else {}
    return Rule(check, f"a number {bounds}", json)


def share() -> Rule:
    """A number from 0 up to, but not, 1."""

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
            raise wrong("must be at least 0 and below 1", "write a share, such as 0.01")
        return float(value)

    return Rule(check, "a share from 0 up to 1", {"type": "number", "minimum": 0, "exclusiveMaximum": 1})


def _quantity(
    parse: Callable[[Any], Any],
    what: str,
    example: str,
    largest: float,
    shown: str,
    zero: bool,
    smallest: tuple[float, str] = (0, "above 0"),
) -> Rule:
    """An amount with its unit. shown : `largest` in words. smallest : the least that is not zero, and in words."""

    def check(value: Any) -> Any:
        try:
            amount = parse(value)
        except QuantityError as error:
            raise wrong(error.problem, error.hint) from None
        if amount < 0 or (amount == 0 and not zero):
            raise wrong("must not be negative" if zero else "must be above 0", f"write {what} such as {example}")
        if not zero and amount < smallest[0]:
            raise wrong(f"must be {smallest[1]}", f"write {what} such as {example}")
        if amount > largest:
            raise wrong(f"must be at most {shown}", f"write {what} such as {example}")
        return amount

    bound = {"minimum": 0} if zero else {"exclusiveMinimum": 0}
    json = {"anyOf": [{"type": "number", **bound}, {"type": "string", "pattern": r"^\s*[0-9.]", "examples": [example]}]}
    return Rule(check, f"{what} {'≥' if zero else '>'} 0, such as `{example}`", json)


def seconds(zero: bool = False, example: str = "500 ms", at_most: float = LARGEST_TIME_S) -> Rule:
    """A time; in the resolved scenario, seconds (float)."""
    return _quantity(parse_seconds, "a time", example, at_most, f"{at_most:,.0f} s", zero, (1e-9, "at least 1 ns"))


def rate() -> Rule:
    """A rate of requests; in the resolved scenario, per second (float)."""
    return _quantity(parse_rate, "a rate", "12 req/s", LARGEST_RATE_PER_S, "1e9 req/s", zero=False)


def size() -> Rule:
    """A size; in the resolved scenario, bytes (int)."""
    return _quantity(parse_bytes, "a size", "10 GiB", 2**60, "1 EiB", zero=False)


def bandwidth() -> Rule:
    """Bytes per second; in the resolved scenario, float."""
    return _quantity(parse_bandwidth, "a bandwidth", "3.35 TB/s", 1e18, "1e6 TB/s", zero=False)


def flops() -> Rule:
    """Floating-point operations per second; in the resolved scenario, float."""
    return _quantity(parse_flops, "a rate of arithmetic", "989 TFLOP/s", 1e21, "1e6 PFLOP/s", zero=False)


def text(what: str = "text", example: str = "") -> Rule:
    """Text that is not empty."""
    hint = f"write {what}" + (f", such as {example}" if example else "")

    def check(value: Any) -> str:
        if not isinstance(value, str):
            written = str(value).lower() if isinstance(value, bool) else value
            scalar = isinstance(value, (int, float))
            raise wrong("must be text", f"put it in quotes: '{written}'" if scalar and not example else hint)
        if not value.strip():
            raise wrong("must not be empty", hint)
        return value

    says = what + (f", such as `{example}`" if example else "")
    return Rule(check, says, {"type": "string", "minLength": 1} | ({"examples": [example]} if example else {}))


def flag() -> Rule:
    """true or false."""

    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise wrong("must be true or false", "write true or false, without quotes")
        return value

    return Rule(check, "`true` or `false`", {"type": "boolean"})


def choice(*names: str) -> Rule:
    """One of a few words."""

    def check(value: Any) -> str:
        if value not in names or not isinstance(value, str):
            guess = did_you_mean(value, names) if isinstance(value, str) else ""
            raise wrong("unknown choice", f"{guess.removeprefix('; ')} one of: {', '.join(names)}".strip())
        return value

    return Rule(check, " or ".join(f"`{n}`" for n in names), {"type": "string", "enum": list(names)})


def word_or(rule: Rule, *words: str) -> Rule:
    """One of a few words, or what another rule takes."""

    def check(value: Any) -> Any:
        if isinstance(value, str):
            if value in words:
                return value
            guess = did_you_mean(value, words).removeprefix("; ")
            raise wrong("unknown word", f"{guess} write {' or '.join(words)} or {rule.says}".strip())
        return rule.check(value)

    says = " or ".join(f"`{w}`" for w in words)
    return Rule(check, f"{says} or {rule.says}", {"anyOf": [{"type": "string", "enum": list(words)}, rule.json]})


def powers_of_two(maximum: int) -> Rule:
    """1, 2, 4, 8 ... up to maximum."""
    names = [2**k for k in range(maximum.bit_length())]

    def check(value: Any) -> int:
        if type(value) is not int or value not in names:
            raise wrong("must be a power of two", f"one of: {', '.join(map(str, names))}")
        return value

    return Rule(check, ", ".join(f"{n}" for n in names), {"type": "integer", "enum": names})


def whole_pair() -> Rule:
    """[low, high], whole numbers with 1 <= low <= high."""

    def check(value: Any) -> tuple[int, int]:
        pair = tuple(value) if isinstance(value, (list, tuple)) else ()
        if len(pair) != 2 or any(type(v) is not int for v in pair):
            raise wrong("must be two whole numbers", "write [lowest, highest], such as [100, 900]")
        if not 1 <= pair[0] <= pair[1] <= LARGEST_WHOLE:
            raise wrong("must be in order and at least 1", "write [lowest, highest], such as [100, 900]")
        return pair

    items = {"type": "integer", "minimum": 1}
    return Rule(check, "`[lowest, highest]`", {"type": "array", "items": items, "minItems": 2, "maxItems": 2})


def whole_list(maximum: int) -> Rule:
    """A list of whole numbers in [1, maximum]; returned sorted, each once."""

    def check(value: Any) -> tuple[int, ...]:
        if not isinstance(value, (list, tuple)) or any(type(v) is not int or not 1 <= v <= maximum for v in value):
            raise wrong(f"must be a list of whole numbers from 1 to {maximum:,}", "such as [1, 2, 4, 8, 16]")
        return tuple(sorted(set(value)))

    items = {"type": "integer", "minimum": 1, "maximum": maximum}
    return Rule(check, "a list of whole numbers", {"type": "array", "items": items})


def file() -> Rule:
    """The name of a file."""
    named = text("a file")

    def check(value: Any) -> str:
        if "\0" in named.check(value):
            raise wrong("must not hold a zero byte", "write the name of a file")
        return value

    return Rule(check, named.says, named.json)


def records(what: str, example: str, **columns: Rule) -> Rule:
    """A list of mappings that all have these keys, each checked by its rule; returned as a tuple of plain dicts."""
    keys = " and ".join(columns)

    def entry(number: int, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or set(value) != set(columns):
            raise wrong(f"must have {keys} in every entry; entry {number} does not", f"write {what} such as {example}")
        out = {}
        for key, rule in columns.items():
            try:
                out[key] = rule.check(value[key])
            except PydanticCustomError as error:
                problem = f"entry {number}: {key} {(error.context or {}).get('problem')}"
                raise wrong(problem, f"write {what} such as {example}") from None
        return out

    def check(value: Any) -> tuple[dict[str, Any], ...]:
        if not isinstance(value, (list, tuple)) or not value:
            raise wrong("must be a list with at least one entry", f"write {what} such as {example}")
        return tuple(entry(number, item) for number, item in enumerate(value, 1))

    properties = {key: rule.json for key, rule in columns.items()}
    items = {"type": "object", "properties": properties, "required": list(columns), "additionalProperties": False}
    return Rule(check, f"a list like `{example}`", {"type": "array", "items": items, "minItems": 1})
