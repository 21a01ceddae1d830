"""docs/policies.md: every policy by kind, made from the registry, so that none is missing and no parameter is stale."""

from __future__ import annotations

import dataclasses
import inspect

from llmqsim import policies, registry
from llmqsim.workload import predictors

assert policies and predictors, "imported to register the built-in ones"

KINDS = (
    ("ordering", "engine.ordering", "Who is next in the waiting queue?"),
    ("predictor", "workload.predictor", "How many output tokens do schedulers expect of a request?"),
    ("batching", "engine.batching", "What runs in a step?"),
    ("preemption", "engine.preemption", "Who gives way when KV blocks run out, and where does its KV go?"),
    ("routing", "routing", "Which replica does a request go to? Signals that are old, late binding: [routing.md](routing.md)."),
    ("admission", "admission", "May a request enter at all?"),
)

_INTRODUCTION = """# Policies

Written by `llmqsim schema --policies > docs/policies.md` from the policies themselves. A policy is switched on by name, with its parameters beside it:

```yaml
workload:
  predictor: {policy: ranker, tau: 0.6}
engine:
  ordering: {policy: sjf, ageing: 50}
```

`ordering: sjf` is short for `{policy: sjf}`. Parameters whose names end in `_s` are times (`3`, `"500 ms"`). What each does to two recorded workloads: [policy_effects.md](policy_effects.md). A name, parameter or value that does not fit is refused with what would be right; so is an ordering by length without a predictor, one by deadline without a target, and one that preempts with a batching policy that has no place for it.

**Blind by construction.** No policy sees how long an answer will be. Orderings "with oracle lengths" are the same orderings with `predictor: oracle`. What a run's predictor was worth is in `prediction` of the result ([metrics.md](metrics.md)).

**Deadlines** are targets of the request's class (`slo`, or `workload.classes.NAME.slo`): the TTFT target, or else the E2E target, counted from arrival.

**Who preempts.** An ordering that preempts puts running and waiting requests in one list at every step: tokens, slots and memory go from its top, and memory for the next token is taken from its end. Where the KV of those who give way goes is said by `engine.preemption`. A request that has made no token since it last entered is never displaced for a waiting one: each entry brings a token, so that every run ends. Served by `batching: continuous`.

**Which engine.** Every ordering, batching, preemption and routing policy of this page runs in the compiled engine. Orderings whose keys are fixed when a request joins (marked *fixed keys*: arrival, sizes with linear ageing, deadlines) cost it next to nothing; those that look again cost a look at all who wait, and those that preempt a look at all who run, at every step ([benchmarks.md](benchmarks.md)). Of policies of your own, orderings with fixed keys run there ([add_a_policy.md](add_a_policy.md)). `run.engine: auto` decides, and says so.

One of your own: [add_a_policy.md](add_a_policy.md).
"""


def markdown() -> str:
    """The page."""
    lines = [_INTRODUCTION]
    for kind, key, question in KINDS:
        lines += [f"## {kind.capitalize()}: `{key}`", "", question, ""]
        for name, cls in registry.classes(kind).items():
            if cls.__module__.startswith("llmqsim."):
                lines += _entry(name, cls)
    return "\n".join(lines).rstrip("\n")


def _entry(name: str, cls: type) -> list[str]:
    shown = ", ".join(f"`{f.name}: {_default(f)}`" for f in registry.parameters(cls))
    about = inspect.getdoc(cls) or ""
    inherited = [base for base in cls.__mro__[1:-1] if base.__module__ == cls.__module__ and base.__name__ in _SHARED]
    for base in inherited:
        about += "\n\n" + _SHARED[base.__name__]
    marks = " *Fixed keys.*" if _is_fixed(cls) else ""
    return [f"### {name}", "", about.strip() + marks, "", f"Parameters: {shown or 'none'}.", ""]


_SHARED = {
    "Predictor": "drift : how much longer predictions are at the end of the traffic, relative. online : a request that "
    "outlives its prediction is expected to make so many times as many tokens; 0: it is not corrected.",
    "Learned": "trace : a file to learn from; empty: the run's own requests.",
    "Chosen": "kv : where its KV goes: recompute (nowhere), swap (to the host, if it has room), or cheaper (to the host "
    "where copying there and back takes less time than computing it again alone).",
}


def _default(its: dataclasses.Field) -> str:
    value = its.default
    if isinstance(value, bool):
        return str(value).lower()
    if value in ("", ()):
        return "''" if value == "" else "[]"
    return str(value)


def _is_fixed(cls: type) -> bool:
    """Does an ordering of this class, as it comes, state fixed keys?"""
    return hasattr(cls, "fixed_keys") and not cls.reviews and not _preempts(cls) and "srpt" not in cls.__name__.lower()


def _preempts(cls: type) -> bool:
    return bool(cls().preempts)
