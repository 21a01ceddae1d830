"""`llmqsim claims`: what it writes, how it judges, and what it refuses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib

import numpy as np
import pytest
import yaml

from llmqsim.claims import CLAIMS, FOLDER, Figure
from llmqsim.claims import run as running
from llmqsim.claims.measures import jackknife
from llmqsim.metrics.stats import t_interval
from tests.claims.claims import ROOT
from tests.cli.commands import llmqsim, strict_json

KEYS = ["id", "check", "published", "simulated", "low", "high", "holds", "assumption", "interval", "undecided"]


def asked(tmp_path, *argv):
    said = llmqsim("claims", "--json", tmp_path / "out.json", *argv)
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


def test_an_interval_that_holds_an_end_of_the_band_is_undecided(tmp_path, monkeypatch):
    """By hand: of 1, 2 and 3 the mean is 2 and Student's 95 % interval 2 +- 4.303 / sqrt(3) = [-0.48, 4.48]."""
    values = (1.0, 2.0, 3.0)
    figures = [Figure.over_seeds(name, values, None, "seeds") for name in ("edge", "inside", "outside", "told")]
    figures.append(Figure.over_seeds("one", values[:1], None, "one seed"))
    monkeypatch.setitem(running.CLAIMS, "C04", lambda setting: figures)
    bands = "C04: {edge: [0, 4.5], inside: [-0.5, 4.5], outside: [4.5, null], one: [0, 2]}"
    (tmp_path / "bands.yaml").write_text(bands)
    said, told = asked(tmp_path, "--bands", tmp_path / "bands.yaml", "--only", "C04", "--markdown", tmp_path / "page.md")
    edge, _, _, free, one = told["claims"]
    assert edge["interval"] == pytest.approx([2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5], abs=1e-4)
    assert [line["holds"] for line in told["claims"]] == [None, True, False, None, True]
    assert [line["undecided"] for line in told["claims"]] == [True, False, False, False, False]
    assert one["interval"] is None and "reason" in edge and "reason" not in free
    assert "2 of 4 checks hold, 1 undecided, 1 are told" in said.out and "2.00 [-0.484, 4.48]" in said.out
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| undecided |" in page and "**edge** is undecided:" in page


def test_the_jackknife_of_a_mean_is_students_interval():
    """For a mean, leaving one out at a time gives back the standard error of the mean, exactly (Tukey 1958)."""
    values = np.array([0.3, 1.7, 2.2, 5.1])
    mean, (low, high) = jackknife(lambda runs: float(values[list(runs)].mean()), len(values))
    found = t_interval(values.tolist())
    assert (mean, low, high) == pytest.approx((found.mean, found.low, found.high))


def test_the_command_needs_no_checkout(tmp_path, monkeypatch):
    """From an empty folder: scenarios and bands are those of the package, and pip copies every file of them."""
    monkeypatch.chdir(tmp_path)
    said = llmqsim("claims", "--only", "C04")
    assert said.code == 0 and "5 of 5 checks hold" in said.out
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["llmqsim"]
    folder = ROOT / "llmqsim"
    copied = {path for pattern in packaged for path in folder.glob(pattern)}
    assert {path for path in FOLDER.rglob("*") if path.is_file()} <= copied
    for path in FOLDER.glob("*.yaml"):
        extends = re.search(r"^extends: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert extends is None or (FOLDER / extends[1]).resolve().parent == FOLDER.resolve(), path


@pytest.mark.long
def test_an_installation_by_pip_runs_every_scenario_of_the_claims(tmp_path):
    """A wheel of this tree, unpacked where no checkout is: every scenario loads, and one claim runs."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path]
    tree = tmp_path / "tree"
    for part in ("llmqsim", "calibration/measure"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    subprocess.run([*pip, tree], check=True, cwd=tmp_path)
    shutil.unpack_archive(next(tmp_path.glob("*.whl")), tmp_path / "site", "zip")
    code = (
        "from llmqsim.claims import CLAIMS, FOLDER, claims; from llmqsim.scenario.load import load; import llmqsim\n"
        "assert 'site' in llmqsim.__file__; [load(FOLDER / f'{n.lower()}.yaml') for n in CLAIMS]\n"
        "assert all(line['holds'] for line in claims(['C04'])['claims'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)


def test_without_bands_nothing_is_judged_and_that_is_said(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "claims", ignore=shutil.ignore_patterns("bands.yaml"))
    said = llmqsim("claims", "--only", "C04", "--folder", tmp_path / "claims", "--json", tmp_path / "out.json")
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
    said = llmqsim("claims", *argv)
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
    said = llmqsim("claims", "--only", "C04", "--bands", tmp_path / "b.yaml")
    assert said.code == 2 and said.out == "" and said.err.count("\n") == 1
    assert all(word in said.err for word in ("b.yaml", *words)), said.err


def test_every_claim_has_a_scenario_that_says_what_it_is_and_bands():
    bands = yaml.safe_load((FOLDER / "bands.yaml").read_text(encoding="utf-8"))
    assert set(bands) <= set(CLAIMS)
    for name in CLAIMS:
        head = (FOLDER / f"{name.lower()}.yaml").read_text(encoding="utf-8").split("\nquestion:")[0]
        assert re.search("Question:.*Published.*Source|Question:.*Published.*source", head, re.DOTALL), name
