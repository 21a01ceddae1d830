"""Every ordering with fixed keys runs in the compiled engine as in the reference engine, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from llmqsim import registry
from llmqsim.clients import Clients
from llmqsim.cluster.compiled import why_not
from llmqsim.requests import INDEX, Targets
from tests.laws.compiled_cases import Compared, compared, differences
from tests.support import deployment

FIXED = [
    ("lifo", {}),
    ("random", {"seed": 3}),
    ("sjf", {}),
    ("sjf", {"by": "total", "ageing": 40.0}),
    ("sjf", {"by": "prompt", "ageing": 1e6}),
    ("shortest_cost", {}),
    ("shortest_cost", {"ageing": 0.5, "batch": 4}),
    ("edf", {}),
    ("least_slack", {}),
    ("least_slack", {"batch": 3}),
]
PREEMPTS = ("learned_rank", "mlfq", "srpt")
"""unless they are told not to"""


@dataclass(frozen=True)
class Ordered(Compared):
    """A case under one of the orderings, whose requests have predictions and deadlines."""

    ordering: int = 0

    def table(self):
        """As it is, with columns that orderings look at; predictions are outlived, and corrected."""
        made = super().table()
        rows = np.arange(len(made))
        made.data[INDEX["predicted_tokens"]] = 1 + (7 * made.prompt_tokens + 5 * rows) % 13
        made.data[INDEX["deadline_ns"]] = np.where(rows % 5 > 0, (rows * 37 % 11) * 7_000_000, -1)
        targets = (Targets(ttft_ns=7_000_000), Targets(e2e_ns=50_000_000))
        made.targets = tuple(targets[i % 2] for i in range(len(made.classes)))
        made.re_estimate = 2.0
        return made

    def servers(self):
        """As they are, with the ordering."""
        return replace(super().servers(), ordering=registry.make("ordering", *FIXED[self.ordering]))


def ordered(seed: int) -> Ordered:
    """Case `seed` of the law; the orderings take turns."""
    case = compared(seed)
    return Ordered(**{f.name: getattr(case, f.name) for f in fields(case)}, ordering=seed % len(FIXED))


def check(seeds: range) -> None:
    fell_back = 0
    for seed in seeds:
        told = differences(ordered(seed), keep_steps=seed % 3 > 0)
        fell_back += told == ["fell back"]
        assert told in ([], ["fell back"]), f"case {seed}, {FIXED[seed % len(FIXED)]}: {told}: {ordered(seed)}"
    assert fell_back < len(seeds) / 8


def test_the_engines_agree_under_every_ordering_with_fixed_keys():
    check(range(1000, 1240))


@pytest.mark.long
def test_the_engines_agree_under_every_ordering_on_thousands():
    check(range(2000, 4000))


def test_every_ordering_is_either_compiled_or_named_as_what_the_compiled_engine_lacks():
    table = ordered(1000).table()
    for name, cls in registry.classes("ordering").items():
        if cls.__module__.startswith("llmqsim."):
            assert why_not(table, deployment(ordering=name), Clients()) is None, name
            lacking = why_not(table, deployment(ordering=name, batching="sarathi"), Clients())
            assert (lacking is None) == (name not in PREEMPTS), (name, lacking)
            assert lacking is None or f"'{name}'" in lacking
