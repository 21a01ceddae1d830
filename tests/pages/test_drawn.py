"""`--figure`, `result.plot` and what notebooks show: the numbers that are drawn are those of the answer."""

from __future__ import annotations

import pickle
from xml.etree import ElementTree

import pytest

import llmqsim as package
from llmqsim import UserError, load_text, simulate
from llmqsim.metrics.curves import distributions
from llmqsim.metrics.timeline import timeline
from llmqsim.planner.compare import compare
from llmqsim.report.plots import OVERVIEW
from tests.cli.commands import EVENTS, SCENARIO, llmqsim, strict_json, write
from tests.pages.markup import Page

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def run():
    return simulate(load_text(SCENARIO))


def test_lines_are_the_timeline(run):
    shown = timeline(run)
    arrive, done = run.plot.load().get_lines()
    assert list(arrive.get_xdata()) == shown.middles_s
    assert list(arrive.get_ydata()) == shown.arrivals_per_s and list(done.get_ydata()) == shown.completions_per_s
    assert list(run.plot.queue().get_lines()[0].get_ydata()) == shown.waiting
    kept, asked = run.plot.attainment().get_lines()
    assert [v for v in kept.get_ydata() if v == v] == [v for v in shown.attainment if v is not None]
    assert set(asked.get_ydata()) == {0.9}
    curve, target = run.plot.latency(metric="ttft").get_lines()
    assert (list(curve.get_xdata()), list(curve.get_ydata())) == distributions(run)["ttft"]
    assert set(target.get_xdata()) == {0.2}


def test_axes_are_taken_and_given_back(run):
    axes = run.plot.load()
    assert run.plot.queue(axes) is axes and len(axes.get_lines()) == 3
    assert set(OVERVIEW) <= set(dir(run.plot))
    assert run.plot.overview().shape == (3, 2)
    with pytest.raises(UserError, match="metric: must be one of ttft"):
        run.plot.latency(metric="tftt")


def test_what_can_not_be_drawn():
    with pytest.raises(UserError, match="keep='requests'"):
        simulate(load_text(SCENARIO), keep="summary").plot.load()
    with pytest.raises(UserError, match="no request arrived"):
        simulate(load_text(SCENARIO + "run: {until: 0.0001}\n")).plot.queue()


def drawn(path):
    return len(list(ElementTree.parse(path).getroot().iter(f"{SVG}path")))


def test_commands_draw(tmp_path):
    write(tmp_path, s_yaml=SCENARIO, e_csv=EVENTS)
    for command, *options in (
        ("run", "s.yaml"), ("gate", "s.yaml", "--replications", 3), ("metrics", "e.csv"),
    ):  # fmt: skip
        path = tmp_path / f"{command}.svg"
        said = llmqsim(command, tmp_path / options[0], *options[1:], "--figure", path)
        assert said.code in (0, 1, 3), said.err
        assert drawn(path) > 10, command


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("run", "s.yaml", "--figure", "a.gif"), "unknown kind of picture"),
        (("run", "s.yaml", "--figure", "no/a.svg"), "does not exist"),
        (("run", "s.yaml", "--figure", "a.svg", "--keep", "summary"), "keeps no requests to draw"),
        (("gate", "s.yaml", "--figure", "s.yaml"), "is an input of this command"),
    ],
)
def test_bad_figures(tmp_path, monkeypatch, argv, says):
    write(tmp_path, s_yaml=SCENARIO)
    monkeypatch.chdir(tmp_path)
    said = llmqsim(*argv)
    assert said.code == 2 and says in said.err and said.out == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.yaml"]


def test_without_matplotlib(tmp_path, monkeypatch):
    import sys

    write(tmp_path, s_yaml=SCENARIO)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = llmqsim("run", tmp_path / "s.yaml", "--figure", tmp_path / "a.svg")
    assert said.code == 2 and "pip install 'llmqsim[figures]'" in said.err


def test_notebooks_show_scenarios_runs_and_answers(tmp_path, run):
    write(tmp_path, s_yaml=SCENARIO)
    told = compare(str(tmp_path / "s.yaml"), ["slow"], 2)
    for shown, says in (
        (load_text(SCENARIO)._repr_html_(), "workload.arrivals.rate"),
        (run._repr_html_(), "90 % was asked for"),
        (told._repr_html_(), "slow against base: worse in"),
    ):
        text = "".join(Page(shown).text)
        assert says in text
    assert "&lt;b&gt;" in load_text(SCENARIO.replace("Does one", "<b> Does one"))._repr_html_()
    assert told.figure().axes and pickle.loads(pickle.dumps(told))._repr_html_() == told._repr_html_()
    said = llmqsim(
        "compare", tmp_path / "s.yaml", "--variants", "slow", "--replications", 2, "--json", tmp_path / "c.json"
    )
    assert said.code == 0 and {**told, "scenario": None} == {**strict_json(tmp_path / "c.json"), "scenario": None}


def test_public_names_complete():
    assert set(package.__all__) <= set(dir(package))
    assert {"load", "simulate", "Result"} <= set(dir(package))
