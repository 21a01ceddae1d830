"""What do routers and orderings cost? `python -m llmqsim.benchmark.policies routing` (or `ordering`) prints a table.

Each policy that has a compiled form serves cases a, b8 and b64 (orderings: a and b8), with the same requests as the policy
that it is compared with. Rounds alternate between them, and of each the least counts, since others on the machine can
only add to it. CPU seconds of the whole case: load, simulate, write JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from llmqsim.benchmark.measure import timed
from llmqsim.errors import ScenarioError
from llmqsim.registry import classes

ROUNDS = 7
USUAL = {"a": "round_robin", "b8": "least_outstanding", "b64": "least_outstanding"}
"""router of each case"""
REPLICAS = {"a": 1, "b8": 8, "b64": 64}
SEEN = (
    "workload.classes={chat: {share: 0.6, slo: {ttft: 2 s}}, report: {share: 0.4, slo: {e2e: 60 s}}}",
    "workload.predictor={policy: lognormal, sigma: 0.5}",
)
"""what policies look at; part of every run, so that drawing it counts for none of them"""
SHARED = "workload.prefix={shared_tokens: 512, groups: 64}"
"""what routers look at, too"""


def main() -> None:
    """Print the table of the kind that the command line names."""
    kind = sys.argv[1] if len(sys.argv) > 1 else "routing"
    for case in ("a", "b8", "b64") if kind == "routing" else ("a", "b8"):
        for line in table(case, kind):
            print(line, flush=True)


def table(case: str, kind: str) -> list[str]:
    """A line for each policy: CPU seconds, and how many times those of the usual one."""
    usual = USUAL[case] if kind == "routing" else "fcfs"
    least: dict[str, float] = {}
    for name in (usual, *_names(kind)):
        try:  # this also compiles
            least[name] = _seconds(case, kind, name)
        except ScenarioError:
            print(f"{name}: has no compiled form", file=sys.stderr)
    for _ in range(ROUNDS):
        least = {name: min(seconds, _seconds(case, kind, name)) for name, seconds in least.items()}
    lines = [
        f"| `{case}` | `{name}` | {seconds:.3f} | {seconds / least[usual]:.2f} |" for name, seconds in least.items()
    ]
    return [f"| case | {kind} | CPU s | of `{usual}` |", "| --- | --- | ---: | ---: |", *lines]


def _names(kind: str) -> Iterator[str]:
    """Every policy; those that may preempt or not, both ways."""
    for name, cls in classes(kind).items():
        if hasattr(cls, "preempt"):
            yield from (f"{{policy: {name}, preempt: {preempt}}}" for preempt in ("false", "true"))
        else:
            yield name


def _seconds(case: str, kind: str, name: str) -> float:
    """CPU seconds of a case under a policy. Raises ScenarioError where the compiled engine does not know it."""
    chosen = (
        (f"engine.ordering={name}",) if kind == "ordering" else (SHARED, f"routing={_router(name, REPLICAS[case])}")
    )
    return sum(timed(case, "run.engine=compiled", *SEEN, *chosen)["parts"].values())


def _router(name: str, replicas: int) -> str:
    """A router as it is written, with parameters that go with so many replicas."""
    some, others = list(range((replicas + 1) // 2)), list(range(replicas // 2, replicas))
    given = {
        "by_class": f", groups: {{chat: {some}, report: {others}}}",
        "by_length": f", limits: [1000], groups: [{some}, {others}]",
        "session_sticky": ", by: prefix",
    }
    return f"{{policy: {name}{given.get(name, '')}}}"


if __name__ == "__main__":
    main()
