"""llmqsim: a queueing simulator for LLM serving.

    from llmqsim import load, simulate
    result = simulate(load("scenarios/first_answer.yaml"))
    result.summary()["attainment"]

To read the code, read these first: `engine/reference.py` (what a replica does, step by step), `engine/rules.py` (the
rules it follows), `simulation.py` (how a scenario becomes a result). docs/architecture.md says which room holds what.
"""

from __future__ import annotations

from typing import Any

from llmqsim.version import __version__

_HOME = {
    "load": "llmqsim.scenario.load",
    "load_text": "llmqsim.scenario.load",
    "from_mapping": "llmqsim.scenario.load",
    "simulate": "llmqsim.simulation",
    "check_policy": "llmqsim.policy_suite",
    "register": "llmqsim.registry",
    "Result": "llmqsim.result",
    "UserError": "llmqsim.errors",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    # Imported on first use: numba and pandas take a second that `llmqsim --help` should not.
    if name in _HOME:
        from importlib import import_module

        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value  # else the submodule `simulate` would hide the function of that name
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
