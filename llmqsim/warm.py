"""`llmqsim warm`: compile ahead, so that no answer waits for it: all common things, or what scenarios need.

Which kernels a run calls hangs on its policies and clients, not on how many requests there are, so a short run of a
scenario compiles what the whole one needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

from llmqsim.errors import ScenarioError
from llmqsim.scenario.load import Scenario, load
from llmqsim.simulation import prepare

REQUESTS = 50
COMMON = {
    "a": "one replica, or several in turn",
    "b8": "replicas by requests in flight",
    "d512": "prompts that share prefixes",
    "e": "a closed loop",
    "i": "prefill and decode pools",
}
"""variants of presets/benchmarks.yaml that call between them what most runs do; each policy beyond adds its own"""


@dataclass(frozen=True)
class Warmed:
    """A scenario whose kernels are compiled. engine : which one serves it. cpu_s : that took, with its short run."""

    what: str
    engine: str
    cpu_s: float


def warm(scenarios: Sequence[str] = (), say: Callable[[int, int, str], None] | None = None) -> Iterator[Warmed]:
    """Compile what these scenario files need (none: all common things), one after the other.

    say : called with number, count and name before each. Raises ScenarioError for what can't be run as written, before
    the first of them is served.
    """
    short = [(path, _short(path)) for path in scenarios] or _common()
    todo = [(what, prepare(scenario)) for what, scenario in short]
    for number, (what, prepared) in enumerate(todo, 1):
        if say is not None:
            say(number, len(todo), what)
        began = time.process_time()
        run = prepared.scenario.spec.run
        result = prepared.run(run.seed, run.replication, keep="summary")
        yield Warmed(what, result.engine, time.process_time() - began)


def _common() -> list[tuple[str, Scenario]]:
    with resources.as_file(resources.files("llmqsim.presets") / "benchmarks.yaml") as path:
        size = [f"workload.requests={REQUESTS}"]
        return [(what, load(path, variant=name, sets=size)) for name, what in COMMON.items()]


def _short(path: str) -> Scenario:
    """A scenario with few requests; as it is where it says by other means how many there are."""
    whole = load(path)
    sets = {"workload.duration": None, "workload.requests": REQUESTS}
    try:
        return load(path, sets=sets)
    except ScenarioError:
        return whole
