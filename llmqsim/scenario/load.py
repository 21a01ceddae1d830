"""Scenario files to one frozen, checked Scenario: command line over variant over file over `extends`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from llmqsim.scenario.draft import Draft, Resolved
from llmqsim.scenario.layers import SERVER_KEYS, is_file, tidy
from llmqsim.scenario.schema import ScenarioSpec
from llmqsim.scenario.source import Place, from_plain

Sets = Iterable[str | tuple] | Mapping[str, Any]
Variants = str | Iterable[str] | None
MAPPING = "<mapping>"
"""what faults call plain data that came from no file"""


@dataclass(frozen=True)
class Scenario:
    """A checked scenario and where each of its values comes from. Equal scenarios have equal `spec`.

    spec : the values, SI units. File names in it are relative to `folder`.
    origins : dotted key -> "x.yaml:12", "variant big (x.yaml:40)", "--set" or "default".
    path : the file, None if there is none. folder : what file names in `spec` are relative to.
    variants : the variants that were applied. known_variants : all that the scenario has.
    """

    spec: ScenarioSpec
    origins: Mapping[str, str] = field(compare=False, repr=False)
    path: str | None = field(compare=False)
    folder: Path = field(compare=False)
    variants: tuple[str, ...] = field(compare=False)
    known_variants: tuple[str, ...] = field(compare=False)
    places: Mapping[str, str] = field(compare=False, repr=False)
    """dotted key, also of mappings -> "file:line" of what was written; "" is the whole scenario"""
    files: tuple[str, ...] = field(default=(), compare=False)
    """the files that it was read from: what `extends` names, and the scenario itself"""
    prefix: str = field(default="", compare=False)
    """of a pool seen as a scenario of its own: what its keys begin with in the file"""

    def _repr_html_(self) -> str:
        """What it sets, for a notebook."""
        from importlib import import_module

        return import_module("llmqsim.report.notebook").of_scenario(self)  # report/ lies above; looked up when asked for

    def where(self, key: str) -> str:
        """Return "file:line" of a dotted key, or of its nearest ancestor that was written."""
        while key and key not in self.places:
            key = key.rpartition(".")[0]
        return self.places[key]

    def fault(self, key: str, sentence: str) -> str:
        """Return a fault line for a ScenarioError: "file:line: key: sentence"."""
        return f"{self.where(key)}: {self.key(key)}: {sentence}"

    def key(self, key: str) -> str:
        """Return a dotted key as the file has it."""
        return self.prefix + key if key.split(".")[0] in SERVER_KEYS else key

    def pool(self, name: str) -> Scenario:
        """Return one pool as a scenario of its own: its servers at the top level. Faults name the keys in the file."""
        prefix = f"pools.{name}."
        own = {key: getattr(self.spec.pools[name], key) for key in SERVER_KEYS}
        spec = self.spec.model_copy(update={**own, "pools": None, "placement": None, "handoff": None})
        return replace(
            self, spec=spec, origins=_moved(self.origins, prefix), places=_moved(self.places, prefix), prefix=prefix
        )

    def file(self, name: str) -> str:
        """Return the path of a file named in `spec`, relative to the working directory."""
        return tidy(os.path.join(self.folder, name))

    def inputs(self) -> tuple[str, ...]:
        """Every file that a run of it reads: its own, and those that its values name."""
        named: list[str] = []

        def visit(value: Any, path: tuple[str, ...]) -> None:
            if isinstance(value, dict):
                for key, inner in value.items():
                    visit(inner, (*path, key))
            elif isinstance(value, str) and is_file(path):
                named.append(self.file(value))

        visit(self.to_dict(), ())
        return (*self.files, *named)

    def to_dict(self) -> dict[str, Any]:
        """Return the resolved values as plain data for JSON: SI numbers, what is not set left out."""
        return self.spec.model_dump(mode="json", exclude_none=True)


def _moved(by_key: Mapping[str, str], prefix: str) -> dict[str, str]:
    """What is known of keys, where those below `prefix` stand at the top level."""
    shared = {key: value for key, value in by_key.items() if key.split(".")[0] not in (*SERVER_KEYS, "pools")}
    return shared | {key.removeprefix(prefix): value for key, value in by_key.items() if key.startswith(prefix)}


def load(path: str | os.PathLike[str], variant: Variants = None, sets: Sets = ()) -> Scenario:
    """Read a scenario file.

    variant : name or names of variants to apply, in order. sets : "key=value" texts (values are YAML), or a mapping
    of dotted keys to values, or tuples (key, value, name of the option that gave it, "--set" if left out); files that
    they name are relative to the working directory.

    Raises ScenarioError with every fault that can be found at once.
    """
    name = os.fspath(path)
    draft = Draft(os.path.dirname(name))
    draft.read(name, ())
    return _scenario(draft, variant, sets, name)


def load_text(text: str, name: str = "<text>", variant: Variants = None, sets: Sets = (), folder: str = "") -> Scenario:
    """Like `load`, from YAML text. name : what faults call it. folder : what file names in it are relative to."""
    draft = Draft(folder)
    draft.add_text(text, name, folder, ())
    return _scenario(draft, variant, sets, None)


def from_mapping(
    mapping: Mapping[str, Any],
    variant: Variants = None,
    sets: Sets = (),
    folder: str = "",
    places: Mapping[str, str] | None = None,
) -> Scenario:
    """Like `load`, from plain data, such as `Scenario.to_dict()` returns. folder : what file names are relative to.

    places : top-level key -> what gave it, as faults name it ("--model"); else "<mapping>".
    """
    draft = Draft(folder)
    tree = from_plain(mapping, Place(MAPPING))
    for key, place in (places or {}).items():
        if key in tree.value:
            tree.value[key] = from_plain(mapping[key], Place(place))
    draft.add_tree(tree, folder, ())
    return _scenario(draft, variant, sets, None)


def _scenario(draft: Draft, variant: Variants, sets: Sets, path: str | None) -> Scenario:
    chosen = (variant,) if isinstance(variant, str) else tuple(variant or ())
    given = (sets,) if isinstance(sets, str) else tuple(sets.items() if isinstance(sets, Mapping) else sets)
    resolved: Resolved = draft.resolve(chosen, given)
    spec = resolved.spec
    if spec.name is None and path:
        spec = spec.model_copy(update={"name": Path(path).stem})
    variants, files = tuple(draft.variants), tuple(draft.files)
    return Scenario(spec, resolved.origins, path, Path(draft.folder), chosen, variants, resolved.places, files)
