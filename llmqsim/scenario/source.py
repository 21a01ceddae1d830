"""Text to a tree of nodes that know where they stand. YAML 1.2 core types; nothing in the text can make an object."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from llmqsim.errors import ScenarioError, did_you_mean

MOST_NODES = 20_000
"""values in one scenario, every use of an anchor counted: far above any real one, far below a bomb"""
DEEPEST = 30
LARGEST_FILE_BYTES = 2 * 1024**2
MOST_MARKS = 2000
"""characters that can open a level, up to which the C parser is trusted with the depth of a text"""
LONGEST_NUMBER = 40
"""characters; more digits are no number that a scenario could need"""


@dataclass(frozen=True)
class Place:
    """Where something was written: a file and line, or a name such as "--set". `variant` if within a variant."""

    file: str
    line: int | None = None
    variant: str | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def origin(self) -> str:
        """How `explain` names the source of a value."""
        return f"variant {self.variant} ({self})" if self.variant is not None else str(self)


@dataclass
class Node:
    """A value and its place. Mappings hold nodes by key; lists and scalars are plain values.

    whole : replaces what lower layers wrote instead of being merged with it.
    """

    value: Any
    place: Place
    whole: bool = False

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.value, dict)

    def plain(self) -> Any:
        """The value without places."""
        return {k: n.plain() for k, n in self.value.items()} if isinstance(self.value, dict) else self.value


@dataclass(frozen=True)
class Fault:
    """Something wrong: where, at which dotted key ("" for none), and a sentence."""

    place: Place
    key: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.place}: {self.key}: {self.sentence}" if self.key else f"{self.place}: {self.sentence}"


class _Loader(yaml.SafeLoader):
    """Resolves plain scalars by the YAML 1.2 core schema: no `yes`/`on` booleans, no dates, no 60-based numbers."""

    yaml_implicit_resolvers: dict[str, Any] = {}


_FastLoader: type | None = None
if hasattr(yaml, "CSafeLoader"):

    class _FastLoader(yaml.CSafeLoader):  # type: ignore[no-redef]
        """The same in C."""

        yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


def read_text(path: str) -> str:
    """Return a file's text (UTF-8, byte order mark removed).

    Raises ScenarioError when it is missing, a directory, too large, empty, binary or not UTF-8.
    """
    if os.path.isdir(path):
        raise ScenarioError(f"{path}: is a directory; give the scenario file in it")
    try:
        with open(path, "rb") as file:
            raw = file.read(LARGEST_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ScenarioError(f"{path}: no such file{_neighbour(path)}") from None
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from None
    if len(raw) > LARGEST_FILE_BYTES:
        raise ScenarioError(f"{path}: is larger than {LARGEST_FILE_BYTES} bytes; a scenario is a short YAML file")
    if b"\0" in raw:
        raise ScenarioError(f"{path}: is a binary file; a scenario is YAML text")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        bad = raw[error.start]
        raise ScenarioError(f"{path}:{line}: is not UTF-8 text (got byte 0x{bad:02x}); save it as UTF-8") from None


def _neighbour(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        known = [n for n in os.listdir(folder or ".") if n.endswith((".yaml", ".yml"))]
    except OSError:
        return f"; there is no folder '{folder}' either" if folder else ""
    return did_you_mean(name, known)


def parse_yaml(text: str, file: str, lines: bool = True) -> tuple[Node, list[Fault]]:
    """Return the tree of one YAML document, and the faults of its values.

    lines : do places count the lines of the text? No for a value on the command line.

    Raises ScenarioError when it is no YAML, or more than one document.
    """
    try:
        root = _compose(text)
    except yaml.YAMLError as error:
        raise ScenarioError(_syntax(error, text, file, lines)) from None
    except RecursionError:
        raise ScenarioError(f"{file}: is nested too deeply; at most {DEEPEST} levels") from None
    converter = _Converter(file, lines)
    node = Node(None, converter.place(None)) if root is None else converter.node(root, ())
    return node, converter.faults


def _compose(text: str) -> yaml.Node | None:
    """The nodes of the text, by libyaml where it is there and the text is plain: the same in a tenth of the time.

    What libyaml refuses, the slower parser judges again, so that what is said of it does not depend on the machine.
    """
    plain = text.isascii() and "\t" not in text and sum(map(text.count, "[{-?:")) <= MOST_MARKS
    if _FastLoader is not None and plain:
        try:
            return yaml.compose(text, Loader=_FastLoader)
        except yaml.YAMLError:
            pass
    return yaml.compose(text, Loader=_Loader)


def _syntax(error: yaml.YAMLError, text: str, file: str, lines: bool) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not readable"
    at = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark and lines else file
    hint = ""
    if isinstance(error, yaml.composer.ComposerError) and "single document" in str(error):
        problem, hint = "has more than one document", "; remove the '---' lines"
    elif "'\\t'" in problem:
        hint = "; YAML is indented with spaces, never tabs"
    elif "mapping values are not allowed" in problem:
        hint = "; check the indentation, and quote text that contains ': '"
    elif mark and not text[mark.index :].strip() and lines:
        hint = "; the file ends in the middle of a value: is it cut off, or a bracket or quote never closed?"
    elif getattr(error, "context", None):
        hint = f"; {error.context}" + (f", line {error.context_mark.line + 1}" if error.context_mark and lines else "")
    return f"{at}: not valid YAML: {problem}{hint}"


class _Converter:
    """yaml nodes to ours, within bounds."""

    def __init__(self, file: str, lines: bool):
        self.file, self.lines = file, lines
        self.count = 0
        self.faults: list[Fault] = []

    def place(self, source: yaml.Node | None) -> Place:
        return Place(self.file, (source.start_mark.line + 1 if source else 1) if self.lines else None)

    def fault(self, source: yaml.Node, path: tuple[str, ...], sentence: str) -> None:
        self.faults.append(Fault(self.place(source), ".".join(path), sentence))

    def node(self, source: yaml.Node, path: tuple[str, ...]) -> Node:
        self.count += 1
        if self.count > MOST_NODES:
            raise ScenarioError(f"{self.place(source)}: more than {MOST_NODES} values; do anchors repeat too much?")
        if len(path) > DEEPEST:
            raise ScenarioError(f"{self.place(source)}: nested too deeply; at most {DEEPEST} levels")
        if isinstance(source, yaml.MappingNode):
            return Node(self.mapping(source, path), self.place(source))
        if isinstance(source, yaml.SequenceNode):
            items = [self.node(item, (*path, str(i))).plain() for i, item in enumerate(source.value)]
            return Node(items, self.place(source))
        return Node(self.scalar(source, path), self.place(source))

    def mapping(self, source: yaml.MappingNode, path: tuple[str, ...]) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for key_node, value_node in source.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or key_node.tag != "tag:yaml.org,2002:str":
                self.fault(key_node, path, f"a key must be text (got {key or 'a list or mapping'}); put it in quotes")
                continue
            if key == "<<":
                self.fault(key_node, path, "merge keys (<<) are not supported; use 'extends' or 'variants'")
                continue
            value = self.node(value_node, (*path, key))
            # the key's line, not the value's: that is where a reader looks, and a null value has no line of its own
            value.place = self.place(key_node)
            if key in found:
                first = f", first in line {found[key].place.line}" if self.lines else ""
                self.fault(key_node, (*path, key), f"written twice{first}; keep one")
                continue
            found[key] = value
        return found

    def scalar(self, source: yaml.ScalarNode, path: tuple[str, ...]) -> Any:
        kind, written = source.tag.removeprefix("tag:yaml.org,2002:"), source.value
        if kind == "str":
            return written
        if kind == "null":
            return None
        if kind == "bool":
            return written.lower() == "true"
        if kind in ("int", "float"):
            if len(written) > LONGEST_NUMBER:
                self.fault(source, path, f"a number of {len(written)} characters; write at most {LONGEST_NUMBER}")
                return None
            try:
                return (
                    int(written)
                    if kind == "int"
                    else float(written.lower().replace(".inf", "inf").replace(".nan", "nan"))
                )
            except ValueError:
                pass
        self.fault(
            source, path, f"the tag {source.tag} is not allowed (got '{written}'); write plain YAML without tags"
        )
        return None


def from_plain(value: Any, place: Place, depth: int = 0) -> Node:
    """Return the tree of a Python value (mappings, lists, text, numbers, None); keys must be text.

    Raises ScenarioError for keys that are no text and for mappings nested too deeply (or in themselves).
    """
    if depth > DEEPEST:
        raise ScenarioError(f"{place}: nested too deeply; at most {DEEPEST} levels")
    if isinstance(value, Mapping):
        wrong = [k for k in value if not isinstance(k, str)]
        if wrong:
            raise ScenarioError(*(f"{place}: a key must be text (got {k!r})" for k in wrong))
        return Node({k: from_plain(v, place, depth + 1) for k, v in value.items()}, place)
    if isinstance(value, (list, tuple)):
        return Node([from_plain(v, place, depth + 1).plain() for v in value], place)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a numpy scalar
        value = value.item()
    return Node(value, place)
