"""Names to things: every swappable policy is registered under a kind and a name, and made from plain parameters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from typing import Any

from llmqsim.errors import ScenarioError, did_you_mean, or_known
from llmqsim.units import QuantityError, parse_seconds

_TABLE: dict[str, dict[str, type]] = {}


def register(kind: str, name: str) -> Callable[[type], type]:
    """Class decorator: make the class known as `name` among the policies of this `kind`."""

    def add(cls: type) -> type:
        known = _TABLE.setdefault(kind, {})
        if name in known and known[name].__qualname__ != cls.__qualname__:
            raise ScenarioError(f"{kind} '{name}' is registered already, by {known[name].__qualname__}")
        known[name] = cls
        return cls

    return add


def names(kind: str) -> tuple[str, ...]:
    """All names registered for a kind, sorted."""
    return tuple(sorted(_TABLE.get(kind, ())))


def param(
    default: Any,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field of a policy with limits: least <= value <= most, value > above, or one of a few words.

    A parameter has the type of its default; of one that is None, any. A name that ends in `_s` takes a time ("500 ms").
    """
    limits = {"least": least, "most": most, "above": above, "choices": choices}
    return dataclasses.field(default=default, metadata=limits)


def bound(default: Any = None) -> Any:
    """A field of a policy that the simulator fills in, so that no scenario can."""
    return dataclasses.field(default=default, metadata={"bound": True}, compare=False, repr=False)


def parameters(cls: type) -> list[Field]:
    """The fields of a policy's class that a scenario may set."""
    return [f for f in fields(cls) if f.init and "bound" not in f.metadata] if is_dataclass(cls) else []


def classes(kind: str) -> dict[str, type]:
    """All classes of a kind by name, sorted."""
    return dict(sorted(_TABLE.get(kind, {}).items()))


def make(kind: str, name: str, params: dict[str, Any] | None = None) -> Any:
    """Build the policy `name` of a `kind` from its parameters. One with a method `fault` says what is wrong with them.

    Raises ScenarioError for an unknown name (listing the known ones), a parameter that the policy does not have, or a
    value that it can't have.
    """
    known = _TABLE.get(kind, {})
    if name not in known:
        raise ScenarioError(f"unknown {kind} (got '{name}'){or_known(name, known)}")
    cls = known[name]
    given = dict(params or {})
    known_fields = {f.name: f for f in parameters(cls)}
    allowed = list(known_fields)
    faults = [
        f"'{name}': unknown parameter (got '{p}'){did_you_mean(p, allowed) or ';'} "
        f"it takes: {', '.join(allowed) or 'none'}"
        for p in given
        if p not in allowed
    ]
    for p in known_fields.keys() & given.keys():
        given[p], fault = _checked(known_fields[p], given[p])
        faults += [f"'{name}': {p} {fault}"] if fault else []
    if faults:
        raise ScenarioError(*sorted(faults))
    missing = [f.name for f in parameters(cls) if _is_needed(f) and f.name not in given]
    if missing:
        raise ScenarioError(f"'{name}': needs {', '.join(missing)}")
    if lacking := sorted(getattr(cls, "__abstractmethods__", ())):
        raise ScenarioError(f"'{name}': its class {cls.__qualname__} must define {', '.join(lacking)}")
    policy = cls(**given)
    if (fault := getattr(policy, "fault", None)) is not None and (said := fault()):
        raise ScenarioError(f"'{name}': {said}")
    return policy


def _is_needed(its: Field) -> bool:
    return its.default is dataclasses.MISSING and its.default_factory is dataclasses.MISSING


def _checked(its: Field, value: Any) -> tuple[Any, str]:
    """A parameter's value as the policy takes it, and what is wrong with it ("" where nothing is)."""
    wanted, limits = its.default, its.metadata
    if limits.get("choices"):
        return value, "" if value in limits["choices"] else _unknown_word(value, limits["choices"])
    if its.name.endswith("_s") and isinstance(value, str):
        try:
            value = parse_seconds(value)
        except QuantityError as error:
            return value, f"{error.problem} (got {value!r}); {error.hint}"
    if type(wanted) is bool or isinstance(wanted, str):
        what = "true or false" if type(wanted) is bool else "text"
        return value, "" if type(value) is type(wanted) else f"must be {what} (got {value!r})"
    if isinstance(wanted, tuple):
        listed = isinstance(value, (list, tuple))
        return (tuple(value), "") if listed else (value, f"must be a list (got {value!r})")
    if not isinstance(wanted, (int, float)):
        return value, ""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return value, f"must be a number{_range(limits)} (got {value!r})"
    if isinstance(wanted, int) and value != int(value):
        return value, f"must be a whole number{_range(limits)} (got {value!r})"
    fits = limits.get("least", -math.inf) <= value <= limits.get("most", math.inf)
    if not fits or value <= limits.get("above", -math.inf):
        return value, f"must be a number{_range(limits)} (got {value!r})"
    return type(wanted)(value), ""


def _unknown_word(value: Any, choices: tuple[str, ...]) -> str:
    return f"is unknown (got {value!r}){or_known(str(value), choices)}"


def _range(limits: Any) -> str:
    parts = [
        f"{word} {limits[key]:g}"
        for key, word in (("above", "above"), ("least", "at least"), ("most", "at most"))
        if math.isfinite(limits.get(key, math.inf))
    ]
    return " " + " and ".join(parts) if parts else ""


def name_of(kind: str, policy: Any) -> str:
    """The registered name of a built policy; of an unregistered one, its class."""
    found = (name for name, cls in _TABLE.get(kind, {}).items() if cls is type(policy))
    return next(found, type(policy).__name__)
