"""Progress: a line on a terminal that tells how far it is and goes away; nothing where nobody watches."""

from __future__ import annotations

import io
import re
import time
from contextlib import redirect_stderr

import pytest

from llmqsim import load_text, progress, simulate
from tests.cli.commands import SCENARIO, llmqsim, write


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0.02)
    monkeypatch.setattr(progress, "SHOWN_EVERY_S", 0.02)
    return Terminal()


def visible(text):
    """What is left on the line of a terminal that got this."""
    line = ""
    for part in text.split("\r"):
        line = part + line[len(part) :]
    return line.strip()


def test_steps_and_the_rest(terminal):
    with redirect_stderr(terminal), progress.watch("work"):
        progress.stage("work", 4, "lever", counts_runs=False)
        for _ in range(2):
            time.sleep(0.1)
            progress.step()
        progress.say("near the end\x1b[31m")
        time.sleep(0.1)
        during = terminal.getvalue()
    shown = during.split("\r")
    assert any(re.search(r"work: 1 of 4 levers, about \d+ s left", one) for one in shown)
    assert "work: 2 of 4 levers" in visible(during) and "near the end" in visible(during)
    assert visible(terminal.getvalue()) == ""
    assert "\x1b" not in terminal.getvalue()


def test_the_rest_is_in_proportion():
    seen = progress.Watched(began=0.0, stage_began=10.0, name="compare", total=20, done=5)
    assert seen.line(20.0) == "compare: 5 of 20 runs, about 30 s left"
    seen.share, seen.requests = (lambda: 0.5), 1000
    assert seen.line(21.0) == "compare: 5 of 20 runs, about 29 s left"
    one = progress.Watched(began=0.0, requests=2000, share=lambda: 0.25, run_began=4.0)
    assert one.line(8.0) == "25 % of 2,000 requests, about 12 s left"
    assert progress.Watched(began=0.0, name="size", done=1).line(9.0) == "size: 1 run, 9 s so far"
    assert "worked out" in progress.Watched(began=0.0, done=1).line(9.0)


def test_a_run_tells_how_far_it_is(terminal):
    seen = []
    with redirect_stderr(terminal), progress.watch():
        watched = progress._watched[0]
        original = watched.line
        watched.line = lambda now: seen.append(watched.share and watched.share()) or original(now)
        simulate(load_text(SCENARIO.replace("requests: 150", "requests: 6000") + "run: {engine: reference}\n"))
    shares = [share for share in seen if share is not None]
    assert len(shares) > 3 and shares == sorted(shares) and 0 < shares[len(shares) // 2] < 1
    assert watched.done == 1 and not progress._watched


def test_nobody_watches_where_there_is_no_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0.0)
    write(tmp_path, s_yaml=SCENARIO)
    for command in (["run"], ["compare", "--variants", "slow", "--replications", 2]):
        assert llmqsim(command[0], tmp_path / "s.yaml", *command[1:]).err == ""


def test_an_error_takes_the_line_away(terminal):
    with redirect_stderr(terminal), pytest.raises(ZeroDivisionError), progress.watch("work"):
        time.sleep(0.06)
        raise ZeroDivisionError
    assert visible(terminal.getvalue()) == "" and not progress._watched
