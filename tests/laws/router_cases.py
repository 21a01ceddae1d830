"""The random clusters of compiled_cases.py under every routing and admission policy, before clients of every kind.

`python -m tests.laws.router_cases FROM TO` compares the engines on these cases and prints the first difference. With
NUMBA_DISABLE_JIT=1 the compiled engine is plain Python.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from llmqsim.policies.protocol import Routing
from llmqsim.policies.views import RoutedRequest, RouterView
from llmqsim.registry import register
from llmqsim.requests import INDEX, RequestTable
from tests.laws.cases import GRID_NS, Case
from tests.laws.compiled_cases import Compared, compared, differences
from tests.laws.kind_cases import of_any_batching, of_any_clients

ROUTING = [
    ("random", {}),
    ("power_of_two", {}),
    ("least_loaded", {}),
    ("least_loaded", {"count_own": False}),
    ("least_kv", {}),
    ("least_kv", {"count_own": False}),
    ("least_predicted_work", {}),
    ("least_predicted_work", {"prompt_weight": 0.3}),
    ("prefix_affinity", {}),
    ("prefix_affinity", {"affinity_weight": 3, "load_weight": 0.1}),
    ("session_sticky", {}),
    ("session_sticky", {"by": "prefix"}),
    ("by_class", {"groups": {"class 0": [0, 1]}}),
    ("by_class", {"groups": {"class 0": [1], "class 1": [0]}, "rest": [1, 0]}),
    ("by_length", {"limits": [4, 9], "groups": [[1], [0], [1, 0]]}),
    ("by_length", {"limits": [12], "groups": [[0, 1], [1]], "by": "predicted"}),
    ("least_outstanding", {}),
    ("round_robin", {}),
]
ADMISSION = [
    ("token_bucket", {"rate": 40, "burst": 3}),
    ("token_bucket", {"rate": 2000, "burst": 300, "of": "tokens"}),
    ("queue_cap", {"most": 0}),
    ("queue_cap", {"most": 2}),
    ("queue_cap", {"most": 4, "of": "outstanding"}),
    ("deadline", {"slack": 0.3, "window_s": 0.05}),
    ("deadline", {"slack": 1.5, "window_s": 2}),
]
REPORTS = ("least_loaded", "least_kv")


@register("routing", "test_own")
@dataclass(frozen=True)
class Own(Routing):
    """A router of one's own, which looks at all that there is, and remembers whom it sent where."""

    reads_signals = True
    sees_state = True
    draws = 1

    def start(self, replicas: int) -> list:
        """How many requests each has had."""
        return [0] * replicas

    def choose(self, state: list, request: RoutedRequest, replicas: Sequence[RouterView]) -> int:
        """Something of everything."""

        def order(replica: RouterView) -> float:
            signal = replica.signal
            known = 3 * signal.waiting + 2 * signal.running + signal.held_blocks + replica.outstanding
            since = replica.blocks_since + replica.sent_since + replica.block_size + min(9, replica.usable_blocks)
            return known + since + state[replica.index] / 4 + request.draws[0] * (replica.index + request.row % 3)

        index = min(replicas, key=order).index
        state[index] += request.prompt_tokens % 3 + len(request.prefix_blocks)
        return index


@dataclass(frozen=True)
class Routed(Compared):
    """A case whose requests have what routers look at."""

    tenants: tuple[int, ...] = (0,)
    """of the requests, in turn"""
    predicts: bool = True
    has_deadlines: bool = False

    def table(self) -> RequestTable:
        """A fresh table."""
        made = super().table()
        rows = np.arange(len(made))
        made.data[INDEX["tenant_id"]] = np.resize(self.tenants, len(made))
        if self.predicts:
            made.data[INDEX["predicted_tokens"]] = 1 + (7 * made.prompt_tokens + 5 * rows) % 13
        if self.has_deadlines:
            made.data[INDEX["deadline_ns"]] = np.where(rows % 5 > 0, (rows * 37 % 11) * 7_000_000, -1)
        return made


def admitted(seed: int) -> Routed:
    """Case number `seed` behind a door: one replica and more, under every admission policy."""
    random = np.random.default_rng([20261202, seed])
    case = routed(seed)
    name, given = ADMISSION[seed % len(ADMISSION)]
    servers = case.case.servers | dict(admission=(name, given))
    if name != "token_bucket" and random.random() < 0.3:
        servers["signal_age_ns"] = int(random.integers(1, 9)) * GRID_NS
    if random.random() < 0.2 and not servers["route"]:
        servers["replicas"] = 1
    return replace(case, case=replace(case.case, servers=servers), has_deadlines=name == "deadline")


def asked(seed: int) -> Routed:
    """Case number `seed` under a router of one's own, with requests that are sent when they are due."""
    random = np.random.default_rng([20261203, seed])
    case = routed(seed)
    age_ns = int(random.integers(0, 4)) * int(random.choice([GRID_NS, 1_234_567]))
    servers = case.case.servers | dict(routing="test_own", route={}, signal_age_ns=age_ns)
    servers["replicas"] = int(random.integers(1, 4))
    return replace(case, case=replace(case.case, servers=servers), loop=None, crowd=None)


def routed(seed: int) -> Routed:
    """Case number `seed`: two replicas at least, reports from fresh to old, clients of every kind in every fourth."""
    random = np.random.default_rng([20261201, seed])

    def pick(*options):
        return options[random.integers(len(options))]

    name, route = ROUTING[seed % len(ROUTING)]
    case = of_any_clients(seed) if seed % 4 == 0 else of_any_batching(seed) if seed % 4 == 1 else compared(seed)
    servers = case.case.servers | dict(
        routing=name,
        route=route,
        replicas=max(2, case.case.servers["replicas"]),
        signal_age_ns=pick(0, 0, 1, 2, 7, 40) * pick(GRID_NS, 1_234_567) if name in REPORTS else 0,
    )
    later = pick(1, 1, 10, 30)  # so that requests also arrive when others have been preempted
    requests = tuple((later * arrival, *lengths) for arrival, *lengths in case.case.requests)
    groups = case.case.groups
    if name in ("prefix_affinity", "session_sticky"):  # prompts of a few kinds, and a memory that can't hold them all
        requests = tuple((arrival, prompt, 1 + output % 3, 3) for arrival, prompt, output, _ in requests)
        groups = tuple((int(random.integers(0, 4)), pick(3, 90, 90)) for _ in requests)
        longest = max(prompt for _, prompt, _, _ in requests)
        servers |= dict(block_size=1, blocks=longest + pick(4, 5, 20), enable_prefix_caching=True)
    tenants = tuple(random.integers(0, pick(1, 3, 9), 7).tolist())
    given = {field.name: getattr(case, field.name) for field in fields(Compared)}
    given["case"] = replace(case.case, requests=requests, servers=servers, groups=groups)
    given["classes"] = 3 if name == "by_class" else case.classes
    return Routed(**given, tenants=tenants, predicts=route.get("by") == "predicted" or pick(True, False))


def rare_routed() -> list[Compared]:
    """What chance finds too rarely: of the first replica's two requests one has been preempted when the last arrives."""
    servers = dict(batching="continuous", routing="least_loaded", replicas=2, block_size=1, blocks=13)
    requests = ((0, 2, 10, 10), (0, 2, 3, 3), (0, 2, 10, 10), (0, 2, 10, 10), (75, 2, 3, 3))
    return [Compared(Case(requests, servers, (10, 0, 0), (0, 0)))]


def first_difference(seeds: range) -> str | None:
    """The first case in which the engines differ, in words."""
    for case in rare_routed():
        if told := differences(case, keep_steps=True):
            return f"{told}: {case}"
    for seed in seeds:
        for case in (routed(seed), admitted(seed), asked(seed)):
            told = differences(case, keep_steps=seed % 3 > 0)
            if told not in ([], ["fell back"]):
                return f"case {seed}: {told}: {case}"
    return None


if __name__ == "__main__":
    found = first_difference(range(int(sys.argv[1]), int(sys.argv[2])))
    print(found or "the engines agree")
