"""What arithmetic says before anything is simulated: how much a replica can carry, and how long requests would wait.

From the mean lengths of the workload's own rows and the step costs of the deployment. Nothing here knows the queue's
rules, so it is a yardstick beside the simulated answer and a way to leave out what can't work, never the answer.

Steady state of continuous batching with B running requests of mean output O and mean prompt P: in O steps each of them
leaves once and a new one enters, so a step holds B decodes and P B / O prompt tokens on average, and lasts T(B). Then
    capacity = B / (O T(B)), at the largest B that slots, KV pool and token budget allow.
Sources: Little (1961) for B = rate x O T(B) and for the KV pool (tokens held = rate x token-seconds of a request, which
must stay below the pool: the stability threshold); Allen-Cunneen for the wait of M/G/k (Allen 1990), exact for k = 1
(Pollaczek-Khinchine); Erlang (1917) for the probability to wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmqsim.cluster.alone import Alone
from llmqsim.cost.kernels import prefill_attention_ns, step_ns
from llmqsim.cost.stations import Stations
from llmqsim.engine.deployment import Deployment
from llmqsim.metrics.slo import Objective
from llmqsim.requests import RequestTable

LARGEST_BATCH = 2**16
NEARLY_ALL = 0.9
"""share of requests from which a TPOT target binds the mean step: fewer might keep it while the mean does not"""


@dataclass(frozen=True)
class Mix:
    """The workload in means: tokens a request, requests a second. cv_* : coefficients of variation."""

    rate_per_s: float | None
    """None where arrivals depend on the run (closed loops) or all come at once"""
    prompt: float
    output: float
    context: float
    """tokens of context of a decode step, mean over all decode steps"""
    arrival_cv2: float
    service_cv2: float

    @classmethod
    def of(cls, table: RequestTable, service_s: np.ndarray) -> Mix:
        """Of the rows of a table. service_s : time alone, float64[rows], for the spread of service times."""
        prompt, output = table.prompt_tokens.astype(float), table.output_tokens.astype(float)
        gaps = np.diff(table.arrival_ns) / 1e9
        known = len(gaps) > 0 and float(gaps.sum()) > 0 and bool((table.arrival_ns >= 0).all())
        return cls(
            rate_per_s=float(len(gaps) / gaps.sum()) if known else None,
            prompt=float(prompt.mean()),
            output=float(output.mean()),
            context=float(((prompt + output / 2) * output).sum() / output.sum()),
            arrival_cv2=float(gaps.var() / gaps.mean() ** 2) if known else 1.0,
            service_cv2=float(np.nanvar(service_s) / np.nanmean(service_s) ** 2),
        )


@dataclass(frozen=True)
class Limit:
    """One supply of a replica: how many requests it lets run, and what that carries. source : where the formula is from."""

    name: str
    batch: float
    capacity_per_s: float
    formula: str


class Bounds:
    """The arithmetic of one replica of a deployment under a mix."""

    def __init__(self, deployment: Deployment, table: RequestTable):
        self.deployment = deployment
        self.cached = table.prefixes is not None and deployment.options.enable_prefix_caching
        longest_prompt, longest_answer = int(table.prompt_tokens.max()), int(table.output_tokens.max())
        self.alone = Alone(deployment, longest_prompt, longest_answer)
        self.service_s = self.alone.e2e_s(table)
        self.mix = Mix.of(table, self.service_s)
        self.stations = isinstance(deployment.cost, Stations)
        self.stages = 1 if self.stations else deployment.cost.pipeline_stages
        self.limits = self._station() if self.stations else self._limits()

    # Supply ----------------------------------------------------------------------------------------------------------

    @property
    def binding(self) -> Limit:
        """The limit that lets fewest requests run."""
        return min(self.limits, key=lambda one: one.batch)

    @property
    def capacity_per_s(self) -> float:
        """Requests per second that one replica can complete, whatever they wait."""
        return self.binding.capacity_per_s

    @property
    def slots(self) -> int:
        """Requests that run at once at most."""
        return max(1, int(self.binding.batch))

    def step_s(self, batch: float) -> float:
        """Mean time of a step with `batch` requests running in the replica, seconds."""
        cost, mix = self.deployment.cost, self.mix
        decodes = max(1, round(batch / self.stages))
        prompt = mix.prompt * (batch / self.stages) / mix.output
        room = max(1.0, self.deployment.options.max_num_batched_tokens - decodes)
        chunk = min(max(mix.prompt, prompt), room)  # prompts come whole, and together only where many come in a step
        share = min(1.0, prompt / chunk)
        return (1 - share) * self._step(cost, decodes, 0.0, 0) + share * self._step(cost, decodes, chunk, mix.prompt)

    def _step(self, cost: Any, decodes: int, chunk: float, prompt: float) -> float:
        """A step of so many decodes of mean context, and a prefill of `chunk` tokens in prompts of `prompt` tokens."""
        tokens, chunks, attention = round(chunk), 0, 0.0
        if self.mix.output <= 1:
            decodes = 0  # the step that ends the prefill makes the only token
        if tokens:
            chunks = max(1, round(chunk / prompt))
            each = max(1, tokens // chunks)
            seen = max(each, round((prompt + each) / 2))  # chunks of a long prompt attend to what came before
            attention = chunks * prefill_attention_ns(cost.costs, cost.params, each, seen)
        kv = round(decodes * self.mix.context)
        running = decodes + chunks
        return step_ns(cost.costs, cost.params, decodes, kv, tokens, chunks, attention, running, running) / 1e9

    def _carried(self, batch: float) -> float:
        """Requests per second with `batch` running all the time."""
        if batch <= 1:
            return 1.0 / float(np.nanmean(self.service_s))
        return batch / (self.mix.output * self.step_s(batch))

    def _limits(self) -> list[Limit]:
        options, mix = self.deployment.options, self.mix
        found = [self._limit("slots", options.max_num_seqs, "B = max_num_seqs")]
        capacity = self.deployment.capacity
        if capacity is not None:
            held = mix.context + capacity.block_size / 2
            found.append(
                self._limit("kv", capacity.usable_tokens / held, "B = usable tokens / (mean context + half a block)")
            )
        if self.deployment.batching.has_token_budget:
            batch = options.max_num_batched_tokens / (1 + mix.prompt / mix.output) * self.stages
            found.append(self._limit("token_budget", batch, "B (1 + P / O) = max_num_batched_tokens"))
        return found

    def _limit(self, name: str, batch: float, formula: str) -> Limit:
        batch = min(max(batch, 1.0), LARGEST_BATCH)
        return Limit(name, batch, self._carried(batch), formula)

    def _station(self) -> list[Limit]:
        cost, mix = self.deployment.cost, self.mix
        mean = cost.prefill_s + cost.prefill_per_token_s * mix.prompt
        return [Limit("station", 1.0, 1.0 / mean, "1 / mean prefill time")]

    # What users get --------------------------------------------------------------------------------------------------

    def batch_at(self, rate_per_s: float) -> float | None:
        """Requests that run at once at a rate (Little: B = rate x O T(B)); None where the replica can't carry it."""
        if rate_per_s >= self.capacity_per_s:
            return None
        low, high = 0.0, float(self.slots)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if rate_per_s * self.residence_s(middle) > middle else (low, middle)
        return high

    def residence_s(self, batch: float) -> float:
        """Time in service of a mean request with `batch` running, seconds."""
        if self.slots == 1 or self.stations:
            return float(np.nanmean(self.service_s))
        return self.mix.output * self.step_s(max(batch, 1.0))

    def wait_s(self, rate_per_s: float, replicas: int = 1) -> float | None:
        """Mean wait for a slot (Allen-Cunneen); None where the load is too high. rate_per_s : of all replicas together.

        replicas : servers behind one queue; a router that splits traffic evenly is as bad as replicas = 1 each.
        """
        servers, service = self.slots * replicas, self._service_s()
        if rate_per_s * service >= servers:
            return None
        ca, cs = self.mix.arrival_cv2, self._service_cv2()
        wait = erlang_c(servers, rate_per_s * service) / (servers / service - rate_per_s)
        return (ca + cs) / 2 * wait

    def _service_s(self) -> float:
        if self.stations:
            return 1.0 / self.capacity_per_s
        return self.slots / self.capacity_per_s

    def _service_cv2(self) -> float:
        if not self.stations:
            return self.mix.service_cv2
        cost = self.deployment.cost
        times = cost.prefill_s + cost.prefill_per_token_s * self.alone.prompts
        return 0.0 if cost.prefill_per_token_s == 0 else float(np.var(times) / np.mean(times) ** 2)

    def batch_within(self, tpot_s: float | None) -> int:
        """Most requests that may run so that a mean step keeps a TPOT target; 0 where not even one does."""
        low, high = 0, self.slots
        while low < high and tpot_s is not None:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.step_s(middle) <= tpot_s else (low, middle - 1)
        return high

    def replicas_by_means(self, rate_per_s: float, tpot_s: float | None = None) -> int | None:
        """What sizing without a queue answers: rate over what a replica carries within the TPOT target, rounded up."""
        batch = self.batch_within(tpot_s)
        return max(1, math.ceil(rate_per_s / self._carried(batch) - 1e-9)) if batch else None

    def fewest(self, rate_per_s: float | None, asked: Iterable[Objective] = ()) -> int:
        """Replicas below which no fleet can do: a utilisation above 1. 1 where there is no rate (a loop can't overload)."""
        return 1 if rate_per_s is None else max(1, math.ceil(rate_per_s / self.most_per_s(asked) - 1e-9))

    def most_per_s(self, asked: Iterable[Objective] = ()) -> float:
        """Requests per second of one replica that no queue can better, within a TPOT target that nearly all must keep.

        Infinite where prompts that are in the prefix cache cost nothing, which means do not know. Where admission may
        refuse, no more than the share asked for has to be served.
        """
        asked = tuple(asked)
        served = self._served_share(asked)
        if self.cached or not served:
            return math.inf
        strict = [one.limits_s["tpot_s"] for one in asked if one.part is None and one.share >= NEARLY_ALL and "tpot_s" in one.limits_s]
        batch = self.batch_within(min(strict, default=None))
        return (min(self.capacity_per_s, self._carried(batch)) if batch else self.capacity_per_s) / served

    def _served_share(self, asked: Iterable[Objective]) -> float:
        """Share of the requests that has to be served: all where none is refused, else at least what is asked of all.

        A percentile of TPOT is of some requests only, a class's objective of its own: neither says how many of all.
        """
        if self.deployment.admission.open:
            return 1.0
        return max((one.share for one in asked if one.part is None and set(one.limits_s) != {"tpot_s"}), default=0.0)

    def utilisation(self, rate_per_s: float, replicas: int, tpot_s: float | None = None) -> float | None:
        """Rate over what so many replicas carry (within the TPOT target, by means)."""
        batch = self.batch_within(tpot_s)
        return rate_per_s / (replicas * self._carried(batch)) if batch else None


class DecodeBounds(Bounds):
    """The same of a replica that only decodes: prompts come computed, so that no step holds one."""

    def step_s(self, batch: float) -> float:
        """Mean time of a step with `batch` requests decoding, seconds."""
        return self._step(self.deployment.cost, max(1, round(batch / self.stages)), 0.0, 0)

    def _carried(self, batch: float) -> float:
        return max(1.0, batch) / (self.mix.output * max(self.step_s(batch), 1e-9))

    def _limits(self) -> list[Limit]:
        return [one for one in super()._limits() if one.name != "token_budget"]


def prefill_bounds(deployment: Deployment, table: RequestTable) -> Bounds:
    """The same of a replica that only computes prompts: every answer is over with its first token."""
    ones = np.ones(len(table), dtype=np.int64)
    prompts = RequestTable.from_columns(
        arrival_ns=table.arrival_ns.copy(), prompt_tokens=table.prompt_tokens.copy(), output_tokens=ones, max_tokens=ones
    )
    return Bounds(deployment, prompts)


def erlang_c(servers: int, offered: float) -> float:
    """Probability that an arrival finds all servers of M/M/k busy. Source: Erlang (1917); Kleinrock (1975) 3.40."""
    blocking = 1.0
    for k in range(1, servers + 1):
        blocking = offered * blocking / (k + offered * blocking)
    return servers * blocking / (servers - offered * (1 - blocking))
