"""What a run needs at least, in bytes and nanoseconds, held against what there is before the clock starts."""

from __future__ import annotations

from llmqsim.clients import Clients
from llmqsim.clock import END_NS
from llmqsim.cluster.admission import refusals
from llmqsim.cost.kernels import step_ns
from llmqsim.cost.lower import StepCost
from llmqsim.engine.deployment import Deployment
from llmqsim.errors import ScenarioError
from llmqsim.memory import require
from llmqsim.requests import Reason, RequestTable

BYTES_PER_CLIENT = 3000
"""a SimPy process that waits, in the reference engine"""
BYTES_PER_STEP = 400
"""of a step log on its way to its arrays: a tuple of eight numbers"""
NS_PER_YEAR = 365.25 * 86_400e9


def refuse_too_large(
    table: RequestTable, deployment: Deployment, clients: Clients, keep_steps: bool, until_ns: int | None
) -> None:
    """Raise ScenarioError, "key: sentence" with the number that would be needed, for a run that can't fit."""
    for loop in clients.loops:
        require(
            loop.clients * BYTES_PER_CLIENT,
            f"workload.arrivals.clients: {loop.clients:,} clients",
            "take fewer; a client in a loop sends again and again",
        )
    if until_ns is not None or clients.timeout_ns is not None:
        return  # whoever gives up, or is cut off, makes no more steps
    steps, seats = _least_steps(table, deployment), deployment.replicas * deployment.options.max_num_seqs
    if keep_steps:
        require(
            steps * BYTES_PER_STEP,
            f"keep_steps: {steps:,} steps in the log (at least: all answers in {seats:,} slots that are always full)",
            "simulate fewer requests, or leave keep_steps out",
        )
    if isinstance(deployment.cost, StepCost):
        cost = deployment.cost
        shortest = step_ns(cost.costs, cost.params, 1, 1, 0, 0, 0.0, 1, 1)
        _refuse_longer(steps * shortest, f"{steps:,} steps of {shortest:,} ns (the fewest and the shortest that can be)")


def _least_steps(table: RequestTable, deployment: Deployment) -> int:
    """Steps that some replica makes at least: its share of the tokens in full batches, or the longest answer alone."""
    tokens = table.output_tokens[refusals(table, deployment) == Reason.NONE]
    if not len(tokens):
        return 0
    seats = deployment.replicas * deployment.options.max_num_seqs
    return max(-(-int(tokens.sum()) // seats), int(tokens.max()))


def _refuse_longer(need_ns: int, what: str) -> None:
    if need_ns >= END_NS:
        raise ScenarioError(
            f"cost: {what} take {need_ns:,} ns ({need_ns / NS_PER_YEAR:,.0f} years), and the clock ends at 2^62 = "
            f"{END_NS:,} ns (int64 holds 2^63); make steps shorter (cost, engine.host), or set run.until"
        )
