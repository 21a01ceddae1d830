"""pydantic's errors to sentences: what is wrong, what was found, what would be right."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel

from llmqsim.errors import did_you_mean
from llmqsim.scenario import shape
from llmqsim.scenario.kinds import KIND, NO_KIND
from llmqsim.scenario.not_modelled import not_modelled
from llmqsim.scenario.schema import ScenarioSpec
from llmqsim.scenario.slo_text import AMBIGUOUS, NOT_ONE_THING

LONGEST_SHOWN = 60
SHORT_NAMES = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "replicas",
    "qps": "rate",
    "rps": "rate",
    "concurrency": "clients",
}
"""what people type, and the key that they mean"""


def show(value: Any) -> str:
    """A value as a fault shows it: short, and told apart from other types."""
    if isinstance(value, dict):
        return "a mapping with " + ", ".join(map(repr, list(value)[:4])) if value else "an empty mapping"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


def sentence(error: Any) -> tuple[shape.Path, str]:
    """Return the place (keys only) and the sentence of one of pydantic's error dictionaries."""
    path, owner, its = _locate(error["loc"])
    kind, value = error["type"], error["input"]
    if kind == "wrong":
        return path, f"{error['ctx']['problem']} (got {show(value)}); {_plain(error['ctx']['hint'])}"
    if kind == "missing":
        return path, f"missing; {_what_to_give(owner, path[-1])}"
    if kind == "extra_forbidden":
        return path, _unknown_key(path, value, owner)
    if kind == NO_KIND and its is not None:
        return _no_kind(path, value, its)
    return path, f"must be a mapping of keys (got {show(value)}){f'; {_takes(its)}' if its else ''}"


def _locate(loc: tuple[Any, ...]) -> tuple[shape.Path, type[BaseModel], shape.Shape | None]:
    """Keys of a pydantic place; the class that owns the last key; the shape there (None for an unknown key)."""
    path: list[str] = []
    owner: type[BaseModel] = ScenarioSpec
    its: shape.Shape | None = shape.Shape(models={"": ScenarioSpec})
    for step in map(str, loc):
        if step.startswith(KIND):
            kind = step.removeprefix(KIND)
            its = shape.Shape(its.rule, {"": its.models[kind]}) if kind in its.models else its
            continue
        if its is not None and "" in its.models:
            owner = its.models[""]
        path.append(step)
        if its is not None and its.named is not None:
            its = next(its.inside(step))
            continue
        its = shape.fields(owner)[step][1] if step in shape.fields(owner) else None
    return tuple(path), owner, its


def _plain(text: str) -> str:
    return text.replace("`", "")


def _takes(its: shape.Shape) -> str:
    return "its keys are names of your choice" if its.named else f"its keys: {', '.join(_all_keys(its))}"


def _what_to_give(owner: type[BaseModel], key: str) -> str:
    info, its = shape.fields(owner)[key]
    if its.rule and not its.models:
        return f"give {_plain(its.rule.says)}"
    return f"it is {_plain(info.description or '').rstrip('.').lower()}; {_takes(its)}"


def _unknown_key(path: shape.Path, value: Any, owner: type[BaseModel]) -> str:
    key, known = path[-1], tuple(owner.model_fields)
    told = _other_kind(path, owner)
    if told:
        return f"{told} (got {show(value)}); it takes: {', '.join(known)}"
    start = f"unknown key (got {show(value)})"
    if (why := not_modelled(key)) is not None:
        return f"{why} (got {show(value)})"
    if path[-2:-1] == ("slo",) and re.sub(r"_p\d+$", "", key) in AMBIGUOUS:
        return f"{start}; {NOT_ONE_THING}: for the mean write tpot; gaps are no target here"
    sought = key.replace("-", "_").rsplit(".", 1)[-1]
    near = did_you_mean(sought, known)
    elsewhere = [".".join(p) for p in shape.all_paths() if p[-1] == SHORT_NAMES.get(sought, sought) and p != path]
    if path in (("extends",), ("variants",)):
        return f"{start}; it belongs at the top of a scenario file, not in an override"
    if "." in key:
        return f"{start}; dotted keys are for variants and --set, write nested keys here"
    if sought not in known and elsewhere:
        return f"{start}; {_stands(elsewhere, key, path)}"
    if near:
        return start + near
    far = did_you_mean(sought, {p[-1]: p for p in shape.all_paths()})
    homes = [p for p in shape.all_paths() if far and f"'{p[-1]}'" in far]
    home = ".".join(min(homes, key=len, default=()))
    return f"{start}; did you mean '{home}'?" if home else f"{start}; known: {', '.join(known)}"


def _stands(elsewhere: list[str], key: str, path: shape.Path) -> str:
    """Where a key of this name belongs: at the top level, or below another one."""
    home = elsewhere[0]
    if "." in home or len(path) == 1:
        return f"did you mean '{home}'?"
    return f"'{home}' stands at the top level, not under {'.'.join(path[:-1])}"


def _other_kind(path: shape.Path, owner: type[BaseModel]) -> str:
    """A sentence, if the key belongs to another kind of what it is in."""
    for its in shape.at(path[:-1]):
        mine = next((kind for kind, model in its.models.items() if model is owner), "")
        others = [kind for kind, model in its.models.items() if path[-1] in model.model_fields and kind != mine]
        if mine and others:
            named = f"{its.told_by} " if its.told_by else ""
            return f"belongs to {named}{' or '.join(others)}, not to {mine}"
    return ""


def _no_kind(path: shape.Path, value: Any, its: shape.Shape) -> tuple[shape.Path, str]:
    """The sentence for a value that fits none of its kinds."""
    kinds = ", ".join(its.models)
    if not isinstance(value, dict):
        scalar = f"{_plain(its.rule.says)}, or " if its.rule else ""
        return path, f"must be {scalar}a mapping (got {show(value)}); {_takes(its)}"
    if its.told_by:
        inner = (*path, its.told_by)
        kind = value.get(its.told_by)
        if kind is None:
            return inner, f"missing; one of: {kinds}"
        near = did_you_mean(str(kind), its.models).removeprefix("; ")
        return inner, f"unknown {its.told_by} (got {show(kind)}); {near} one of: {kinds}".replace(";  ", "; ")
    own = its.own_keys()
    given = [", ".join(sorted(keys & set(value))) for keys in own.values() if keys & set(value)]
    if len(given) > 1:
        return path, f"holds keys of different kinds ({'; '.join(given)}); keep those of one kind"
    telling = [key for key in _all_keys(its) if any(key in keys for keys in own.values())]
    near = next((n for key in value if (n := did_you_mean(key, telling))), "")
    return path, f"does not tell its kind (got {show(value)}){near or ';'} give one of: {', '.join(telling)}"


def _all_keys(its: shape.Shape) -> list[str]:
    """All keys over all kinds, in schema order, each once."""
    return list(dict.fromkeys(key for model in its.models.values() for key in model.model_fields))
