"""Did the system keep up with its traffic? A verdict with evidence: stable, overloaded or unsettled.

Overload shows as a backlog that grows for as long as requests keep arriving. Two backlogs are looked at, just before
each arrival: requests not scheduled yet (metrics/growth.py judges it from the start), and requests in the system (only
once the first answers are out, because an empty server fills up whatever its load). How often the verdict errs on
queues of known load is in docs/metrics.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from llmqsim.metrics.distribution import NS_PER_S, in_order, median, quantile, ratio
from llmqsim.metrics.gave_up import gave_up
from llmqsim.metrics.growth import Growth, backlog, growth
from llmqsim.metrics.spare import SEEN_LOAD, Spare, at_once, spread
from llmqsim.requests import UNSET, Outcome, RequestTable

if TYPE_CHECKING:
    from llmqsim.result import Result

MIN_REQUESTS = 100
"""served requests below which nothing is said about the long run"""
MIN_ANSWERS = 3
"""the run must hold this many times the time in service of an answer: its P90 for calm, its median for a queue's growth

(a queue can't grow before the server is full, so a short run errs on the side of calm)"""
MIN_FRESH_ANSWERS = 12
"""a crowd without a queue is called overload only in a run this many times as long as the first answers took, ..."""
FILLED = 2
"""after so many times the P90 of the time in service a server has filled up: with one in twenty too many in five mean
times"""
CROWD, LATE_CROWD = 5.0, 3.0
"""... and where it grew this many units of noise, in its second half alone too: a busy server takes long to fill up"""
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Observed:
    """What the verdict rests on. Times in ns; arrays have one entry a served request, in order of arrival."""

    arrival: np.ndarray
    scheduled: np.ndarray
    finish: np.ndarray
    """or when its client gave up, if it had started"""
    answered: np.ndarray
    """was it completed? bool"""
    service_ns: int
    """P90 of the time from first scheduled to finish, waits after preemptions left out"""
    median_service_ns: int
    early_service_ns: int
    """the same over the first third of the arrivals"""
    fresh_service_ns: int
    """the same over the first twentieth: what an answer takes before a crowd slows it down"""
    service_spread: float
    """squared coefficient of variation of the time in service"""
    at_once: np.ndarray
    """was it taken up without a wait but for the next step? bool"""
    replicas: int

    @property
    def window_ns(self) -> int:
        return int(self.arrival[-1] - self.arrival[0])

    @property
    def horizon_ns(self) -> int:
        """First arrival to the last start: a queue is still at work after the last arrival."""
        started = self.scheduled[self.scheduled != NEVER]
        return int(max(self.arrival[-1], started.max())) - int(self.arrival[0])

    @property
    def long_enough(self) -> bool:
        return self.horizon_ns >= MIN_ANSWERS * self.service_ns

    @property
    def queue_can_tell(self) -> bool:
        longer_than_a_burst = self.window_ns >= self.median_service_ns
        return longer_than_a_burst and self.horizon_ns >= MIN_ANSWERS * self.median_service_ns

    @cached_property
    def inside(self) -> np.ndarray:
        """Requests in the system that each arrival finds, int64[n]."""
        return backlog(self.arrival, self.finish)

    @cached_property
    def waiting(self) -> np.ndarray:
        """Requests not scheduled yet that each arrival finds, int64[n]."""
        return backlog(self.arrival, self.scheduled)

    def queue(self) -> Growth:
        return growth(self.waiting)

    def spare(self, queue: Growth, lost: int = 0) -> Spare:
        """Evidence that more could have been served.

        The dispersion: as the queue shows it, at least that of independent gaps and services; until the server has filled
        up, who is taken up at once says nothing.
        """
        first = int(np.searchsorted(self.arrival, self.arrival[0] + FILLED * self.service_ns, side="right"))
        told = np.flatnonzero(self.at_once[first:])
        inside = max(1, int((self.inside - self.waiting).max()))
        bursts = spread(np.diff(self.arrival))
        noise = max(queue.dispersion, bursts + self.service_spread)
        return Spare(int(told[-1]) + 1 if len(told) else 0, len(told), noise, inside, self.replicas, bursts, lost)

    @property
    def crowd_can_tell(self) -> bool:
        return self.window_ns >= MIN_FRESH_ANSWERS * self.fresh_service_ns

    def crowd(self) -> tuple[Growth, Growth] | None:
        """Growth of the number in the system after the first answers, and in the second half of that.

        None when too few arrive by then. The second half tells growth from an approach to a high level.
        """
        first = int(np.searchsorted(self.arrival, self.arrival[0] + self.early_service_ns))
        if len(self.arrival) - first < MIN_REQUESTS // 2:
            return None
        inside = self.inside[first:]
        return growth(inside), growth(inside[len(inside) // 2 :])


def of_run(result: Result) -> dict:
    """The verdict on a run, as `stability` has it."""
    return stability(cast(RequestTable, result.table), result.due, result.late_alone)


def stability(table: RequestTable, due: np.ndarray, late_alone: np.ndarray | None = None) -> dict:
    """Verdict, one sentence of evidence and the numbers behind it. `due`: bool[rows], due before the end.

    late_alone : bool[rows], whose client would give up on an empty server, too: no fault of the load. None: nobody's.

    Where a cap held requests back, what counts is when they were due; where loops are closed, open traffic is judged if
    there is any, since a loop can't overload.
    """
    served = due & (table.outcome != Outcome.REJECTED)
    closed = served & (table.client != UNSET)
    if closed.any() and not (served & ~closed).any():
        return _closed_loop(table, closed, late_alone)
    served = served & ~closed
    seen = _observe(table, served)
    if seen is None:
        return answer_of("unsettled", "no request was completed, so nothing can be said", no_numbers(int(served.sum())))
    if not seen.window_ns:
        numbers = no_numbers(len(seen.arrival)) | {"window_s": 0.0, "service_p90_s": seen.service_ns / NS_PER_S}
        return answer_of("unsettled", "one burst: all requests arrive at once, so there is no steady state", numbers)
    numbers = _numbers(seen)
    if len(seen.arrival) < MIN_REQUESTS:
        return answer_of("unsettled", f"too few requests to tell: {len(seen.arrival)}, {MIN_REQUESTS} needed", numbers)
    lost = gave_up(table, served, late_alone)
    if not lost.all:
        return judge(seen, numbers)
    if lost.by_load <= (room := seen.spare(seen.queue()).wasted):
        seen = _observe(table, served, patient=False) or seen
        told = judge(seen, _numbers(seen), lost.by_load)
        return told | {"evidence": f"{told['evidence']}; {lost.said}; there was room for some {room:.0f} more"}
    told = judge(seen, numbers, lost.by_load)
    if told["verdict"] == "overloaded" or not lost.many:
        return told | {"evidence": f"{told['evidence']}; {lost.said}"}
    return answer_of("overloaded", f"{lost.said}: more is asked for than the servers give in time", numbers)


def _closed_loop(table: RequestTable, served: np.ndarray, late_alone: np.ndarray | None) -> dict:
    """Whoever waits for an answer before asking again can't pile up a backlog."""
    seen = _observe(table, served)
    if seen is None or not seen.window_ns:
        return answer_of("unsettled", "one round of a closed loop: no steady state", no_numbers(int(served.sum())))
    numbers = _numbers(seen)
    if len(seen.arrival) < MIN_REQUESTS:
        return answer_of("unsettled", f"too few requests to tell: {len(seen.arrival)}, {MIN_REQUESTS} needed", numbers)
    if (lost := gave_up(table, served, late_alone)).many:
        return answer_of("overloaded", f"{lost.said}: so many clients ask for more than they get in time", numbers)
    clients = len(np.unique(table.client[served]))
    evidence = f"a closed loop of {clients} clients can't overload; its latencies hold for this number of clients, "
    evidence += f"which get {numbers['completion_rate_per_s']:.3g} req/s done" + (f"; {lost.said}" if lost.all else "")
    return answer_of("stable", evidence, numbers)


def _observe(table: RequestTable, served: np.ndarray, patient: bool = True) -> Observed | None:
    """What the verdict rests on; None where nobody was answered.

    patient : who gave up before the first step counts as waiting still: patience that runs out is no capacity. Where
    there was room for more than gave up, they have left.
    """
    served = np.flatnonzero(served)
    due_ns = table.intended_ns[served]
    if (due_ns[1:] < due_ns[:-1]).any():
        order = np.argsort(due_ns, kind="stable")
        served, due_ns = served[order], due_ns[order]
    done = table.outcome[served] == Outcome.COMPLETED
    if not done.any():
        return None
    scheduled, finish = table.first_scheduled_ns[served], table.finish_ns[served]
    service = (finish - scheduled - table.wait_preempted_ns[served])[done]
    left = table.gave_up_ns[served]
    finish = np.where((finish == UNSET) & ((scheduled != UNSET) | (not patient)), left, finish)
    started = np.where(scheduled == UNSET, NEVER if patient else np.where(left == UNSET, NEVER, left), scheduled)
    order, ordered = np.flatnonzero(done), in_order(service)
    median_ns = int(median(ordered))

    def p90_of_first(arrivals: int) -> int:
        first = service[: np.searchsorted(order, max(arrivals, 20))]
        return int(quantile(in_order(first) if len(first) else ordered, 0.9))

    return Observed(
        arrival=due_ns,
        scheduled=started,
        finish=np.where(finish == UNSET, NEVER, finish),
        answered=done,
        service_ns=int(quantile(ordered, 0.9)),
        median_service_ns=median_ns,
        early_service_ns=p90_of_first(len(done) // 3),
        fresh_service_ns=p90_of_first(len(done) // 20),
        service_spread=spread(service),
        at_once=at_once(due_ns, started, table.wait_step_ns[served], median_ns),
        replicas=len(np.unique(table.replica[served][done])),
    )


def judge(seen: Observed, numbers: dict, lost: int = 0) -> dict:
    """lost : who gave up because of the load; what would have gone to them is no spare capacity."""
    queue = seen.queue()
    if queue.grows and seen.queue_can_tell:
        return _grown("overloaded", queue, "waiting to start", numbers)
    crowd, late = seen.crowd() or (queue, queue)
    crowded = crowd.grows and crowd.end > 1.5 * max(crowd.start, 1.0)
    lasting = crowd.signal > CROWD and late.signal > LATE_CROWD and late.grows
    if crowded and lasting and seen.crowd_can_tell:
        return _grown("overloaded", crowd, "in the system", numbers)
    if not seen.long_enough:
        window, service = _seconds(numbers["window_s"]), _seconds(numbers["service_p90_s"])
        why = f"too short to tell: requests arrive for {window}, one in ten takes {service} or more once started"
        return answer_of("unsettled", why, numbers)
    if crowded:
        return _grown("unsettled", crowd, "in the system", numbers)
    spare = seen.spare(queue, lost)
    numbers = numbers | {"overload_chance": spare.doubt}
    if queue.flat and not spare.enough:
        return _grown("unsettled", queue, "waiting to start", numbers, _doubted(spare))
    return _grown("stable" if queue.flat else "unsettled", queue, "waiting to start", numbers)


def _doubted(spare: Spare) -> str:
    chance = f"{100 * spare.doubt:.2g} % of runs at load {SEEN_LOAD}"
    return f"no growing backlog, but {chance} would look as calm; a longer run tells"


def _grown(verdict: str, seen: Growth, where: str, numbers: dict, told: str = "") -> dict:
    numbers = numbers | {"growth_per_s": seen.rise / numbers["window_s"], "signal": seen.signal, "noise": seen.noise}
    rates = (
        f"in the second half {numbers['arrival_rate_per_s']:.3g} req/s arrived and "
        f"{numbers['completion_rate_per_s']:.3g} req/s were completed"
    )
    if verdict == "overloaded":
        evidence = f"{seen.end:.0f} requests {where} at the last arrival, growing all along; {rates}"
    elif verdict == "stable":
        evidence = f"no growing backlog in {_seconds(numbers['window_s'])}: at most {seen.peak:.0f} {where}; {rates}"
    elif told:
        evidence = f"{told}: at most {seen.peak:.0f} {where}; {rates}"
    else:
        evidence = f"the run is too short for this much change: {seen.end:.0f} {where} at the last arrival, "
        evidence += f"at most {seen.peak:.0f}; {rates}"
    return answer_of(verdict, evidence, numbers)


def _numbers(seen: Observed) -> dict:
    arrival, finish = seen.arrival, seen.finish
    last = int(arrival[-1])
    half = int(arrival[0]) + seen.window_ns // 2
    arrived = int((arrival > half).sum())
    finished = int((seen.answered & (finish > half) & (finish <= last)).sum())
    inside = seen.inside + 1
    return no_numbers(len(arrival)) | {
        "window_s": seen.window_ns / NS_PER_S,
        "arrival_rate_per_s": ratio(arrived * NS_PER_S, last - half),
        "completion_rate_per_s": ratio(finished * NS_PER_S, last - half),
        "in_system_end": int(inside[-1]),
        "in_system_peak": int(inside.max()),
        "drain_s": None if (finish == NEVER).any() else (int(finish.max()) - last) / NS_PER_S,
        "service_p90_s": seen.service_ns / NS_PER_S,
    }


def no_numbers(requests: int) -> dict:
    names = ("window_s", "arrival_rate_per_s", "completion_rate_per_s", "in_system_end", "in_system_peak", "drain_s")
    names += ("service_p90_s", "growth_per_s", "signal", "noise", "overload_chance")
    return {"requests": requests, **dict.fromkeys(names)}


def answer_of(verdict: str, evidence: str, numbers: dict) -> dict:
    return {"verdict": verdict, "evidence": evidence, **numbers}


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 100 else f"{value:.3g} s"
