"""The layers of one scenario as they are read, and their resolution to one checked spec."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from llmqsim.errors import ScenarioError, did_you_mean
from llmqsim.scenario import checks, faults, layers, shape
from llmqsim.scenario.schema import ScenarioSpec
from llmqsim.scenario.source import Fault, Node, Place, from_plain, parse_yaml, read_text

SET = "--set"
DEFAULT = "default"
LONGEST_CHAIN = 20
"""files, each extending the next"""


@dataclass(frozen=True)
class Resolved:
    """A checked spec; origin of every single value by dotted key; place of every written key ("" is all of it)."""

    spec: ScenarioSpec
    origins: dict[str, str]
    places: dict[str, str]


class Draft:
    """Layers, lowest first; variants by name; the faults found so far.

    folder : the main file's folder, which file names in the resolved spec are relative to.
    """

    def __init__(self, folder: str):
        self.folder = folder
        self.layers: list[Node] = []
        self.variants: dict[str, Node] = {}
        self.files: list[str] = []
        self.faults: list[Fault] = []

    def read(self, path: str, chain: tuple[str, ...]) -> None:
        """Add a file and what it extends. chain : the files that led here. Raises ScenarioError."""
        self.files.append(path)
        self.add_text(read_text(path), path, os.path.dirname(path), (*chain, path))

    def add_text(self, text: str, name: str, folder: str, chain: tuple[str, ...]) -> None:
        """Add YAML text. folder : what file names in it are relative to. Raises ScenarioError."""
        tree, found = parse_yaml(text, name)
        self.faults += found
        self.add_tree(tree, folder, chain)

    def add_tree(self, tree: Node, folder: str, chain: tuple[str, ...]) -> None:
        """Add what a file extends, then its own layer above that, then its variants. Raises ScenarioError."""
        if tree.value is None:
            raise ScenarioError(f"{tree.place.file}: is empty; a scenario is a YAML mapping, see docs/scenario.md")
        if not tree.is_mapping:
            got = faults.show(tree.plain())
            raise ScenarioError(f"{tree.place}: must be a mapping of keys (got {got}); see docs/scenario.md")
        base = tree.value.pop("extends", None)
        variants = tree.value.pop("variants", None)
        if base is not None and base.value is not None:
            self._extend(base, folder, chain)
        self.layers.append(layers.normalise(tree, folder, self.folder))
        if variants is not None and variants.value is not None:
            self._add_variants(variants, folder)

    def resolve(self, chosen: tuple[str, ...], sets: tuple[Any, ...]) -> Resolved:
        """Merge the layers with the chosen variants and the command line, and check the result.

        Raises ScenarioError with every fault.
        """
        main = self.layers[-1].place
        self._check_names(chosen, main)
        commands = [layers.normalise(node, "", self.folder) for node in self._commands(sets)]
        tree = layers.merge([*self.layers, *(self.variants[n] for n in chosen if n in self.variants), *commands])
        tree = layers.inherit(tree)
        tree.place = main
        spec = self._check(tree)
        self._check_idle_variants(chosen)
        if self.faults or spec is None:
            raise ScenarioError(*_in_order(self.faults, main.file))
        places = {".".join(key): str(node.place) for key, node in _walk(tree)}
        return Resolved(spec, _origins(spec, tree), places | {"": str(main)})

    def _extend(self, base: Node, folder: str, chain: tuple[str, ...]) -> None:
        if not isinstance(base.value, str) or not base.value:
            self.faults.append(Fault(base.place, "extends", f"must be a file (got {faults.show(base.plain())})"))
            return
        path = layers.tidy(os.path.join(folder, base.value))
        if any(os.path.realpath(path) == os.path.realpath(seen) for seen in chain):
            loop = " -> ".join((*chain, path))
            raise ScenarioError(f"{base.place}: extends: goes in a circle ({loop}); remove one 'extends'")
        if len(chain) > LONGEST_CHAIN:
            raise ScenarioError(f"{base.place}: extends: the chain is too long; at most {LONGEST_CHAIN} files")
        try:
            text = read_text(path)
        except ScenarioError as error:
            raise ScenarioError(*(f"{base.place}: extends: {fault}" for fault in error.faults)) from None
        self.files.append(path)
        self.add_text(text, path, os.path.dirname(path), (*chain, path))

    def _add_variants(self, variants: Node, folder: str) -> None:
        if not variants.is_mapping:
            sentence = f"must be a mapping of names (got {faults.show(variants.plain())}); write NAME: {{key: value}}"
            self.faults.append(Fault(variants.place, "variants", sentence))
            return
        for name, tree in variants.value.items():
            tree = Node({}, tree.place) if tree.value is None else tree
            if not tree.is_mapping:
                sentence = f"must be a mapping of overrides (got {faults.show(tree.plain())}); write {{key: value}}"
                self.faults.append(Fault(tree.place, f"variants.{name}", sentence))
                continue
            tree = layers.expand(_in_variant(tree, name), self.faults, f"variants.{name}.")
            self.variants[name] = layers.normalise(tree, folder, self.folder)

    def _check_names(self, chosen: tuple[str, ...], main: Place) -> None:
        for name in chosen:
            if name not in self.variants:
                known = f"known: {', '.join(self.variants)}" if self.variants else "this scenario has none"
                hint = f"{did_you_mean(name, self.variants) or ';'} {known}"
                self.faults.append(Fault(Place(main.file), "--variant", f"unknown variant (got {name!r}){hint}"))

    def _commands(self, sets: tuple[Any, ...]) -> Iterator[Node]:
        """One layer per --set, in order; each is "key=value" with a YAML value, or (key, plain value, option)."""
        place = Place(SET)
        for item in sets:
            if isinstance(item, tuple):
                own = Place(item[2]) if len(item) > 2 else place
                key, value = str(item[0]), from_plain(item[1], own)
            else:
                key, equals, text = item.partition("=")
                key = key.strip()
                if not equals or not key or not text.strip():
                    hint = "'key=null' resets a key to its default"
                    self.faults.append(Fault(place, "", f"must be key=value (got {item!r}); {hint}"))
                    continue
                try:
                    value, found = parse_yaml(text, SET, lines=False)
                except ScenarioError as error:
                    self.faults += [Fault(place, key, f.removeprefix(f"{SET}: ")) for f in error.faults]
                    continue
                self.faults += [Fault(place, f"{key}.{f.key}".rstrip("."), f.sentence) for f in found]
            yield layers.expand(Node({key: value}, value.place), self.faults)

    def _check(self, tree: Node) -> ScenarioSpec | None:
        """Add the faults of a merged tree; return the spec unless single values are at fault."""
        spec, found = _validate(tree)
        self.faults += [fault for fault, _ in found]
        wrong = {fault.key for fault in self.faults}
        for key, sentence in checks.findings(tree):
            # a key that is at fault itself, or part of one that is, says nothing reliable about others
            if not any(f"{key}.".startswith(f"{w}.") or w.startswith(f"{key}.") for w in wrong if w):
                self.faults.append(Fault(_place(tree, tuple(key.split("."))), key, sentence))
        return spec

    def _check_idle_variants(self, chosen: tuple[str, ...]) -> None:
        """Find faults of single values also in variants that this run does not use: they are part of the file."""
        for name, overrides in self.variants.items():
            if name in chosen:
                continue
            for fault, kind in _validate(layers.inherit(layers.merge([*self.layers, overrides])))[1]:
                # a missing key may come from another variant that this one is meant to go with
                if fault.place.variant == name and kind != "missing":
                    self.faults.append(Fault(fault.place, f"variants.{name}.{fault.key}", fault.sentence))


def _validate(tree: Node) -> tuple[ScenarioSpec | None, list[tuple[Fault, str]]]:
    """The spec, or its faults, each with pydantic's type of it."""
    try:
        return ScenarioSpec.model_validate(tree.plain()), []
    except ValidationError as error:
        found = [(*faults.sentence(item), item["type"]) for item in error.errors(include_url=False)]
        found = [item for item in found if not _told_at_top(item, found)]
        return None, [(Fault(_place(tree, path), ".".join(path), text), kind) for path, text, kind in found]


def _told_at_top(item: tuple[shape.Path, str, str], found: list[tuple[shape.Path, str, str]]) -> bool:
    """Is it a fault of a pool that stands where the pool has it from, too?"""
    path, sentence, kind = item
    return layers.at_top(path) != path and (layers.at_top(path), sentence, kind) in found


def _in_variant(node: Node, name: str) -> Node:
    """The same tree, its places marked with the variant's name."""
    place = Place(node.place.file, node.place.line, name)
    value = {k: _in_variant(n, name) for k, n in node.value.items()} if node.is_mapping else node.value
    return Node(value, place)


def _place(tree: Node, path: shape.Path) -> Place:
    """The place of a key, or of its nearest ancestor that was written."""
    place = tree.place
    for part in path:
        if not tree.is_mapping or part not in tree.value:
            break
        tree = tree.value[part]
        place = tree.place
    return place


def _walk(tree: Node, key: shape.Path = ()) -> Iterator[tuple[shape.Path, Node]]:
    for part, node in tree.value.items():
        yield (*key, part), node
        if node.is_mapping:
            yield from _walk(node, (*key, part))


def _origins(spec: ScenarioSpec, tree: Node) -> dict[str, str]:
    """Origin of every single value of the spec, also of those not set (None)."""
    written = {".".join(key): node.place.origin for key, node in _walk(tree)}
    found: dict[str, str] = {}

    def visit(value: Any, key: str) -> None:
        if isinstance(value, dict) and value:
            for part, inner in value.items():
                visit(inner, f"{key}.{part}" if key else part)
        else:
            found[key] = written.get(key, DEFAULT)

    visit(spec.model_dump(), "")
    return found


def _in_order(found: list[Fault], main: str) -> list[str]:
    """Fault lines, each once: the main file by line, then files it extends, then the command line."""

    def rank(fault: Fault) -> tuple[int, str, int]:
        place = fault.place
        return (0 if place.file == main else 2 if place.file.startswith("--") else 1), place.file, place.line or 0

    return [str(fault) for fault in sorted(dict.fromkeys(found), key=rank)]
