"""Rules that tie several keys of `workload` together: what ends the traffic, what brings it, what contradicts what."""

from __future__ import annotations

from collections.abc import Iterator

from llmqsim.scenario.tree import Check, Finding, Tree

CLOSED = "closed_loop"


def _process(tree: Tree, place: str) -> object:
    return tree.get(f"{place}.arrivals.process")


def traffic_ends(tree: Tree) -> Iterator[Finding]:
    """Arrivals that nothing ends would never stop."""
    if "workload" not in tree or "workload.trace" in tree:
        return
    for place in tree.traffic():
        if f"{place}.arrivals" not in tree and not (place == "workload" and not tree.names("workload.classes")):
            continue
        counted = f"{place}.requests" in tree or ("workload.requests" in tree and _process(tree, place) != CLOSED)
        counted = counted or (place == "workload" and "workload.requests" in tree)
        key = f"{place}.requests"
        if _process(tree, place) == "burst" and not counted:
            yield key, "missing; a burst comes at time zero, so only a number of requests can end it"
        elif _process(tree, place) == CLOSED and not counted:
            yield key, "missing; a closed loop needs a number of requests, which a duration may cut short"
        elif not counted and "workload.duration" not in tree and f"{place}.arrivals.stages" not in tree:
            also = f"{key}, " if place != "workload" else ""
            yield key, f"missing; give {also}workload.requests, workload.duration or both, or replay a trace"


def traffic_is_whole(tree: Tree) -> Iterator[Finding]:
    """A trace brings arrivals and lengths; without one both are needed."""
    if "workload" not in tree:
        return
    names = tree.names("workload.classes")
    for part, advice in (
        ("arrivals", "say when requests come, such as {process: poisson, rate: 5 req/s}"),
        ("lengths", "say how long requests are, such as {prompt: 1000, output: 250} or azure-conversation"),
    ):
        key = f"workload.{part}"
        by_class = [f"workload.classes.{name}.{part}" for name in names]
        if "workload.trace" in tree:
            null = "set one of them to null" + ("; trace.rate_scale changes the load" if part == "arrivals" else "")
            for place in (key, *by_class):
                if place in tree:
                    yield place, f"contradicts {tree.at('workload.trace')}, which brings its own {part}; {null}"
        elif key not in tree and part == "lengths" and names:
            for place in by_class:
                if place not in tree:
                    yield place, f"missing; {advice}, here or in workload.lengths"
        elif key not in tree and not any(place in tree for place in by_class):
            yield key, f"missing; {advice}, or replay a trace"


def classes_share_or_arrive(tree: Tree) -> Iterator[Finding]:
    """All classes share one stream of arrivals, or each has its own."""
    places = tree.traffic()[1:]
    if not places or "workload.trace" in tree:
        for place in places:
            if f"{place}.share" in tree:
                yield f"{place}.share", f"contradicts {tree.at('workload.trace')}, whose column 'class' says who is who"
        return
    shared = "workload.arrivals" in tree
    for place in places:
        if shared and f"{place}.arrivals" in tree:
            yield f"{place}.arrivals", f"contradicts {tree.at('workload.arrivals')}; give shares, or arrivals to each"
        elif shared and f"{place}.share" not in tree:
            yield f"{place}.share", "missing; give its share of workload.arrivals"
        elif not shared and f"{place}.share" in tree:
            yield f"{place}.share", "has no workload.arrivals to share; give them, or arrivals to each class"
        elif not shared and f"{place}.arrivals" not in tree:
            yield f"{place}.arrivals", "missing; every class needs its own where workload.arrivals is absent"
        if shared and f"{place}.requests" in tree:
            yield f"{place}.requests", "is for classes with their own arrivals; the share says how many come"
    shares = [tree.get(f"{place}.share") for place in places]
    if shared and all(isinstance(s, (int, float)) and not isinstance(s, bool) for s in shares):
        if abs(sum(shares) - 1) > 1e-6:
            yield "workload.classes", f"shares add up to {sum(shares):g}; they must add up to 1"


def closed_loops_count_their_own(tree: Tree) -> Iterator[Finding]:
    """Who comes first is not known beforehand where a loop is closed, so a total over classes can't be cut."""
    for place in tree.traffic()[1:]:
        if _process(tree, place) == CLOSED and "workload.requests" in tree:
            loop = tree.at(f"{place}.arrivals")
            yield "workload.requests", f"can't limit {loop}, a closed loop; use {place}.requests"
            return


def one_rate(tree: Tree) -> Iterator[Finding]:
    """rate and stages are two ways to say how many come."""
    for place in tree.traffic():
        rate, stages = f"{place}.arrivals.rate", f"{place}.arrivals.stages"
        if _process(tree, place) not in ("poisson", "constant", "gamma", "weibull"):
            continue
        if rate in tree and stages in tree:
            yield stages, f"contradicts {tree.at(rate)}; give one of them"
        if rate not in tree and stages not in tree:
            yield rate, "missing; give a rate > 0, such as 12 req/s, or stages"


def gamma_has_one_shape(tree: Tree) -> Iterator[Finding]:
    """cv and burstiness are two spellings of one number."""
    for place in tree.traffic():
        if _process(tree, place) != "gamma":
            continue
        keys = (f"{place}.arrivals.cv", f"{place}.arrivals.burstiness")
        given = [k for k in keys if k in tree]
        if len(given) == 2:
            yield given[1], f"contradicts {tree.at(given[0])}; give one of them (burstiness = 1 / cv²)"
        if not given:
            yield keys[0], "missing; gamma arrivals need cv or burstiness (burstiness = 1 / cv²)"


def length_bounds(tree: Tree) -> Iterator[Finding]:
    """min <= max."""
    for place in tree.traffic():
        for part in ("prompt", "output"):
            key = f"{place}.lengths.{part}"
            low, high = tree.whole(f"{key}.min"), tree.whole(f"{key}.max")
            if low is not None and high is not None and low > high:
                yield f"{key}.max", f"is below {tree.at(f'{key}.min')} (got {high}, min {low}); swap them"


def clients_have_something_to_do(tree: Tree) -> Iterator[Finding]:
    """A cap binds open loops; a turn-around needs something that waits for an answer."""
    processes = [_process(tree, place) for place in tree.traffic() if f"{place}.arrivals" in tree]
    closed = [p == CLOSED for p in processes]
    cap, turn = "workload.clients.max_in_flight", "workload.clients.turnaround"
    if cap in tree and closed and all(closed):
        yield cap, "says nothing about a closed loop, which never has more in flight than clients; change `clients`"
    if turn in tree and cap not in tree and not any(closed):
        yield turn, f"needs something that waits for an answer: {cap}, or arrivals of process closed_loop"


def retries_have_a_reason(tree: Tree) -> Iterator[Finding]:
    """Somebody must refuse, or give up, before there is anything to try again."""
    key = "workload.clients.retries"
    if key not in tree:
        return
    refuses = tree.get("admission.policy") not in (None, "all")
    gives_up = "workload.clients.timeout" in tree
    after = tree.get(f"{key}.after") or "both"
    if not (refuses and after != "timeout") and not (gives_up and after != "refusal"):
        yield key, f"never happens (after: {after}): set workload.clients.timeout, or an admission policy that refuses"


def warm_up_can_drain(tree: Tree) -> Iterator[Finding]:
    """Only a closed loop can hold back its requests until a warm-up is over."""
    if tree.get("run.warmup.drain") is True and _process(tree, "workload") != CLOSED:
        yield "run.warmup.drain", "is for workload.arrivals of process closed_loop; an open loop does not wait"


ALL: tuple[Check, ...] = (
    traffic_ends,
    traffic_is_whole,
    classes_share_or_arrive,
    closed_loops_count_their_own,
    one_rate,
    gamma_has_one_shape,
    length_bounds,
    clients_have_something_to_do,
    retries_have_a_reason,
    warm_up_can_drain,
)
