"""Which ordering runs: a named tuple of its parameters within that of the batching policy, by whose type kernels are made.

An ordering with fixed keys has nothing to do here: its queue is sorted once and for all (compiled/queue). One that looks
again has a page of kernels: the key of a request as things are now, and what it does when requests join or leave the
queue, before a step is formed and after. The faces below lead to them, as those of compiled/batchers do to a batching
policy's. order : the named tuple; slot : of a waiting request, -1 for a new one; other arguments as in step/.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from llmqsim.engine.deployment import Deployment
from llmqsim.policies.ordering import cache, deadline, service, size
from llmqsim.policies.protocol import FixedKeys, OrderingTable
from llmqsim.requests import RequestTable


class Fixed(NamedTuple):
    """Keys that are fixed when a request joins."""

    code: int


class FixedRanked(NamedTuple):
    """The same where running requests have a place among those that wait."""

    code: int


class Srpt(NamedTuple):
    """Shortest remaining processing time. per_unit_ns : of a token, 0 where nobody ages."""

    by_total: bool
    per_unit_ns: float
    re_estimate: float


class GoodputFirst(NamedTuple):
    """Who can still meet its SLO. decode_ns, decode_token : of a decode step, see engine/costs."""

    review_steps: int
    decode_ns: int
    decode_token: int
    re_estimate: float


class Vtc(NamedTuple):
    """Fair shares of tenants."""

    prompt_weight: int
    output_weight: int


class LongestPrefix(NamedTuple):
    """What is cached."""

    most_waiting: int


class LearnedRank(NamedTuple):
    """vllm-ltr."""

    starvation: int
    period: int


class Mlfq(NamedTuple):
    """FastServe."""

    quantum_ns: int
    levels: int
    starvation_ns: int


OF_TENANTS = ("served", "queued_of", "members_of", "first_of", "rest_of", "active", "listed")
"""lists of a replica that vtc keeps by tenant (world/replica.py); active: a list of those that may have members in the group"""


class Kernels(NamedTuple):
    """What an ordering is made of, by the names of the faces below."""

    key_of: Any
    late_key_of: Any
    joined: Any
    stand: Any
    lifted: Any
    stand_again: Any
    left: Any
    look_again: Any
    catch_up: Any
    ran: Any
    may_stride: Any
    strode: Any


def _srpt(policy: size.Srpt, table: RequestTable) -> Srpt:
    return Srpt(policy.by == "total", float(policy.per_unit_ns), float(table.re_estimate))


def _goodput_first(policy: deadline.GoodputFirst, table: RequestTable) -> GoodputFirst:
    return GoodputFirst(policy.review_steps, *policy.costs.decode_step_ns(policy.batch), float(table.re_estimate))


def _mlfq(policy: service.Mlfq, table: RequestTable) -> Mlfq:
    return Mlfq(policy.first_quantum_ns, policy.levels, policy.starvation_ns)


_FORMS = {
    size.Srpt: ("srpt", _srpt),
    deadline.GoodputFirst: ("goodput_first", _goodput_first),
    service.Vtc: ("vtc", lambda policy, table: Vtc(policy.prompt_weight, policy.output_weight)),
    cache.LongestPrefix: ("longest_prefix", lambda policy, table: LongestPrefix(policy.most_waiting)),
    service.LearnedRank: ("learned_rank", lambda policy, table: LearnedRank(policy.starvation, policy.period)),
    service.Mlfq: ("mlfq", _mlfq),
}
"""ordering that looks again -> (module of its kernels, what makes its named tuple)"""
_KERNELS: dict[type, Kernels] = {}


def knows(ordering: Any, table: RequestTable) -> bool:
    """Has an ordering a compiled form?"""
    return type(ordering) in _FORMS or (not ordering.reviews and keys_of(ordering, table) is not None)


def keys_of(ordering: Any, table: RequestTable) -> FixedKeys | None:
    """The keys with which requests join the queue; zeros where the ordering gives them as they come."""
    if type(ordering) in _FORMS:
        nothing = np.zeros(len(table), np.int64)
        return FixedKeys(nothing, nothing, slope=0)
    return ordering.fixed_keys(OrderingTable(table.columns()))


def form_of(servers: Deployment, table: RequestTable) -> NamedTuple:
    """The kernels' argument for a deployment's ordering; imports its kernels."""
    ordering = servers.ordering
    module, make = _FORMS.get(type(ordering), ("fixed", lambda *_: FixedRanked(0) if ordering.preempts else Fixed(0)))
    import_module(f"llmqsim.engine.compiled.orders.{module}")
    return make(ordering, table)


def needs_times(ordering: Any) -> bool:
    """Does it ask how long prompts take?"""
    return isinstance(ordering, deadline.GoodputFirst | service.Mlfq)


def needs_rows(order: NamedTuple) -> bool:
    """Does it keep words for each request, and look at every one in every step?"""
    return isinstance(order, LearnedRank | Mlfq)


def entries(order: NamedTuple) -> int:
    """Entries of each row in queues: a second one where waits are timed (common.py)."""
    return 2 if needs_rows(order) else 1


def tenants(order: NamedTuple, table: RequestTable) -> int:
    """How many tenants are counted."""
    return int(table.tenant_id.max(initial=-1)) + 1 if isinstance(order, Vtc) else 0


def overflows(order: NamedTuple, table: RequestTable) -> bool:
    """Could counters of tenants outgrow a word?"""
    if not isinstance(order, Vtc):
        return False
    prompts, outputs = int(table.prompt_tokens.sum()), int(table.output_tokens.sum())
    return order.prompt_weight * prompts + order.output_weight * (outputs + len(table)) >= 1 << 60


def made_of(order: type, kernels: Kernels) -> None:
    """A module of kernels says which they are."""
    _KERNELS[order] = kernels


def key_of(order, table, run, arena, replica, row, slot, now):
    """(level, value) of a request as things are now: policies/protocol.Ordering.key_at."""
    return _KERNELS[type(order)].key_of(order, table, run, arena, replica, row, slot, now)


def late_key_of(order, table, run, arena, replica, row, slot, now):
    """(level, value) of one that goes to the back."""
    return _KERNELS[type(order)].late_key_of(order, table, run, arena, replica, row, slot, now)


def joined(order, table, run, arena, replica, row, slot, now):
    """A request is about to join the queue, new or preempted."""
    _KERNELS[type(order)].joined(order, table, run, arena, replica, row, slot, now)


def stand(order, table, run, arena, replica, row, slot, now):
    """A request stands in the queue with its key as things are now."""
    _KERNELS[type(order)].stand(order, table, run, arena, replica, row, slot, now)


def lifted(order, table, run, arena, replica, row):
    """A request was taken off the top for a moment."""
    _KERNELS[type(order)].lifted(order, table, run, arena, replica, row)


def stand_again(order, table, run, arena, replica, row, rank):
    """It waits where it did."""
    _KERNELS[type(order)].stand_again(order, table, run, arena, replica, row, rank)


def left(order, table, run, arena, replica, row, entered):
    """A request has left the queue, into a step or because it ended."""
    _KERNELS[type(order)].left(order, table, run, arena, replica, row, entered)


def look_again(order, table, run, arena, replica, now):
    """A step is about to be formed."""
    _KERNELS[type(order)].look_again(order, table, run, arena, replica, now)


def catch_up(order, table, run, arena, replica, now):
    """The queue is about to be read, or a step has been formed: preempted requests stand where they belong."""
    _KERNELS[type(order)].catch_up(order, table, run, arena, replica, now)


def ran(order, table, run, arena, replica, step, now):
    """A step was formed."""
    _KERNELS[type(order)].ran(order, table, run, arena, replica, step, now)


def may_stride(order, run, arena, replica):
    """Can steps of the group alone do without a look in between?"""
    return _KERNELS[type(order)].may_stride(order, run, arena, replica)


def strode(order, run, arena, replica, steps):
    """So many steps of the group alone were formed."""
    _KERNELS[type(order)].strode(order, run, arena, replica, steps)


@overload(key_of, inline="always")
def _key_of(order, table, run, arena, replica, row, slot, now):
    kernel = _KERNELS[order.instance_class].key_of
    return lambda order, table, run, arena, replica, row, slot, now: kernel(
        order, table, run, arena, replica, row, slot, now
    )


@overload(late_key_of, inline="always")
def _late_key_of(order, table, run, arena, replica, row, slot, now):
    kernel = _KERNELS[order.instance_class].late_key_of
    return lambda order, table, run, arena, replica, row, slot, now: kernel(
        order, table, run, arena, replica, row, slot, now
    )


@overload(joined, inline="always")
def _joined(order, table, run, arena, replica, row, slot, now):
    kernel = _KERNELS[order.instance_class].joined
    return lambda order, table, run, arena, replica, row, slot, now: kernel(
        order, table, run, arena, replica, row, slot, now
    )


@overload(stand, inline="always")
def _stand(order, table, run, arena, replica, row, slot, now):
    kernel = _KERNELS[order.instance_class].stand
    return lambda order, table, run, arena, replica, row, slot, now: kernel(
        order, table, run, arena, replica, row, slot, now
    )


@overload(lifted, inline="always")
def _lifted(order, table, run, arena, replica, row):
    kernel = _KERNELS[order.instance_class].lifted
    return lambda order, table, run, arena, replica, row: kernel(order, table, run, arena, replica, row)


@overload(stand_again, inline="always")
def _stand_again(order, table, run, arena, replica, row, rank):
    kernel = _KERNELS[order.instance_class].stand_again
    return lambda order, table, run, arena, replica, row, rank: kernel(order, table, run, arena, replica, row, rank)


@overload(left, inline="always")
def _left(order, table, run, arena, replica, row, entered):
    kernel = _KERNELS[order.instance_class].left
    return lambda order, table, run, arena, replica, row, entered: kernel(
        order, table, run, arena, replica, row, entered
    )


@overload(look_again, inline="always")
def _look_again(order, table, run, arena, replica, now):
    kernel = _KERNELS[order.instance_class].look_again
    return lambda order, table, run, arena, replica, now: kernel(order, table, run, arena, replica, now)


@overload(catch_up, inline="always")
def _catch_up(order, table, run, arena, replica, now):
    kernel = _KERNELS[order.instance_class].catch_up
    return lambda order, table, run, arena, replica, now: kernel(order, table, run, arena, replica, now)


@overload(ran, inline="always")
def _ran(order, table, run, arena, replica, step, now):
    kernel = _KERNELS[order.instance_class].ran
    return lambda order, table, run, arena, replica, step, now: kernel(order, table, run, arena, replica, step, now)


@overload(may_stride, inline="always")
def _may_stride(order, run, arena, replica):
    kernel = _KERNELS[order.instance_class].may_stride
    return lambda order, run, arena, replica: kernel(order, run, arena, replica)


@overload(strode, inline="always")
def _strode(order, run, arena, replica, steps):
    kernel = _KERNELS[order.instance_class].strode
    return lambda order, run, arena, replica, steps: kernel(order, run, arena, replica, steps)
