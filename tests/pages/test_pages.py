"""`llmqsim report`: one file, well formed, that asks for nothing, can be read in light and dark, and holds the answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmqsim import simulate
from llmqsim.metrics.timeline import timeline
from llmqsim.report.page import make, read
from tests.cli.commands import SCENARIO, llmqsim, strict_json, write
from tests.pages.markup import Page, contrast, themes

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"'& ]]> ü≤\u202e"
STYLE = (Path(make.__file__).parent / "style.css").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = write(tmp_path_factory.mktemp("pages"), s_yaml=SCENARIO)
    assert llmqsim("run", made / "s.yaml", "--json", made / "run.json", "--requests", made / "run.csv").code == 0
    for name, what in (("run", ["s.yaml"]), ("both", ["run.json", "run.csv"]), ("figures", ["run.json"])):
        said = llmqsim("report", *(made / one for one in what), "-o", made / f"{name}.html")
        assert said.code == 0, said.err
        assert f"{name}.html" in said.out
    return made


def page(folder, name):
    return Page((folder / f"{name}.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["run", "both", "figures"])
def test_it_is_well_formed_and_asks_for_nothing(folder, name):
    found = page(folder, name)
    found.check_read_aloud()
    assert found.scripts == 1
    assert (folder / f"{name}.html").stat().st_size < 300_000


@pytest.mark.parametrize("name", ["run", "both", "figures"])
def test_it_holds_the_answer_that_json_has(folder, name):
    assert page(folder, name).data["answer-0"] == strict_json(folder / "run.json")


def test_the_verdict_stands_on_top(folder):
    text = "".join(page(folder, "run").text)
    told = strict_json(folder / "run.json")
    assert text.index("kept the SLO, 90 % was asked for") < text.index("In short")
    assert ("not met" in text) == (told["slo"]["verdict"] == "not_met")


def test_its_charts_hold_the_timeline(folder):
    charts = {one["series"][0]["name"]: one for key, one in page(folder, "run").data.items() if key != "answer-0"}
    shown = timeline(simulate(str(folder / "s.yaml")))
    assert charts["arrive"]["series"][0]["values"] == shown.arrivals_per_s
    assert charts["wait to start"]["series"][0]["values"] == shown.waiting
    assert charts["kept"]["series"][0]["values"] == shown.attainment


def test_figures_with_their_requests_are_the_run(folder):
    run = read.with_requests(strict_json(folder / "run.json"), str(folder / "run.csv"))
    assert timeline(run) == timeline(simulate(str(folder / "s.yaml")))


def test_figures_alone_say_what_they_lack(folder):
    assert "--requests" in "".join(page(folder, "figures").text)


@pytest.mark.parametrize("theme", themes(STYLE), ids=["light", "dark", "print"])
def test_contrast(theme):
    """WCAG 2 AA: 4.5 for text, 3 for what is drawn, computed from the colours."""
    assert {"paper", "card", "ink", "c0", "c6"} <= theme.keys()
    for text in ("ink", "soft", "link", "good", "bad", "open"):
        for ground in ("paper", "card"):
            assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground)
    for i in range(7):
        assert contrast(theme[f"c{i}"], theme["paper"]) >= 3, i
    assert contrast("#ffffff", "#000000") == pytest.approx(21) and contrast("#777777", "#ffffff") == pytest.approx(
        4.48, abs=0.01
    )


def test_no_text_of_a_user_is_markup(tmp_path):
    scenario = SCENARIO.replace(
        "question: Does one server with steps of 10 ms keep up?", f"question: {json.dumps(NASTY)}"
    )
    write(tmp_path, s_yaml=scenario)
    said = llmqsim("report", tmp_path / "s.yaml", "--title", NASTY, "-o", tmp_path / "p.html")
    assert said.code == 0, said.err
    found = page(tmp_path, "p")
    assert found.scripts == 1 and not [tag for tag, _ in found.elements if tag == "img"]
    assert NASTY in found.text
    assert found.data["answer-0"]["scenario"]["question"] == NASTY


def test_several_answers_make_one_page(folder, tmp_path):
    said = llmqsim(
        "compare", folder / "s.yaml", "--variants", "slow", "--replications", 2, "--json", tmp_path / "c.json"
    )
    assert said.code == 0, said.err
    assert llmqsim("report", folder / "run.json", tmp_path / "c.json", "-o", tmp_path / "p.html").code == 0
    found = page(tmp_path, "p")
    found.check_read_aloud()
    assert found.data["answer-1"] == strict_json(tmp_path / "c.json")
    assert "slow against base: worse in" in "".join(found.text)


BAD = {
    "cut short": ("x.json", lambda text: text[: len(text) // 2], "was cut short"),
    "no answer": ("x.json", lambda _: '{"a": 1}', "not the answer of a command"),
    "a list": ("x.json", lambda _: "[1]", "not the answer of a command"),
    "infinite": ("x.json", lambda _: '{"a": Infinity}', "is no JSON"),
    "other version": (
        "x.json",
        lambda text: text.replace('"throughput"', '"through"').replace('"0.1.0"', '"0.0.9"'),
        "llmqsim 0.0.9",
    ),
    "no text": ("x.json", lambda _: "\udcff", "is no text"),
    "requests alone": ("x.csv", lambda _: "request\n1\n", "give the run's figures before it"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_results(folder, tmp_path, case):
    name, change, says = BAD[case]
    text = change((folder / "run.json").read_text(encoding="utf-8"))
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    said = llmqsim("report", tmp_path / name, "-o", tmp_path / "p.html")
    assert said.code == 2 and says in said.err and name in said.err, said.err
    assert said.out == "" and not (tmp_path / "p.html").exists()


def test_requests_of_another_run(folder, tmp_path):
    lines = (folder / "run.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "r.csv").write_text("".join(lines[:-5]), encoding="utf-8")
    said = llmqsim("report", folder / "run.json", tmp_path / "r.csv", "-o", tmp_path / "p.html")
    assert said.code == 2 and "is of another run: 145" in said.err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["run.json", "-o", "no/p.html"], "does not exist"),
        (["run.json", "-o", "run.json"], "is an input of this command"),
        (["run.json", "--set", "replicas=2", "-o", "p.html"], "only results were given"),
        (["run.json", "--price", "x", "-o", "p.html"], "--price"),
        (["none.json", "-o", "p.html"], "no such file"),
        (["s.yaml", "--set", "replicas=0", "-o", "p.html"], "replicas"),
    ],
)
def test_bad_arguments(folder, monkeypatch, argv, says):
    monkeypatch.chdir(folder)
    said = llmqsim("report", *argv)
    assert said.code == 2 and says in said.err
