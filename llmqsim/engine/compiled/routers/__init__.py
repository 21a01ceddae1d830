"""Which kind of router sends requests, as an argument of the kernels: by its type they are made, as by that of a batcher.

`Counting` is small, so that runs with the usual routers compile no more than they need; `Weighing` knows the others. The
faces below lead to their kernels; `forms.py` says what each policy is made of. Arguments as in step/.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba.extending import overload


class Counting(NamedTuple):
    """Looks at nothing, or at requests in flight."""

    code: int


class Weighing(NamedTuple):
    """Looks at what replicas report, at work in flight, or at where prefixes have been; or stands behind a door."""

    code: int


class Kernels(NamedTuple):
    """What a kind of router does: the faces below."""

    choose: Any
    look: Any
    admit: Any
    asks: Any
    ended: Any
    next_report: Any
    hear_reports: Any


_KERNELS: dict[type, Kernels] = {}


def made_of(router: type, kernels: Kernels) -> None:
    """A module of kernels says which they are."""
    _KERNELS[router] = kernels


def choose(router, table, run, arena, costs, row):
    """The replica that a request goes to now; the router notes that it sends it there."""
    return _KERNELS[type(router)].choose(table, run, arena, costs, row)


def look(router, table, run, arena, now):
    """The router is about to choose; all replicas have been brought to this instant."""
    _KERNELS[type(router)].look(table, run, arena, now)


def admit(router, table, run, arena, costs, row, now):
    """May a request that arrives now enter? If not, its outcome is written."""
    return _KERNELS[type(router)].admit(table, run, arena, costs, row, now)


def asks(router, run, arena):
    """Has the policy itself to be asked where a request goes, and not been yet?"""
    return _KERNELS[type(router)].asks(run, arena)


def ended(router, table, run, arena, row):
    """A request is not at its replica any more, nor on its way there."""
    _KERNELS[type(router)].ended(table, run, arena, row)


def next_report(router, run, arena):
    """When replicas report next, NEVER where they don't."""
    return _KERNELS[type(router)].next_report(run, arena)


def hear_reports(router, table, run, arena, now):
    """Replicas report."""
    _KERNELS[type(router)].hear_reports(table, run, arena, now)


@overload(choose, inline="always")
def _choose(router, table, run, arena, costs, row):
    kernel = _KERNELS[router.instance_class].choose
    return lambda router, table, run, arena, costs, row: kernel(table, run, arena, costs, row)


@overload(look, inline="always")
def _look(router, table, run, arena, now):
    kernel = _KERNELS[router.instance_class].look
    return lambda router, table, run, arena, now: kernel(table, run, arena, now)


@overload(admit, inline="always")
def _admit(router, table, run, arena, costs, row, now):
    kernel = _KERNELS[router.instance_class].admit
    return lambda router, table, run, arena, costs, row, now: kernel(table, run, arena, costs, row, now)


@overload(asks, inline="always")
def _asks(router, run, arena):
    kernel = _KERNELS[router.instance_class].asks
    return lambda router, run, arena: kernel(run, arena)


@overload(ended, inline="always")
def _ended(router, table, run, arena, row):
    kernel = _KERNELS[router.instance_class].ended
    return lambda router, table, run, arena, row: kernel(table, run, arena, row)


@overload(next_report, inline="always")
def _next_report(router, run, arena):
    kernel = _KERNELS[router.instance_class].next_report
    return lambda router, run, arena: kernel(run, arena)


@overload(hear_reports, inline="always")
def _hear_reports(router, table, run, arena, now):
    kernel = _KERNELS[router.instance_class].hear_reports
    return lambda router, table, run, arena, now: kernel(table, run, arena, now)
