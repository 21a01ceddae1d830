"""What each routing policy is made of, and what it needs in the arena."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from llmqsim.engine.compiled.prefix import Keys, number_keys
from llmqsim.engine.compiled.routers import Counting, Weighing
from llmqsim.engine.compiled.routers.doors import DOORS, reason
from llmqsim.engine.compiled.world import router as at
from llmqsim.engine.compiled.world.limits import NEVER
from llmqsim.engine.deployment import Deployment
from llmqsim.policies.routing import affinity, blind, groups, load
from llmqsim.requests import RequestTable


@dataclass(frozen=True)
class Form:
    """A routing policy's choice.

    lists : replicas that a request may go to, most preferred first where they are equal; int64[lists, 1 + replicas], their
    number first. list_of : int64[rows], which of these lists; None: the only one. load : what makes one of them the better
    choice (world/router.py). count_own : does what was sent since the last report count, too? in_turn : one after the other,
    whatever they have. sessions : int64[rows], which session a request belongs to, -1: none. weights : of the policy.
    """

    lists: np.ndarray
    list_of: np.ndarray | None = None
    load: int = at.OUTSTANDING
    count_own: bool = False
    in_turn: bool = False
    sessions: np.ndarray | None = None
    weights: tuple[float, ...] = ()

    @property
    def picks(self) -> np.ndarray | None:
        """The only replica that each request may go to, int64[rows]; None where there is a choice, or a turn."""
        if self.in_turn or self.list_of is None or (self.lists[:, 0] > 1).any():
            return None
        return self.lists[self.list_of, 1]


def _lists(groups: Sequence[Sequence[int]]) -> np.ndarray:
    """Lists of replicas as an array."""
    longest = max(map(len, groups))
    return np.array([[len(group), *group, *[-1] * (longest - len(group))] for group in groups])


def _any(replicas: int, **told: Any) -> Form:
    """All replicas."""
    return Form(_lists([range(replicas)]), **told)


def _drawn(policy: blind.Random, table: RequestTable, replicas: int) -> Form:
    places = blind.place_of(table.draws[:, 0], replicas)
    return Form(_lists([[index] for index in range(replicas)]), places)


def _two(policy: load.PowerOfTwo, table: RequestTable, replicas: int) -> Form:
    first, second = policy.pair(table.draws[:, 0], table.draws[:, 1], replicas)
    pairs, which = np.unique(first * replicas + second, return_inverse=True)
    return Form(np.stack([np.full(len(pairs), 2), pairs // replicas, pairs % replicas], axis=1), which)


def _by_class(policy: groups.ByClass, table: RequestTable, replicas: int) -> Form:
    every = range(replicas)
    own = [sorted(set(policy.group_of(name, every) or every)) for name in table.classes]
    return Form(_lists(own), table.class_id)


def _by_length(policy: groups.ByLength, table: RequestTable, replicas: int) -> Form:
    own = _lists([sorted(set(group)) for group in policy.groups])
    return Form(own, policy.group_of(table.prompt_tokens, table.predicted_tokens))


def _sticky(policy: affinity.SessionSticky, table: RequestTable, replicas: int) -> Form:
    if policy.by == "tenant":
        session = table.tenant_id
    elif table.prefixes is None:
        session = np.full(len(table), -1)
    else:
        first, end = table.prefixes.offsets[:-1], table.prefixes.offsets[1:]
        session = np.full(len(table), -1)
        session[first < end] = table.prefixes.hashes[first[first < end]]
    known, numbers = np.unique(session, return_inverse=True)
    return _any(replicas, sessions=numbers - (known[:1] < 0).sum())


ROUTERS: dict[type, Callable[[Any, RequestTable, int], Form]] = {
    blind.RoundRobin: lambda policy, table, replicas: _any(replicas, in_turn=True),
    blind.Random: _drawn,
    load.LeastOutstanding: lambda policy, table, replicas: _any(replicas),
    load.PowerOfTwo: _two,
    load.LeastLoaded: lambda policy, table, replicas: _any(replicas, load=at.REQUESTS, count_own=policy.count_own),
    load.LeastKv: lambda policy, table, replicas: _any(replicas, load=at.BLOCKS, count_own=policy.count_own),
    load.LeastPredictedWork: lambda policy, table, replicas: _any(
        replicas, load=at.WORK, weights=(policy.prompt_weight,)
    ),
    affinity.PrefixAffinity: lambda policy, table, replicas: _any(
        replicas, load=at.MATCH, weights=(policy.affinity_weight, policy.load_weight)
    ),
    affinity.SessionSticky: _sticky,
    groups.ByClass: _by_class,
    groups.ByLength: _by_length,
}
"""policy -> its form over the requests of a run"""


class Router:
    """The router of a run, and the door before it."""

    def __init__(self, servers: Deployment, table: RequestTable):
        policy, replicas, period_ns = servers.routing, servers.replicas, servers.signal_age_ns
        if type(policy) not in ROUTERS:
            self.form = _any(replicas, load=at.ASKED)
        elif replicas == 1 and not period_ns:  # there is nothing to choose, nor to hear
            self.form = _any(1, in_turn=True)
        else:
            self.form = ROUTERS[type(policy)](policy, table, replicas)
        self.door, self._reason = DOORS[type(servers.admission)](servers.admission), reason(servers.admission)
        self.picks = self.form.picks
        self.reports = self.form.load in (at.REQUESTS, at.BLOCKS, at.ASKED) or self.door.reads_reports
        self._rows, self._replicas = len(table), replicas
        self._sessions = 0 if self.form.sessions is None else int(self.form.sessions.max(initial=-1)) + 1
        self.period_ns = period_ns if self.reports else 0
        matches = self.form.load == at.MATCH and table.prefixes is not None
        self._keys: Keys | None = number_keys(table.prefixes) if matches else None

    @property
    def kind(self) -> NamedTuple:
        """The kernels' argument; imports its kernels."""
        counts = self.form.load == at.OUTSTANDING and self.door.kind == at.OPEN
        kind, module = (Counting, "counting") if counts else (Weighing, "weighing")
        import_module(f"llmqsim.engine.compiled.routers.{module}")
        return kind(0)

    @property
    def listens(self) -> bool:
        """Does it have to know which requests have ended?"""
        return self.form.load == at.WORK or self.period_ns > 0 or self.door.kind == at.IN_TIME

    @property
    def asks(self) -> bool:
        """Is the policy itself asked, because it has no compiled form?"""
        return self.form.load == at.ASKED

    @property
    def is_blind(self) -> bool:
        """Does it look at no replica, so that requests can have theirs before the clock gets there?"""
        return self.door.kind == at.OPEN and (self.form.in_turn or self.picks is not None)

    @property
    def floats(self) -> tuple[float, ...]:
        """What it needs beside whole numbers."""
        return *self.form.weights, *self.door.limits

    def deal(self, rows: np.ndarray, turn: int) -> np.ndarray:
        """Replicas of these rows; `turn` have been sent before them. Only of a blind router."""
        return self.picks[rows] if self.picks is not None else (turn + np.arange(len(rows))) % self._replicas

    def sizes(self) -> dict[str, int]:
        """Words of each region."""
        form, keys, count = self.form, self._keys, self._replicas
        memory = at.Memory.words + (keys.numbers if keys else 0) * at.Remembered.words
        return {
            "router": at.Router.words,
            "router_lists": form.lists.size,
            "router_list_of": 0 if form.list_of is None else self._rows,
            "router_session_of": 0 if form.sessions is None else self._rows,
            "router_places": 0 if form.sessions is None else self._sessions,
            "router_work": at.Work.words * count if form.load == at.WORK else 0,
            "router_reports": at.Report.words * count if self.reports else 0,
            "router_since": at.Since.words * count if self.reports else 0,
            "router_blocks_of": len(keys.offsets) if keys else 0,
            "router_blocks": len(keys.ids) if keys else 0,
            "router_ends": at.Line.words * count + at.End.words * self._rows if self.door.kind == at.IN_TIME else 0,
            "router_memory": memory * count if form.load == at.MATCH else 0,
        }

    def fill(self, arena: np.ndarray, place: dict[str, int], floats: int) -> None:
        """Write it into the arena. floats : where `floats` lie in the step costs."""
        form, router = self.form, at.Router(arena, place["router"])
        arena[place["router_lists"] :][: form.lists.size] = form.lists.ravel()
        router.set(
            load=form.load,
            count_own=form.count_own,
            all=place["router_lists"],
            work=place["router_work"],
            reports=place["router_reports"] if self.reports else 0,
            since=place["router_since"],
            period_ns=self.period_ns,
            report_ns=NEVER,
            reported_ns=-1,
            choice=-1,
            weights=floats,
            door=self.door.kind,
            reason=self._reason,
            most=self.door.most,
            window_ns=self.door.window_ns,
            limits=floats + len(form.weights),
        )
        self._fill_rows(router, arena, place)
        if self.door.kind == at.IN_TIME:
            router.ends = first = place["router_ends"]
            router.ended = first + at.Line.words * self._replicas
            at.Line.columns(arena[first : router.ended])["first_row"][:] = -1
        if form.load == at.MATCH:
            self._fill_memory(router, arena, place)

    def _fill_rows(self, router: at.Router, arena: np.ndarray, place: dict[str, int]) -> None:
        """What is known of each request."""
        form = self.form
        if form.list_of is not None:
            router.list_of = first = place["router_list_of"]
            arena[first : first + self._rows] = place["router_lists"] + form.list_of * form.lists.shape[1]
        if form.sessions is not None:
            router.session_of = first = place["router_session_of"]
            arena[first : first + self._rows] = form.sessions
            router.places = first = place["router_places"]
            arena[first : first + self._sessions] = -1

    def _fill_memory(self, router: at.Router, arena: np.ndarray, place: dict[str, int]) -> None:
        """Nothing has been sent yet."""
        first, keys = place["router_memory"], self._keys
        numbers = keys.numbers if keys else 0
        router.numbers, router.memory = numbers, first
        for index in range(self._replicas):
            memory = first + index * (at.Memory.words + numbers * at.Remembered.words)
            at.Memory(arena, memory).set(oldest=memory, newest=memory)
        if keys:
            router.blocks_of, router.blocks = place["router_blocks_of"], place["router_blocks"]
            arena[place["router_blocks_of"] :][: len(keys.offsets)] = keys.offsets
            arena[place["router_blocks"] :][: len(keys.ids)] = keys.ids
