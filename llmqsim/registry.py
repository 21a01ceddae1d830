"""Names to things: every swappable policy is registered under a kind and a name, and made from plain parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from llmqsim.errors import ScenarioError, did_you_mean, or_known

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


def make(kind: str, name: str, params: dict[str, Any] | None = None) -> Any:
    """Build the policy `name` of a `kind` from its parameters.

    Raises ScenarioError for an unknown name (listing the known ones) or a parameter that the policy does not have.
    """
    known = _TABLE.get(kind, {})
    if name not in known:
        raise ScenarioError(f"unknown {kind} (got '{name}'){or_known(name, known)}")
    cls = known[name]
    given = dict(params or {})
    allowed = [f.name for f in fields(cls)] if is_dataclass(cls) else []
    faults = [
        f"'{name}': unknown parameter (got '{p}'){did_you_mean(p, allowed) or ';'} "
        f"it takes: {', '.join(allowed) or 'none'}"
        for p in given
        if p not in allowed
    ]
    if faults:
        raise ScenarioError(*faults)
    return cls(**given)


def name_of(kind: str, policy: Any) -> str:
    """The registered name of a built policy; of an unregistered one, its class."""
    found = (name for name, cls in _TABLE.get(kind, {}).items() if cls is type(policy))
    return next(found, type(policy).__name__)
