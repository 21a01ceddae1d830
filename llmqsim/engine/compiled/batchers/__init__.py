"""Which batching policy runs, as an argument of the kernels: a named tuple of its parameters, by whose type they are made.

`order` in it is the same of the ordering (compiled/orders).

`form_of` gives the tuple of a policy. A kernel that takes it is compiled anew for each type, and with it only what that
policy needs: the faces below (`draft_with`, `form_step`, ...) lead to its own kernels. In plain Python
(NUMBA_DISABLE_JIT=1) they look at the type when they are called. Arguments as in step/.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from numba.extending import overload

from llmqsim.engine.compiled import orders
from llmqsim.engine.deployment import Deployment
from llmqsim.policies.batching import (
    capped,
    continuous,
    multi_step,
    orca,
    reserving,
    sarathi,
    sglang,
    static,
    trtllm,
    vllm_v0,
)
from llmqsim.requests import RequestTable
from llmqsim.units import to_ns


class Continuous(NamedTuple):
    """vLLM V1."""

    order: Any


class ContinuousByRows(NamedTuple):
    """The same request by request: over pipeline stages, where not all who decode make a token in each step, or under an
    ordering that keeps an eye on each of them.
    """

    order: Any


class RankedContinuous(NamedTuple):
    """The same under an ordering that preempts."""

    order: Any


class RankedByRows(NamedTuple):
    """That request by request."""

    order: Any


class PartialPrefills(NamedTuple):
    """Several prompts share a step."""

    n: int
    long: int
    long_tokens: int
    order: Any


class VllmV0(NamedTuple):
    """vLLM up to 0.7."""

    spare_blocks: int
    order: Any


class Sarathi(NamedTuple):
    """Sarathi-Serve."""

    order: Any


class PrefillShare(NamedTuple):
    """A cap on the prompt tokens of a step."""

    share: float
    order: Any


class SloChunk(NamedTuple):
    """The largest chunk that keeps the TPOT targets of who decodes."""

    margin: float
    least: int
    order: Any


class MultiStep(NamedTuple):
    """The scheduler is called once for n steps. saved_ns : of each that does without."""

    n: int
    saved_ns: int
    order: Any


class ReservePredicted(NamedTuple):
    """Memory set aside for predicted answers. re_estimate : of the request table."""

    margin: float
    re_estimate: float
    order: Any


class Sglang(NamedTuple):
    """SGLang. start : share of the remaining output that is reserved at first."""

    start: float
    floor: float
    decay_steps: int
    clip_tokens: int
    retract_decode_steps: int
    order: Any


class GuaranteedNoEvict(NamedTuple):
    """TensorRT-LLM."""

    order: Any


class MaxUtilization(NamedTuple):
    """TensorRT-LLM."""

    order: Any


class Orca(NamedTuple):
    """Orca."""

    order: Any


class Static(NamedTuple):
    """Static and dynamic batching."""

    size: int
    max_wait_ns: int
    order: Any


class Kernels(NamedTuple):
    """What a batching policy's steps are made of. draft : fill a step; the others : the faces below."""

    draft: Any
    form: Any
    commit: Any
    stride: Any
    close: Any
    victim: Any


def _continuous(policy: continuous.Continuous, order: NamedTuple, servers: Deployment, _) -> NamedTuple:
    by_rows = servers.cost.pipeline_stages > 1 or orders.needs_rows(order)
    if servers.ordering.preempts:
        return RankedByRows(order) if by_rows else RankedContinuous(order)
    return ContinuousByRows(order) if by_rows else Continuous(order)


def _multi_step(policy: multi_step.MultiStep, order: NamedTuple, servers: Deployment, _) -> MultiStep:
    return MultiStep(policy.n, round(to_ns(servers.host.per_step_s) * policy.saved), order)


def _reserving(policy: reserving.ReservePredicted, order: NamedTuple, _, table: RequestTable) -> ReservePredicted:
    return ReservePredicted(float(policy.margin), float(table.re_estimate), order)


def _sglang(policy: sglang.Sglang, order: NamedTuple, *_) -> Sglang:
    start = float(policy.start_ratio * policy.conservativeness)
    whole = (int(policy.decay_steps), int(policy.clip_tokens), int(policy.retract_decode_steps))
    return Sglang(start, float(policy.floor), *whole, order)


_FORMS = {
    continuous.Continuous: ("continuous", _continuous),
    continuous.PartialPrefills: (
        "partial_prefills",
        lambda p, its, *_: PartialPrefills(p.n, p.long, p.long_tokens, its),
    ),
    capped.PrefillShare: ("capped", lambda policy, order, *_: PrefillShare(float(policy.share), order)),
    capped.SloChunk: ("capped", lambda policy, order, *_: SloChunk(float(policy.margin), policy.least, order)),
    multi_step.MultiStep: ("multi_step", _multi_step),
    reserving.ReservePredicted: ("reserving", _reserving),
    vllm_v0.VllmV0: ("vllm_v0", lambda policy, order, *_: VllmV0(policy.spare_blocks, order)),
    sarathi.Sarathi: ("sarathi", lambda policy, order, *_: Sarathi(order)),
    sglang.Sglang: ("sglang", _sglang),
    trtllm.GuaranteedNoEvict: ("trtllm", lambda policy, order, *_: GuaranteedNoEvict(order)),
    trtllm.MaxUtilization: ("trtllm", lambda policy, order, *_: MaxUtilization(order)),
    orca.Orca: ("orca", lambda policy, order, *_: Orca(order)),
    static.Static: ("static", lambda policy, order, *_: Static(policy.size, to_ns(policy.max_wait_s), order)),
}
"""policy -> (module of its kernels, what makes the named tuple of policy, ordering's tuple, deployment and requests)"""
_SORTED = (continuous.PartialPrefills, sglang.Sglang, static.Static)
"""those that pass over the head of the queue, send requests to its back, or look at all of it"""
_RANKED = (continuous.Continuous,)
"""those that have a compiled form for orderings that preempt"""
_KERNELS: dict[type, Kernels] = {}


def knows(policy: Any) -> bool:
    """Has a batching policy a compiled form?"""
    return type(policy) in _FORMS


def takes_ranks(policy: Any) -> bool:
    """Has it a compiled form for orderings that preempt?"""
    return type(policy) in _RANKED


def form_of(servers: Deployment, table: RequestTable) -> NamedTuple:
    """The kernels' argument for a deployment's batching policy and ordering; imports their kernels."""
    order = orders.form_of(servers, table)
    module, make = _FORMS[type(servers.batching)]
    form = make(servers.batching, order, servers, table)
    module = {RankedContinuous: "ranked_group", RankedByRows: "ranked"}.get(type(form), module)
    import_module(f"llmqsim.engine.compiled.batchers.{module}")
    return form


def needs_sorted_queue(policy: Any) -> bool:
    """Does it ask more of the waiting queue than who is next?"""
    return type(policy) in _SORTED


def made_of(batcher: type, kernels: Kernels) -> None:
    """A module of kernels says which they are."""
    _KERNELS[batcher] = kernels


def draft_with(batcher, table, run, arena, costs, params, replica, step, now):
    """Fill a step: the `form` of a batching policy."""
    _KERNELS[type(batcher)].draft(batcher, table, run, arena, costs, params, replica, step, now)


def choose_victim(batcher, table, run, arena, replica, now):
    """Who gives way when memory is short: a slot."""
    return _KERNELS[type(batcher)].victim(batcher, table, run, arena, replica, now)


def form_step(batcher, table, run, arena, costs, params, replica, now):
    """Form one step; False when nobody can have a token."""
    return _KERNELS[type(batcher)].form(batcher, table, run, arena, costs, params, replica, now)


def commit_step(batcher, table, run, arena, params, replica):
    """The oldest step ends."""
    _KERNELS[type(batcher)].commit(batcher, table, run, arena, params, replica)


def stride_on(batcher, table, run, arena, costs, params, replica, commit_limit, form_limit):
    """Form and commit as many steps as can be made in one loop; returns how many."""
    return _KERNELS[type(batcher)].stride(batcher, table, run, arena, costs, params, replica, commit_limit, form_limit)


def close_steps(batcher, run, arena, replica):
    """Bring slots and steps in flight up to date, request by request."""
    _KERNELS[type(batcher)].close(run, arena, replica)


@overload(draft_with, inline="always")
def _draft_with(batcher, table, run, arena, costs, params, replica, step, now):
    kernel = _KERNELS[batcher.instance_class].draft
    return lambda batcher, table, run, arena, costs, params, replica, step, now: kernel(
        batcher, table, run, arena, costs, params, replica, step, now
    )


@overload(choose_victim, inline="always")
def _choose_victim(batcher, table, run, arena, replica, now):
    kernel = _KERNELS[batcher.instance_class].victim
    return lambda batcher, table, run, arena, replica, now: kernel(batcher, table, run, arena, replica, now)


@overload(form_step, inline="always")
def _form_step(batcher, table, run, arena, costs, params, replica, now):
    kernel = _KERNELS[batcher.instance_class].form
    return lambda batcher, table, run, arena, costs, params, replica, now: kernel(
        batcher, table, run, arena, costs, params, replica, now
    )


@overload(commit_step, inline="always")
def _commit_step(batcher, table, run, arena, params, replica):
    kernel = _KERNELS[batcher.instance_class].commit
    return lambda batcher, table, run, arena, params, replica: kernel(batcher, table, run, arena, params, replica)


@overload(stride_on, inline="always")
def _stride_on(batcher, table, run, arena, costs, params, replica, commit_limit, form_limit):
    kernel = _KERNELS[batcher.instance_class].stride
    return lambda batcher, table, run, arena, costs, params, replica, commit_limit, form_limit: kernel(
        batcher, table, run, arena, costs, params, replica, commit_limit, form_limit
    )


@overload(close_steps, inline="always")
def _close_steps(batcher, run, arena, replica):
    kernel = _KERNELS[batcher.instance_class].close
    return lambda batcher, run, arena, replica: kernel(run, arena, replica)
