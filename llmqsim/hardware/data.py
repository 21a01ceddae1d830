"""Reading the package's own preset files: YAML mappings in which every value names its source."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from llmqsim.errors import ScenarioError, or_nearest


@cache
def read_preset(path: str) -> dict[str, Any]:
    """The content of `llmqsim/presets/<path>`. Callers must not change it."""
    import yaml

    text = (files("llmqsim") / "presets" / path).read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def find(kind: str, name: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
    """The key of the entry called `name`, by its own name or an alias, upper or lower case.

    Raises ScenarioError for an unknown name, with the nearest known one and the list of presets.
    """
    by_name = {alias.lower(): key for key, entry in entries.items() for alias in (key, *entry.get("aliases", ()))}
    if name.lower() not in by_name:
        raise ScenarioError(f"{kind}: unknown preset (got '{name}'){or_nearest(name, entries, by_name)}")
    return by_name[name.lower()]


def sourced(entry: Mapping[str, Any], sources: Mapping[str, str], key: str = "value") -> tuple[Any, str]:
    """The value and the full text of its source from `{value: …, source: …}`."""
    source = entry["source"]
    return entry[key], sources.get(source, source)
