"""Which batching policy runs, as an argument of the kernels: a named tuple of its parameters, by whose type they are made.

`form_of` gives the tuple of a policy. A kernel that takes it is compiled anew for each type, and with it only what that
policy needs: the faces below (`draft_with`, `form_step`, ...) lead to its own kernels. In plain Python
(NUMBA_DISABLE_JIT=1) they look at the type when they are called. Arguments as in step/kernels.py.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from numba.extending import overload

from llmqsim.policies.batching import continuous, orca, sarathi, sglang, static, trtllm, vllm_v0
from llmqsim.units import to_ns


class Continuous(NamedTuple):
    """vLLM V1."""

    code: int


class PipelinedContinuous(NamedTuple):
    """The same over pipeline stages, where not all who decode make a token in each step."""

    code: int


class PartialPrefills(NamedTuple):
    """Several prompts share a step."""

    n: int
    long: int
    long_tokens: int


class VllmV0(NamedTuple):
    """vLLM up to 0.7."""

    spare_blocks: int


class Sarathi(NamedTuple):
    """Sarathi-Serve."""

    code: int


class Sglang(NamedTuple):
    """SGLang. start : share of the remaining output that is reserved at first."""

    start: float
    floor: float
    decay_steps: int
    clip_tokens: int
    retract_decode_steps: int


class GuaranteedNoEvict(NamedTuple):
    """TensorRT-LLM."""

    code: int


class MaxUtilization(NamedTuple):
    """TensorRT-LLM."""

    code: int


class Orca(NamedTuple):
    """Orca."""

    code: int


class Static(NamedTuple):
    """Static and dynamic batching."""

    size: int
    max_wait_ns: int


class Kernels(NamedTuple):
    """What a batching policy's steps are made of. draft : fill a step; the others : the faces below."""

    draft: Any
    form: Any
    commit: Any
    stride: Any
    close: Any


def _sglang(policy: sglang.Sglang) -> Sglang:
    start = float(policy.start_ratio * policy.conservativeness)
    whole = (int(policy.decay_steps), int(policy.clip_tokens), int(policy.retract_decode_steps))
    return Sglang(start, float(policy.floor), *whole)


_FORMS = {
    continuous.Continuous: ("continuous", lambda policy: Continuous(0)),
    continuous.PartialPrefills: ("partial_prefills", lambda p: PartialPrefills(p.n, p.long, p.long_tokens)),
    vllm_v0.VllmV0: ("vllm_v0", lambda policy: VllmV0(policy.spare_blocks)),
    sarathi.Sarathi: ("sarathi", lambda policy: Sarathi(0)),
    sglang.Sglang: ("sglang", _sglang),
    trtllm.GuaranteedNoEvict: ("trtllm", lambda policy: GuaranteedNoEvict(0)),
    trtllm.MaxUtilization: ("trtllm", lambda policy: MaxUtilization(0)),
    orca.Orca: ("orca", lambda policy: Orca(0)),
    static.Static: ("static", lambda policy: Static(policy.size, to_ns(policy.max_wait_s))),
}
"""policy -> (module of its kernels, the named tuple of its parameters)"""
_SORTED = (continuous.PartialPrefills, sglang.Sglang, static.Static)
"""those that pass over the head of the queue, send requests to its back, or look at all of it"""
_KERNELS: dict[type, Kernels] = {}


def knows(policy: Any) -> bool:
    """Has a batching policy a compiled form?"""
    return type(policy) in _FORMS


def form_of(policy: Any, stages: int) -> NamedTuple:
    """The kernels' argument for a batching policy; imports its kernels. stages : of a pipeline."""
    module, parameters = _FORMS[type(policy)]
    import_module(f"llmqsim.engine.compiled.batchers.{module}.kernels")
    form = parameters(policy)
    return PipelinedContinuous(0) if stages > 1 and isinstance(form, Continuous) else form


def needs_sorted_queue(policy: Any) -> bool:
    """Does it ask more of the waiting queue than who is next?"""
    return type(policy) in _SORTED


def made_of(batcher: type, kernels: Kernels) -> None:
    """A module of kernels says which they are."""
    _KERNELS[batcher] = kernels


def draft_with(batcher, table, arena, base, step, now):
    """Fill a step: the `form` of a batching policy."""
    _KERNELS[type(batcher)].draft(batcher, table, arena, base, step, now)


def form_step(batcher, table, arena, costs, params, base, now):
    """Form one step; False when nobody can have a token."""
    return _KERNELS[type(batcher)].form(batcher, table, arena, costs, params, base, now)


def commit_step(batcher, table, arena, params, base):
    """The oldest step ends."""
    _KERNELS[type(batcher)].commit(table, arena, params, base)


def stride_on(batcher, table, arena, costs, params, base, commit_limit, form_limit):
    """Form and commit as many steps as can be made in one loop; returns how many."""
    return _KERNELS[type(batcher)].stride(table, arena, costs, params, base, commit_limit, form_limit)


def close_steps(batcher, arena, base):
    """Bring slots and steps in flight up to date, request by request."""
    _KERNELS[type(batcher)].close(arena, base)


@overload(draft_with, inline="always")
def _draft_with(batcher, table, arena, base, step, now):
    kernel = _KERNELS[batcher.instance_class].draft
    return lambda batcher, table, arena, base, step, now: kernel(batcher, table, arena, base, step, now)


@overload(form_step, inline="always")
def _form_step(batcher, table, arena, costs, params, base, now):
    kernel = _KERNELS[batcher.instance_class].form
    return lambda batcher, table, arena, costs, params, base, now: kernel(
        batcher, table, arena, costs, params, base, now
    )


@overload(commit_step, inline="always")
def _commit_step(batcher, table, arena, params, base):
    kernel = _KERNELS[batcher.instance_class].commit
    return lambda batcher, table, arena, params, base: kernel(table, arena, params, base)


@overload(stride_on, inline="always")
def _stride_on(batcher, table, arena, costs, params, base, commit_limit, form_limit):
    kernel = _KERNELS[batcher.instance_class].stride
    return lambda batcher, table, arena, costs, params, base, commit_limit, form_limit: kernel(
        table, arena, costs, params, base, commit_limit, form_limit
    )


@overload(close_steps, inline="always")
def _close_steps(batcher, arena, base):
    kernel = _KERNELS[batcher.instance_class].close
    return lambda batcher, arena, base: kernel(arena, base)
