"""What the client side adds to the figures: requests in flight, late sending, and what time-outs hide."""

from __future__ import annotations

import numpy as np

from llmqsim.metrics.distribution import describe_ns, ratio, up_to
from llmqsim.metrics.latency import completed
from llmqsim.metrics.usage import Window
from llmqsim.requests import UNSET, Outcome, RequestTable


def clients(table: RequestTable, rows: np.ndarray, whole: Window) -> dict:
    """in_flight of the whole run; send_lag_s and figures from the due time where a cap held requests back; censoring.

    rows : bool[rows], what the figures are over. See docs/metrics.md, "Clients".
    """
    lag = (table.arrival_ns - table.intended_ns)[rows]
    late = bool(len(lag)) and bool(lag.any())
    return {
        "in_flight": in_flight(table, whole),
        "sent_late": int((lag > 0).sum()),
        "send_lag_s": describe_ns(lag) if late else None,
        "from_due": _from_due(table, rows & completed(table)) if late else None,
        "censoring": _censoring(table, rows),
    }


def _from_due(table: RequestTable, done: np.ndarray) -> dict:
    return {
        "ttft_s": describe_ns((table.first_token_ns - table.intended_ns)[done]),
        "e2e_s": describe_ns((table.finish_ns - table.intended_ns)[done]),
    }


def in_flight(table: RequestTable, whole: Window) -> dict:
    """Requests between sending and the client's last look at them: mean over the window, and the most at once.

    Who leaves at the instant at which another is sent makes room for it.
    """
    sent = (table.arrival_ns != UNSET) & (table.outcome != Outcome.REJECTED) & (table.arrival_ns <= whole.end_ns)
    left = np.where(table.finish_ns != UNSET, table.finish_ns, table.gave_up_ns)[sent]
    left = np.where(left == UNSET, max(whole.end_ns, int(table.arrival_ns[sent].max(initial=0))), left)
    sends = table.arrival_ns[sent]
    if (sends[1:] < sends[:-1]).any():
        sends = np.sort(sends)
    inside = np.arange(1, len(sends) + 1) - up_to(np.sort(left), sends)
    total_ns = int(left.sum()) - int(sends.sum())
    return {
        "mean": ratio(total_ns, whole.end_ns - whole.start_ns),
        "peak": int(inside.max()) if len(inside) else 0,
    }


def _censoring(table: RequestTable, rows: np.ndarray) -> dict | None:
    """None where nobody gave up. e2e_at_least_s counts those who did with the time they waited: its percentiles are
    lower bounds, and exact where they lie below the time-out.
    """
    gave_up = rows & (table.outcome == Outcome.TIMED_OUT)
    if not gave_up.any():
        return None
    seen = rows & completed(table)
    waited = np.concatenate(
        [(table.finish_ns - table.arrival_ns)[seen], (table.gave_up_ns - table.arrival_ns)[gave_up]]
    )
    return {
        "timed_out": int(gave_up.sum()),
        "share": ratio(int(gave_up.sum()), int(rows.sum())),
        "before_first_token": int((gave_up & (table.first_token_ns == UNSET)).sum()),
        "e2e_at_least_s": describe_ns(waited),
    }
