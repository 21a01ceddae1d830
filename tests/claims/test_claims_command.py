"""`llmqsim claims`: what it writes, how it judges, and what it refuses."""

from __future__ import annotations

import re
import shutil

import pytest
import yaml

from llmqsim.claims import CLAIMS, Figure
from llmqsim.claims import run as running
from tests.claims.claims import FOLDER, ROOT
from tests.cli.commands import llmqsim, strict_json

KEYS = ["id", "check", "published", "simulated", "low", "high", "holds", "assumption"]


def asked(tmp_path, *argv):
    said = llmqsim("claims", "--folder", FOLDER, "--json", tmp_path / "out.json", *argv)
    assert (said.code, said.err) == (0, "")
    return said, strict_json(tmp_path / "out.json")


def test_json_has_a_line_for_each_check(tmp_path):
    said, told = asked(tmp_path, "--only", "c04")
    assert [list(line) for line in told["claims"]] == [KEYS] * 5
    assert {line["id"] for line in told["claims"]} == {"C04"}
    assert all(line["check"] in said.out for line in told["claims"]) and "5 of 5 checks hold" in said.out


def test_a_figure_outside_its_band_stands_there_with_the_reason(tmp_path, monkeypatch):
    """And the exit code is 0: that a claim does not hold is an answer."""
    figures = [
        Figure("told", 1.5, 2.0, "an assumption"),
        Figure("off", (1.0, 3.0), None, "seeds", reason="one seed is off"),
    ]
    figures.append(Figure("inside", 2.0, None, "an assumption"))
    monkeypatch.setitem(running.CLAIMS, "C04", lambda setting: figures)
    (tmp_path / "bands.yaml").write_text("C04: {'off': [null, 2.5], inside: [2, null]}")
    said, told = asked(tmp_path, "--only", "C04", "--bands", tmp_path / "bands.yaml")
    first, off, inside = told["claims"]
    assert (first["holds"], first["low"], first["high"]) == (None, None, None)
    assert (off["simulated"], off["high"], off["holds"], off["reason"]) == (2.0, 2.5, False, "one seed is off")
    assert inside["holds"] is True and "reason" not in inside
    assert "DOES NOT HOLD" in said.out and "one seed is off" in said.out and "1 of 2 checks hold" in said.out


def test_the_page_shows_every_check_with_what_it_rests_on(tmp_path):
    """docs/claims.md is this page of all claims: its part on C04 is what the command writes now."""
    _, told = asked(tmp_path, "--only", "C04", "--markdown", tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(told["claims"])
    for line, shown in zip(told["claims"], rows[2:], strict=True):
        mark = shown.split("|")[-2].strip()
        assert line["check"] in shown and f"- {mark}: {line['assumption']}." in page
    section = page[page.index("## C04") :].rstrip("\n")
    written = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    assert section in written and all(f"\n## {name}\n" in written for name in CLAIMS)


def test_the_page_says_why_a_check_does_not_hold(tmp_path, monkeypatch):
    figures = [
        Figure("off", 3.0, None, "one", "a reason"),
        *(Figure(f"told {i}", i, None, f"text {i}") for i in range(30)),
    ]
    monkeypatch.setitem(running.CLAIMS, "C04", lambda setting: figures)
    (tmp_path / "bands.yaml").write_text("C04: {'off': [null, 2.5]}")
    asked(tmp_path, "--only", "C04", "--bands", tmp_path / "bands.yaml", "--markdown", tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "**does not hold**" in page and "**off** does not hold: a reason." in page
    assert "- z: text 24." in page and "- ae: text 29." in page


def test_without_the_checkouts_bands_nothing_is_judged_and_that_is_said(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "scenarios" / "claims")
    said = llmqsim(
        "claims", "--only", "C04", "--folder", tmp_path / "scenarios" / "claims", "--json", tmp_path / "out.json"
    )
    told = strict_json(tmp_path / "out.json")
    assert said.code == 0 and "nothing is judged" in said.out and "--bands" in told["notes"][0]
    assert {line["holds"] for line in told["claims"]} == {None}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--only", "C4"), ("--only", "'C4'", "C04")),
        (("--only", "C04", "--bands", "nowhere.yaml"), ("nowhere.yaml", "no such file")),
        (("--seed", "x"), ("--seed", "'x'")),
    ],
)
def test_bad_arguments(argv, words):
    said = llmqsim("claims", "--folder", FOLDER, *argv)
    assert said.code == 2 and said.out == "" and said.err.count("\n") == 1
    assert all(word in said.err for word in words), said.err


def test_a_folder_that_is_none():
    said = llmqsim("claims", "--folder", "nowhere")
    assert said.code == 2 and "--folder: nowhere" in said.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("C04: [", ("is no YAML",)),
        ("- 1", ("must be a mapping",)),
        ("C04: 3", ("C04", "got 3")),
        ("C04: {bytes of KV a token: 3}", ("bytes of KV a token", "[low, high]", "got 3")),
        ("C04: {bytes of KV a token: [3, x]}", ("[3, 'x']",)),
        ("C04: {bytes of KV a token: [.nan, 3]}", ("[nan, 3]",)),
        ("C04: {bytes of KV a token: [4, 3]}", ("lower limit", "[4, 3]")),
        ("C04: {bytes of KV a token: [null, null]}", ("limits nothing",)),
        ("C04: {bytes of KV the token: [1, 2]}", ("C04", "no check", "did you mean 'bytes of KV a token'")),
        ("C99: {a: [1, 2]}", ("no claim 'C99'",)),
    ],
)
def test_bad_bands_are_refused(tmp_path, text, words):
    (tmp_path / "b.yaml").write_text(text)
    said = llmqsim("claims", "--only", "C04", "--folder", FOLDER, "--bands", tmp_path / "b.yaml")
    assert said.code == 2 and said.out == "" and said.err.count("\n") == 1
    assert all(word in said.err for word in ("b.yaml", *words)), said.err


def test_every_claim_has_a_scenario_that_says_what_it_is_and_bands():
    bands = yaml.safe_load((ROOT / "tests" / "claims" / "bands.yaml").read_text(encoding="utf-8"))
    assert set(bands) <= set(CLAIMS)
    for name in CLAIMS:
        head = (FOLDER / f"{name.lower()}.yaml").read_text(encoding="utf-8").split("\nquestion:")[0]
        assert re.search("Question:.*Published.*Source|Question:.*Published.*source", head, re.DOTALL), name
