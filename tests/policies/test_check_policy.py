"""The public suite passes for every registered policy, and fails for policies that break a rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from llmqsim import check_policy, policies, registry
from llmqsim.policy_suite import KINDS, PolicyFault
from llmqsim.errors import UserError
from llmqsim.policies.ordering import Priority
from llmqsim.policies.protocol import Batching, FixedKeys, Ordering, OrderingTable
from llmqsim.registry import register
from llmqsim.requests import RequestTable

assert policies
ALL = [(kind, name) for kind in KINDS for name in registry.names(kind) if not name.startswith("test_")]


NEEDED = {
    "by_class": {"groups": {"soon": [0]}},
    "by_length": {"limits": [10], "groups": [[0], [0]]},
    "queue_cap": {"most": 100},
    "token_bucket": {"rate": 1e6, "burst": 1e6},
}
"""policies that can't be made without parameters; of admission policies, those that let everybody in here"""


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_every_registered_policy_keeps_the_rules(kind, name):
    assert check_policy(kind, name, NEEDED.get(name), trials=15) is None


@register("batching", "test_lazy")
@dataclass(frozen=True)
class Lazy(Batching):
    """Never lets the second in line enter."""

    def form(self, view, draft):
        for request in view.running:
            draft.grow(request)
        for request in view.waiting():
            if request.row != 1:
                draft.admit(request)


@register("ordering", "test_oracle")
@dataclass(frozen=True)
class Oracle(Ordering):
    """Peeks: the engine's sequence must not have what it looks for."""

    def key(self, request):
        return request.output_tokens


@register("batching", "test_moody")
@dataclass(frozen=True)
class Moody(Batching):
    """Remembers earlier runs."""

    calls = [0]

    def form(self, view, draft):
        self.calls[0] += 1
        for request in view.running:
            draft.grow(request)
        for request in view.waiting():
            if (self.calls[0] % 7 == 0 and view.running) or not draft.admit(request):
                break


def test_a_policy_that_leaves_someone_behind_is_named():
    with pytest.raises(PolicyFault, match="test_lazy.*conserves"):
        check_policy("batching", "test_lazy")


def test_a_policy_that_remembers_earlier_runs_is_named():
    with pytest.raises(PolicyFault, match="test_moody.*deterministic"):
        check_policy("batching", "test_moody")


def test_no_policy_can_see_an_output_length():
    with pytest.raises(AttributeError, match="output_tokens"):
        check_policy("ordering", "test_oracle")


@register("ordering", "test_wrong_keys")
@dataclass(frozen=True)
class WrongKeys(Priority):
    """Says that it sorts by arrival alone."""

    level: str = "zero"

    def fixed_keys(self, table):
        zeros = np.zeros(len(table), np.int64)
        level = {"zero": zeros, "float": table.priority * 1.0, "right": table.priority}[self.level]
        return FixedKeys(level, zeros, slope=2 if self.level == "right" else 1)


@pytest.mark.parametrize(
    ("level", "told"), [("zero", "sort differently"), ("float", "level must be int64"), ("right", "slope must be")]
)
def test_fixed_keys_that_sort_otherwise_than_key_are_named(level, told):
    with pytest.raises(PolicyFault, match=f"test_wrong_keys.*fixed keys.*{told}"):
        check_policy("ordering", "test_wrong_keys", {"level": level})


def test_an_ordering_table_hides_output_lengths_and_cannot_be_written():
    table = OrderingTable(RequestTable(3).columns())
    with pytest.raises(AttributeError, match="output_tokens"):
        _ = table.output_tokens
    with pytest.raises(ValueError, match="read-only"):
        table.priority[0] = 1
    assert len(table) == 3


def test_an_unknown_kind_or_name_is_refused():
    with pytest.raises(UserError, match="unknown kind"):
        check_policy("scheduling", "fcfs")
    with pytest.raises(UserError, match="did you mean 'orca'"):
        check_policy("batching", "orka")


def test_a_policy_that_leaves_its_question_open_is_refused_by_name():
    @register("batching", "test_unfinished")
    class Unfinished(Batching):
        pass

    with pytest.raises(UserError, match="'test_unfinished': its class .*Unfinished must define form"):
        registry.make("batching", "test_unfinished")
    with pytest.raises(TypeError, match="Keyless is an ordering and must define key"):

        class Keyless(Ordering):
            pass
