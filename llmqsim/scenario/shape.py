"""The schema as data: which keys a place may hold. Merging, fault sentences, did-you-means and the docs walk it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Discriminator, Tag
from pydantic.fields import FieldInfo

from llmqsim.scenario.kinds import KIND
from llmqsim.scenario.rules import Rule
from llmqsim.scenario.schema import ScenarioSpec

Path = tuple[str, ...]
ANY_NAME = "NAME"
"""stands in paths for a name of the user's choice"""


@dataclass(frozen=True)
class Shape:
    """What a value may look like: by a rule (a scalar or list), by a class of keys, or by one of several of both.

    models : kind -> class of keys; the kind of a value that has only one is "".
    told_by : the field whose value names the kind; None: the kind is told by which keys are there.
    named : the class of each entry, where the keys are names of the user's choice.
    """

    rule: Rule | None = None
    models: dict[str, type[BaseModel]] = field(default_factory=dict)
    told_by: str | None = None
    named: type[BaseModel] | None = None

    def inside(self, key: str) -> Iterator[Shape]:
        """The shapes that one of its keys may have."""
        if self.named is not None:
            yield Shape(models={"": self.named})
        yield from (fields(model)[key][1] for model in self.models.values() if key in fields(model))

    def kind_of(self, keys: dict[str, Any]) -> str | None:
        """The kind of a mapping, from its keys (values plain); None if they don't tell."""
        if "" in self.models:
            return ""
        if self.told_by:
            kind = keys.get(self.told_by)
            return kind if isinstance(kind, str) else None
        found = {kind for kind, own in self.own_keys().items() if own & set(keys)}
        return found.pop() if len(found) == 1 else None

    def own_keys(self) -> dict[str, set[str]]:
        """Per kind, the keys that no other kind has."""
        fields = {kind: set(m.model_fields) for kind, m in self.models.items()}
        return {k: f.difference(*(g for other, g in fields.items() if other != k)) for k, f in fields.items()}


def _options(annotation: Any, metadata: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield every (type, metadata) that an annotation may stand for, None left out."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        yield from _options(inner, (*metadata, *more))
    elif origin in (Union, UnionType) and not any(isinstance(m, Rule) for m in metadata):
        for option in get_args(annotation):
            yield from _options(option, metadata)
    elif annotation is not type(None):
        yield annotation, metadata


def shape(info: FieldInfo) -> Shape:
    """The shape of one field of the schema."""
    rule, models, told_by, named = None, {}, None, None
    for kind_type, metadata in _options(info.annotation, tuple(info.metadata)):
        tags = [m.tag.removeprefix(KIND) for m in metadata if isinstance(m, Tag)]
        rules = [m for m in metadata if isinstance(m, Rule)]
        discriminators = [m for m in metadata if isinstance(m, Discriminator)]
        told_by = (discriminators[0].custom_error_message or None) if discriminators else None
        if rules:
            rule = rules[-1]
        elif get_origin(kind_type) is dict:
            named = get_args(kind_type)[1]
        else:
            models[tags[0] if tags else ""] = kind_type
    return Shape(rule, models, told_by, named)


@cache
def fields(model: type[BaseModel]) -> dict[str, tuple[FieldInfo, Shape]]:
    """All keys of a class, each with its field and shape."""
    return {name: (info, shape(info)) for name, info in model.model_fields.items()}


@cache
def at(path: Path) -> tuple[Shape, ...]:
    """All shapes that a dotted place may have, over all kinds of what it is in; empty if there is no such key."""
    shapes = (Shape(models={"": ScenarioSpec}),)
    for key in path:
        shapes = tuple(inner for its in shapes for inner in its.inside(key))
    return shapes


@cache
def all_paths() -> tuple[Path, ...]:
    """Every place that a scenario may write to, in schema order, each once."""
    found: dict[Path, None] = {}

    def visit(model: type[BaseModel], path: Path) -> None:
        for name, (_, its) in fields(model).items():
            found[*path, name] = None
            for inner in its.models.values():
                visit(inner, (*path, name))
            if its.named is not None:
                found[*path, name, ANY_NAME] = None
                visit(its.named, (*path, name, ANY_NAME))

    visit(ScenarioSpec, ())
    return tuple(found)
