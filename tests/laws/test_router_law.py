"""Every built-in router and every admission policy gives the reference engine's results in the compiled one, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from llmqsim import registry
from llmqsim.clients import Clients
from llmqsim.cluster.compiled import why_not
from tests.laws.compiled_cases import differences
from tests.laws.router_cases import ADMISSION, Own, admitted, asked, routed
from tests.support import deployment, table


def check(seeds: range) -> None:
    """In plain Python: every mixture of router, clients and batching is compiled anew, which would take hours."""
    command = [sys.executable, "-m", "tests.laws.router_cases", str(seeds.start), str(seeds.stop)]
    done = subprocess.run(command, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True)
    assert done.stdout.strip() == "the engines agree", done.stdout + done.stderr


def test_the_engines_agree_under_every_router_and_door():
    check(range(200))


def test_the_engines_agree_under_routers_that_are_compiled():
    """Requests that are sent when they are due, under vLLM V1's batching."""
    seeds = [seed for seed in range(400, 640) if seed % 4 > 1 and routed(seed).loop is None]
    for seed in seeds:
        for case in (routed(seed), admitted(seed), asked(seed)):
            assert differences(case, keep_steps=seed % 3 > 0) in ([], ["fell back"]), f"case {seed}: {case}"
    built_in = {name for name, cls in registry.classes("routing").items() if cls.__module__.startswith("llmqsim.")}
    assert {routed(seed).case.servers["routing"] for seed in seeds} == built_in


@pytest.mark.long
def test_the_engines_agree_under_every_router_on_thousands():
    check(range(1000, 2000))


def test_every_router_and_every_door_is_compiled():
    assert {name for name, _ in ADMISSION} == {*registry.classes("admission")} - {"all"}
    for admission in ADMISSION:
        assert why_not(table((0, 10, 10)), deployment(admission=admission), Clients()) is None
    for name, cls in registry.classes("routing").items():
        if cls.__module__.startswith("llmqsim."):
            given = {"by_class": {"groups": {"all": [0]}}, "by_length": {"limits": [8], "groups": [[0], [1]]}}.get(name)
            servers = deployment(replicas=2, routing=name, route=given)
            assert why_not(table((0, 10, 10)), servers, Clients()) is None


class Hears(Own):
    """It would have to be told of every end in its order."""

    def finished(self, state, request, index):
        """One less."""
        state[index] -= 1


def test_what_a_router_of_ones_own_can_not_be_asked_is_named():
    def told(routing=None, clients=None, **servers):
        fleet = replace(deployment(**servers), routing=routing or Own())
        return why_not(table((0, 10, 10)), fleet, clients or Clients())

    assert told() is None
    assert told(Hears()) == "routing 'Hears' of one's own, which hears of ends"
    assert told(clients=Clients(timeout_ns=10)) == "routing 'test_own' of one's own, with clients that wait or give up"
    assert told(admission=ADMISSION[0]) == "routing 'test_own' of one's own, behind admission"
