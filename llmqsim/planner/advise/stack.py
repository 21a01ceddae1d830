"""The best stack of levers, built greedily: the best one is pulled, all others are measured again on top of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmqsim.errors import UserError
from llmqsim.planner.advise.levers import Lever, all_levers
from llmqsim.planner.advise.rows import Row, look, measure, stacked, without_idle_parts
from llmqsim.planner.advise.trial import Bench, Trial
from llmqsim.planner.attain import FRESH, KEPT, Attained

MOST_LEVERS = 4
"""that leave answers as they are, and as many again that may change them"""
AGAIN = 4
"""of the levers that may still help, those of the best first look are measured on top of a stack"""
JUDGE_RUNS, JUDGED_REQUESTS = 20, 200_000


@dataclass(frozen=True)
class Stack:
    """Levers in the order in which they were pulled, and the deployment with all of them."""

    levers: tuple[Lever, ...]
    trial: Trial
    attained: Attained
    """on replications that the search has not seen"""

    @property
    def kept(self) -> bool:
        """Is it shown that the SLO is kept?"""
        return self.attained.judged == KEPT


def build(bench: Bench, base: Trial, rows: Sequence[Row]) -> Stack:
    """Pull what helps most, again and again, until the SLO is kept or nothing is shown to help.

    Levers that may change answers are pulled only where the others are not enough.
    """
    pulled: list[Lever] = []
    current, open_ = base, [row for row in rows if row.lever.buys is None]
    for lossy in (False, True):
        most = len(pulled) + MOST_LEVERS
        while len(pulled) < most and not current.keeps:
            helping = [row for row in open_ if row.matters and (lossy or not row.lever.changes_answers)]
            if not helping:
                break
            best = max(helping, key=lambda row: row.rank(lossy))
            pulled.append(best.lever)
            current = best.trial
            if not current.keeps:
                open_ = _again(stacked(bench, pulled), current, {lever.name for lever in pulled})
    pulled, current = _fewer(bench, pulled, current)
    return Stack(tuple(pulled), current, judged(current))


def _fewer(bench: Bench, pulled: list[Lever], current: Trial) -> tuple[list[Lever], Trial]:
    """The same without what it does not need: a later lever may do the work of an earlier one."""
    if not current.keeps:
        return pulled, current
    for lever in pulled[:-1]:
        rest = [one for one in pulled if one is not lever]
        try:
            trial = stacked(bench, rest).trial()
        except UserError:  # such as a setting of pools without the lever that made them
            continue
        if trial.keeps:
            pulled, current = rest, trial
    return pulled, current


def _again(bench: Bench, current: Trial, done: set[str]) -> list[Row]:
    """Rows of what may help on top of the stack, more than helped before, maybe. done : names of what is pulled."""
    left = [one for one in all_levers(current.facts) if one.buys is None and one.name not in done]
    chosen = look(bench, current, left)[0][:AGAIN]
    return without_idle_parts([measure(current, lever, trial) for lever, trial in chosen])[0]


def judged(trial: Trial) -> Attained:
    """What a deployment attains on replications that nobody has looked at; a replayed trace has only one."""
    runs = min(JUDGE_RUNS, max(5, JUDGED_REQUESTS // max(1, len(trial.facts.table)))) if not trial.slow else 5
    first = 0 if trial.alike else FRESH
    return trial.probe().decide(trial.prepared, fewest=runs, most=runs, first=first)
