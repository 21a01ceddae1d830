"""Reading the package's own preset files: YAML mappings in which every value names its source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any

from llmqsim import kept
from llmqsim.errors import ScenarioError, or_nearest


@cache
def read_preset(path: str) -> dict[str, Any]:
    """The content of `llmqsim/presets/<path>`. Callers must not change it."""
    content = (files("llmqsim") / "presets" / path).read_bytes()
    name = f"{hashlib.sha256(content).hexdigest()}.json"
    found = kept.read(name)
    if found is not None:
        with suppress(ValueError):  # damaged: read and written again
            return json.loads(found)
    return _parsed(content, name)


def _parsed(content: bytes, name: str) -> dict[str, Any]:
    """YAML as it is, kept as JSON (a fiftieth of the time to read) where that says the same."""
    import yaml

    data = yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    with suppress(TypeError, ValueError):
        text = json.dumps(data)
        if json.loads(text) == data:
            kept.write(name, text.encode())
    return data


MAKERS = ("nvidia", "amd", "intel", "tesla", "google", "aws")
"""first words of what nvidia-smi and its like print"""
ENDS = ("-instruct", "-it", "-hf", "-chat", "-base")
"""ends of names on the hub that short names leave out"""


def find(kind: str, name: str, entries: Mapping[str, Mapping[str, Any]], *, starts: bool = False) -> str:
    """The key of the entry called `name`, by its own name or an alias, upper or lower case.

    An alias with its organisation is also known without it, and without an end such as -Instruct; a card also by what
    nvidia-smi prints. starts : the beginning of names (up to a dash) will do, too, where it has a number and one entry
    alone has such names. Raises ScenarioError for an unknown name, with the nearest known one and the list of presets.
    """
    by_name = {alias.lower(): key for key, entry in entries.items() for alias in (key, *entry.get("aliases", ()))}
    wanted = name.strip().lower()
    if wanted in by_name:
        return by_name[wanted]
    short: dict[str, set[str]] = {}
    for alias, key in by_name.items():
        for known in _shorter(alias):
            short.setdefault(known, set()).add(key)
    for sought in _shorter(wanted):
        if len(found := {by_name[sought]} if sought in by_name else short.get(sought, set())) == 1:
            return found.pop()
    if starts and any(letter.isdigit() for letter in wanted):
        begun = {key for known, keys in short.items() if known.startswith(f"{wanted}-") for key in keys}
        if len(begun) == 1:
            return begun.pop()
    raise ScenarioError(f"{kind}: unknown preset (got '{name}'){or_nearest(name, entries, by_name)}")


def _shorter(name: str) -> list[str]:
    """The name with one spelling of gaps, without its organisation or maker, and without its end, longest first."""
    last = name.rpartition("/")[2]
    words = last.replace("(r)", " ").replace("(tm)", " ").replace("_", " ").split()
    while len(words) > 1 and words[0] in MAKERS:
        words = words[1:]
    told = [last, "-".join(words)]
    told += [known[: -len(end)] for known in told for end in ENDS if known.endswith(end)]
    return list(dict.fromkeys(told))


def sourced(entry: Mapping[str, Any], sources: Mapping[str, str], key: str = "value") -> tuple[Any, str]:
    """The value and the full text of its source from `{value: …, source: …}`."""
    source = entry["source"]
    return entry[key], sources.get(source, source)
