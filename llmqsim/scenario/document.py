"""The schema for people and editors: docs/scenario.md and the JSON Schema, both made from the classes."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from llmqsim.scenario import shape
from llmqsim.scenario.schema import ScenarioSpec

FILE_KEYS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "extends": (
        "a file",
        "Another scenario file, relative to this one, whose values hold wherever this one says nothing.",
        {"type": "string", "minLength": 1},
    ),
    "variants": (
        "a mapping",
        "Named sets of overrides, applied with `--variant NAME`; keys nested or dotted.",
        {"type": "object", "additionalProperties": {"type": ["object", "null"]}},
    ),
}
"""keys of a scenario file that are gone once it is resolved: value, description, JSON Schema"""

_INTRODUCTION = """\
# What a scenario may hold

This page is generated: `llmqsim schema --markdown`. For editors there is a JSON Schema: `llmqsim schema`.

```yaml
question: Do two A100s carry this traffic?
workload:
  requests: 2000
  arrivals: {process: poisson, rate: 6.45 req/s}
  lengths: {prompt: {lognormal: {mean: 1000, cv: 1.2}, max: 8000}, output: 250}
model: llama-3.1-8b
gpu: a100-sxm-80gb
replicas: 2
slo: {ttft: 500 ms, tpot: 50 ms}
variants:
  four: {replicas: 4}
  fp8: {engine.kv_cache_dtype: fp8}
```

**Which value wins.** Command line (`--set key=value`) over variant (`--variant NAME`; later ones over earlier) over the
file over what it `extends`. `llmqsim explain SCENARIO` prints every value with its origin. Mappings merge key by key;
lists are replaced whole; `null` resets a key to its default. Where an override changes the kind of a mapping (such as
`process: gamma` over `process: poisson`), the new kind replaces the old, and keys that both kinds know stay. A `trace`
in an override replaces `arrivals` and `lengths`. Dotted keys are for variants and `--set`.

**Quantities.** Times: `500 ms`, `1.5 s`, `10 min` (ns, us, ms, s, min, h, d), also a quotient: `0.1 s / 1024`. Sizes:
`80 GiB` (1024³), `10 GB` (10⁹). Rates: `12 req/s`, `6.45/s`, `300 req/min`. Bare numbers are seconds, bytes, requests
per second. Only `true` and `false` are booleans.

**Files** are relative to the scenario that names them; in `--set`, to the working directory.
"""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a scenario file, for completion and checks in editors.

    It checks names, types and ranges. That nothing is missing, and that keys agree, only `llmqsim` can tell: what is
    missing here may stand in the file that this one extends.
    """
    schema = _relaxed(ScenarioSpec.model_json_schema())
    definitions = schema["$defs"]
    _also_text(definitions["Workload"]["properties"], "trace", "file of the trace")
    inside = [(definitions["Engine"], key) for key in ("batching", "ordering", "preemption")]
    inside.append((definitions["Workload"], "predictor"))
    for owner in (schema, definitions["TrafficClass"]):
        _also_text(owner["properties"], "slo", "an SLO as a tool spells it, such as 'ttft:500 tpot:50'")
    for owner, key in ((schema, "routing"), (schema, "admission"), *inside):
        _also_text(owner["properties"], key, "name of the policy")
    extra = {key: {"description": text, **rule} for key, (_, text, rule) in FILE_KEYS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "llmqsim scenario",
        "description": schema["description"],
        "type": "object",
        "properties": schema["properties"] | extra,
        "additionalProperties": False,
        "$defs": definitions,
    }


def _relaxed(part: Any) -> Any:
    """Drop titles and what a file that extends another need not meet: `required`, and that one kind only fits."""
    if isinstance(part, list):
        return [_relaxed(item) for item in part]
    if not isinstance(part, dict):
        return part
    out = {}
    for key, value in part.items():
        if key == "properties":
            out[key] = {name: _relaxed(inner) for name, inner in value.items()}
        elif key not in ("required", "title") and not (key == "default" and isinstance(value, (dict, type(None)))):
            out["anyOf" if key == "oneOf" else key] = _relaxed(value)
    return out


def _also_text(properties: dict[str, Any], key: str, what: str) -> None:
    """Allow the shorthand: bare text in place of a mapping."""
    given = properties[key]
    description = given.pop("description")
    options = given.pop("anyOf", None) or [given.copy()]
    given.clear()
    given.update(description=description, anyOf=[*options, {"type": "string", "minLength": 1, "description": what}])


def markdown() -> str:
    """Return docs/scenario.md: one table of keys per part of a scenario."""
    lines = [_INTRODUCTION, "## Top level", "", *_table(shape.Shape(models={"": ScenarioSpec}))]
    lines += [f"| `{key}` | {value} |  | {text} |" for key, (value, text, _) in FILE_KEYS.items()]
    for its, paths in _parts():
        lines += ["", "## " + ", ".join(f"`{'.'.join(path)}`" for path in paths), ""]
        docs = {kind: " ".join((model.__doc__ or "").split()) for kind, model in its.models.items()}
        lines += [f"- {kind}: {text}" for kind, text in docs.items()] if len(docs) > 1 else list(docs.values())
        lines += ["", *_table(its)]
    return "\n".join(lines) + "\n"


def _parts() -> list[tuple[shape.Shape, list[shape.Path]]]:
    """Every part below the top once, in schema order: its shape, and the places that hold it."""
    found: dict[tuple[type[BaseModel], ...], tuple[shape.Shape, list[shape.Path]]] = {}
    for path in shape.all_paths():
        for its in shape.at(path):
            if its.models:
                _, paths = found.setdefault(tuple(its.models.values()), (its, []))
                paths += [path] if path not in paths else []
    return list(found.values())


def _table(its: shape.Shape) -> list[str]:
    """Rows of keys; where there are several kinds, with the kinds that take a key; equal rows are one."""
    kinds_by_row: dict[tuple[str, str, str, str], list[str]] = {}
    for kind, model in its.models.items():
        for name, (info, inner) in shape.fields(model).items():
            value = "the kind" if name == its.told_by else _value(inner)
            row = (name, value, "needed" if info.is_required() else _default(info.default), info.description or "")
            kinds_by_row.setdefault(row, []).append(kind)
    several = len(its.models) > 1
    lines = ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    lines = [f"{line} {end} |" for line, end in zip(lines, ("for", "---"), strict=True)] if several else lines
    for (name, value, default, meaning), kinds in kinds_by_row.items():
        who = f" {'all' if len(kinds) == len(its.models) else ', '.join(kinds)} |" if several else ""
        lines.append(f"| `{name}` | {value} | {default} | {meaning} |{who}")
    return lines


def _value(its: shape.Shape) -> str:
    kinds = ", ".join(kind for kind in its.models if kind)
    mapping = [f"a mapping ({kinds})" if kinds else "a mapping"] if its.models else []
    mapping += ["a mapping of names"] if its.named else []
    return ", or ".join(([its.rule.says] if its.rule else []) + mapping)


def _default(default: Any) -> str:
    if isinstance(default, BaseModel):
        given = default.model_dump(exclude_none=True)
        default = next(iter(given.values())) if len(given) == 1 else None
    if default is None or default == {}:
        return ""
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
