"""What a user may write, and how text becomes a checked, frozen Scenario. Names are imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "Scenario": "load",
    "from_mapping": "load",
    "load_text": "load",
    "ScenarioSpec": "schema",
    "json_schema": "document",
    "markdown": "document",
}
"""name -> module; `load` itself is not here, since the module of that name would hide it: use llmqsim.load"""
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    # pydantic and yaml cost a fifth of a second, which `llmqsim --help` should not pay
    if name in _HOME:
        return getattr(import_module(f"llmqsim.scenario.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
