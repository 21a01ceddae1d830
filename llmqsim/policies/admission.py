"""Admission: may a request that arrives enter at all? One that may not is told so at once; its client may try again."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.policies import rules
from llmqsim.policies.protocol import Admission, FrontView, RoutedRequest
from llmqsim.registry import param, register

TOKENS = ("requests", "tokens")


@register("admission", "all")
@dataclass(frozen=True)
class All(Admission):
    """Everybody enters (the default)."""

    open = True

    def admit(self, state: list, request: RoutedRequest, front: FrontView) -> bool:
        """Yes."""
        return True


@register("admission", "token_bucket")
@dataclass(frozen=True)
class TokenBucket(Admission):
    """At most `rate` a second on average, `burst` at once: the usual rate limit.

    of : what is counted, "requests", or "tokens" (prompt and max_tokens, as API providers do). The bucket is full at
    the start; who finds too little in it is refused and takes nothing.
    """

    rate: float = param(None, above=0)
    burst: float = param(None, above=0)
    of: str = param("requests", choices=TOKENS)
    reason = "rate_limited"

    def fault(self) -> str | None:
        """What is wrong with the parameters."""
        for name in ("rate", "burst"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                return f"{name} must be a number above 0 (got {value!r}): {self.of} per second, and {self.of} at once"
        return "burst must be at least 1, or no request ever enters" if self.burst < 1 else None

    def start(self) -> list:
        """What the bucket holds, and since when."""
        return [float(self.burst), 0]

    def admit(self, state: list, request: RoutedRequest, front: FrontView) -> bool:
        """Fill by the time that has passed, then take."""
        held, since_ns = state
        held = rules.refilled(held, float(self.rate), float(self.burst), front.now_ns - since_ns)
        asked = 1 if self.of == "requests" else request.prompt_tokens + request.max_tokens
        admitted = held >= asked
        state[:] = held - asked if admitted else held, front.now_ns
        return admitted


@register("admission", "queue_cap")
@dataclass(frozen=True)
class QueueCap(Admission):
    """Nobody enters while `most` are waiting (in the replicas' queues and at the router).

    of : "waiting", or "outstanding": all that were sent and have not finished.
    """

    most: int = param(None, least=0)
    of: str = param("waiting", choices=("waiting", "outstanding"))
    reads_signals = True
    reason = "queue_full"

    def fault(self) -> str | None:
        """What is wrong with the parameters."""
        if type(self.most) is not int or self.most < (1 if self.of == "outstanding" else 0):
            return f"most must be a whole number of requests (got {self.most!r}), such as 64"
        return None

    def admit(self, state: list, request: RoutedRequest, front: FrontView) -> bool:
        """Is there a place in the queue? With `waiting`, who could start at once enters however small the cap is."""
        if self.of == "outstanding":
            return front.outstanding < self.most
        return front.waiting <= self.most


@register("admission", "deadline")
@dataclass(frozen=True)
class Deadline(Admission):
    """Who would miss its TTFT target anyway is refused at once, so that it holds up nobody who could meet it.

    The wait is estimated as the requests that wait now over the rate at which requests finished in the last `window_s`
    seconds (a place is free when one ends). Nobody is refused before anything has finished. slack : part of the target
    that the wait may take; prefill and queueing behind the router need the rest. Requests without a target enter.
    """

    slack: float = param(0.8, above=0, most=10)
    window_s: float = param(30.0, above=0)
    needs_deadlines = True
    reads_signals = True
    reason = "would_miss_deadline"

    @property
    def window_ns(self) -> int:
        """How far it looks back."""
        return round(self.window_s * 1e9)

    def admit(self, state: list, request: RoutedRequest, front: FrontView) -> bool:
        """Compare the estimate with what is left until the deadline."""
        if request.due_ns < 0:
            return True
        finished = front.finished_within(self.window_ns)
        if not finished or not front.waiting:
            return True
        window_ns = min(self.window_s * 1e9, float(front.now_ns))
        left_ns = request.due_ns - front.now_ns
        return rules.is_in_time(front.waiting, finished, window_ns, float(self.slack), left_ns)
