"""What do routers and orderings cost? `python -m llmqsim.benchmark.policies routing` (or `ordering`) prints a table.

`... waiting` prints another one of orderings, with 25,000, 50,000 and 100,000 requests that wait from the start, of 40 tenants
with targets of their own: CPU seconds of the run alone, how many times those of fcfs at the middle number, and how many
times as long each doubling takes. Names after it choose orderings, numbers the queues.

Each policy that has a compiled form serves cases a, b8 and b64 (orderings: a and b8), with the same requests as the policy
that it is compared with. Rounds alternate between them, and of each the least counts, since others on the machine can
only add to it. CPU seconds of the whole case: load, simulate, write JSON.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from llmqsim.benchmark.measure import scenario, timed
from llmqsim.errors import ScenarioError
from llmqsim.registry import classes
from llmqsim.simulation import prepare

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
WAITING = 25_000, 50_000, 100_000
"""queues of `waiting`"""
TENANTS = 40
WAITING_ROUNDS = 3
ENOUGH_S = 20.0
"""a run that takes longer than this is measured once, and its ordering with no longer queue"""
CACHED = ("engine.enable_prefix_caching=true", SHARED)
"""for orderings that look at what is cached, and what they are compared with"""


def main() -> None:
    """Print the table of the kind that the command line names."""
    kind = sys.argv[1] if len(sys.argv) > 1 else "routing"
    if kind == "waiting":
        sizes = tuple(int(word) for word in sys.argv[2:] if word.isdigit()) or WAITING
        for line in waiting(sizes, [word for word in sys.argv[2:] if not word.isdigit()]):
            print(line, flush=True)
        return
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


def waiting(sizes: tuple[int, ...], chosen: list[str]) -> Iterator[str]:
    """A line for each ordering: CPU seconds with so many requests that wait, times fcfs, growth by each step of sizes."""
    middle = len(sizes) // 2
    heads = [f"{size:,} wait, CPU s" for size in sizes]
    growth = [f"{more:,} of {less:,}" for less, more in zip(sizes, sizes[1:], strict=False)]
    yield f"| ordering | {' | '.join(heads)} | of `fcfs` at {sizes[middle]:,} | {' | '.join(growth)} |"
    yield f"| --- |{' ---: |' * (len(heads) + 1 + len(growth))}"
    usual: dict[tuple[str, ...], float] = {}
    for name in chosen or list(_names("ordering")):
        more = CACHED if "longest_prefix" in name else ()
        if more not in usual:
            usual[more] = _run_s("fcfs", sizes[middle], more)
        seconds: list[float] = []
        for size in sizes:
            if not seconds or seconds[-1] < ENOUGH_S:
                try:
                    seconds.append(_run_s(name, size, more))
                except ScenarioError as error:
                    print(f"{name}: {error}", file=sys.stderr)
                    break
        if seconds:
            times = f"{seconds[middle] / usual[more]:.1f}" if len(seconds) > middle else ""
            grown = [f"{b / a:.2f}" for a, b in zip(seconds, seconds[1:], strict=False)]
            yield f"| `{name}` | {' | '.join(f'{s:.2f}' for s in seconds)} | {times} | {' | '.join(grown)} |"


def _run_s(name: str, size: int, more: tuple[str, ...]) -> float:
    """CPU seconds of a run in which so many requests wait from the first second on: the least of a few."""
    classes_ = ", ".join(
        f"c{n}: {{share: {1 / TENANTS}, tenant: t{n}, priority: {n % 4}, "
        f"slo: {{{'ttft' if n % 2 else 'e2e'}: {100 * 1.2**n:.0f} s}}}}"
        for n in range(TENANTS)
    )
    sets = (
        "run.engine=compiled",
        f"workload.requests={size}",
        "workload.arrivals.rate=1000000 req/s",
        f"workload.classes={{{classes_}}}",
        SEEN[1],
        f"engine.ordering={name}",
        *more,
    )
    run = scenario("a", *sets).spec.run
    least = float("inf")
    prepare(scenario("a", *sets, "workload.requests=300")).run(run.seed, run.replication, keep="requests")
    for _ in range(WAITING_ROUNDS):
        prepared, began = prepare(scenario("a", *sets)), time.process_time()
        prepared.run(run.seed, run.replication, keep="requests")
        least = min(least, time.process_time() - began)
        if least > ENOUGH_S / 4:
            break
    return least


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
