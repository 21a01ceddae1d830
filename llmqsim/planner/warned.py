"""What is not modelled and moves the figures of an answer from many runs, as plain data for its first lines."""

from __future__ import annotations

from collections.abc import Mapping

from llmqsim.errors import ScenarioError
from llmqsim.scenario.build_warnings import told_of
from llmqsim.scenario.load import Scenario
from llmqsim.simulation import Prepared, prepare


def warned(prepared: Mapping[str, Prepared]) -> list[dict[str, str]]:
    """The caveats of servers by name, each once; what does not hold for all of them says for which."""
    return told_of({name: one.caveats() for name, one in prepared.items()})


def warned_if_built(scenario: Scenario) -> list[dict[str, str]]:
    """The same of a scenario that may not be servable at all, of which nothing is said then."""
    try:
        return warned({"": prepare(scenario)})
    except ScenarioError:
        return []
