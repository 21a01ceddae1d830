"""How long each request would take on an empty server: what slowdown and fairness are measured against, and who would
give up there too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from llmqsim import registry
from llmqsim.clients import Clients
from llmqsim.cluster import choose
from llmqsim.engine.deployment import Deployment
from llmqsim.requests import Outcome, RequestTable

PROMPTS = 48
"""prompt lengths, evenly spaced in their logarithm, whose time to first token is simulated; between them it is linear"""
APART_NS = 10**15
"""between two arrivals: eleven days, so that each has the server to itself"""


class Alone:
    """End-to-end time of a request by its lengths, alone on one replica, nothing cached.

    A decode step of one request depends on its context alone, so an answer is a stretch of one curve: the time between
    tokens by context, simulated at a few contexts. On chat lengths it is within 1.5 % of simulating each request alone.
    """

    def __init__(self, deployment: Deployment, longest_prompt: int, longest_answer: int):
        fcfs, in_turn = registry.make("ordering", "fcfs"), registry.make("routing", "round_robin")
        single = replace(deployment, replicas=1, ordering=fcfs, routing=in_turn)  # who is alone needs no choice
        self.prompts = np.unique(np.geomspace(1, longest_prompt, PROMPTS).round().astype(np.int64))
        first = _simulate(single, self.prompts, np.ones_like(self.prompts))
        served = first.outcome == Outcome.COMPLETED
        self.prompts = self.prompts[served]
        self.first_s = (first.finish_ns - first.arrival_ns)[served] / 1e9
        self.contexts, self.token_s = self._tokens(single, longest_prompt, longest_answer)

    def _tokens(self, single: Deployment, prompt: int, answer: int) -> tuple[np.ndarray, np.ndarray]:
        """Context tokens and the time from one token to the next there, seconds."""
        length = 9  # tokens: eight gaps, so that the step that takes a new block averages out
        starts = np.unique(np.geomspace(1, max(prompt + answer - length, 1), PROMPTS).round().astype(np.int64))
        table = _simulate(single, starts, np.full_like(starts, length))
        served = table.outcome == Outcome.COMPLETED
        gap_s = (table.finish_ns - table.first_token_ns)[served] / (length - 1) / 1e9
        return starts[served] + length // 2, gap_s

    def first_token_s(self, table: RequestTable) -> np.ndarray:
        """The same from arrival to first token."""
        return np.interp(table.prompt_tokens, self.prompts, self.first_s)

    def e2e_s(self, table: RequestTable) -> np.ndarray:
        """Seconds from arrival to last token of each row, were it alone; float64[rows], NaN where nothing could be served."""
        if not len(self.prompts) or not len(self.contexts):
            return np.full(len(table), np.nan)
        prompt, answer = table.prompt_tokens, table.output_tokens
        first = self.first_token_s(table)
        # the integral of the time between tokens from the prompt's length to the last token's context
        upto = np.arange(int((prompt + answer).max()) + 1)
        gaps = np.interp(upto, self.contexts, self.token_s)
        total = np.concatenate([[0.0], np.cumsum(gaps)])
        return first + total[prompt + answer] - total[prompt + 1]


def late_alone(deployment: Deployment, table: RequestTable, timeout_ns: int) -> np.ndarray:
    """Who would not be answered before its client gives up even with a server of its own, bool[rows].

    What may be found in a prefix cache costs nothing here, so that nobody is called late who might not be.
    """
    alone, cached = alone_for(deployment, table), table.prefixes is not None and deployment.options.enable_prefix_caching
    least_s = alone.e2e_s(table)
    if cached:
        least_s = least_s - alone.first_token_s(table)
    return least_s * 1e9 > timeout_ns


def _simulate(single: Deployment, prompts: np.ndarray, answers: np.ndarray) -> RequestTable:
    """Requests of these lengths, far apart, on one replica."""
    table = RequestTable.from_columns(
        arrival_ns=np.arange(len(prompts), dtype=np.int64) * APART_NS,
        prompt_tokens=prompts,
        output_tokens=answers,
        max_tokens=answers,
    )
    choose.run("auto", table, single, Clients(), False, None)
    return table


def alone_for(deployment: Deployment, table: RequestTable) -> Alone:
    """Made for the lengths in a table."""
    return Alone(deployment, int(table.prompt_tokens.max()), int(table.output_tokens.max()))
