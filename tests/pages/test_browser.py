"""Every answer's page in a real Chromium: it renders, the console is quiet, nothing is fetched, and it can be worked with."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.commands import SCENARIO, llmqsim, write
from tests.pages import browser
from tests.pages.markup import Page

pytestmark = pytest.mark.long

SERVED = """\
question: Do two replicas keep up?
workload:
  requests: 600
  arrivals: {process: poisson, rate: 11 req/s}
  lengths: {prompt: 100, output: {exponential: {mean: 20}}}
replicas: 2
routing: least_outstanding
cost: {model: affine, base: 8 ms, per_decode_request: 1 ms}
engine: {max_num_seqs: 8, num_gpu_blocks_override: 500}
slo: {ttft: 300 ms, attainment: 0.9}
variants: {three: {replicas: 3}}
"""
GRID = """\
scenario: b.yaml
axes: {replicas: [1, 2, 3], engine.max_num_seqs: [2, 8]}
pareto: {utilisation.busy: low, attainment: high, ttft_s.p99: low}
"""
WIDTHS = (375, 1440)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page of every answer, as a user makes them."""
    made = write(tmp_path_factory.mktemp("pages"), s_yaml=SCENARIO, b_yaml=SERVED, g_yaml=GRID)
    base, commands = made / "b.yaml", {
        "compare": ("compare", "--variants", "three", "--replications", 3),
        "size": ("size", "--no-headroom"),
        "capacity": ("capacity", "--replications", 2),
        "advise": ("advise",),
        "gate": ("gate", "--replications", 3),
    }  # fmt: skip
    for name, (command, *options) in commands.items():
        outputs = ("--json", made / f"{name}.json", "--figure", made / f"{name}.svg")
        said = llmqsim(command, base, *options, *outputs)
        assert (made / f"{name}.json").is_file(), said.err
    outputs = ("--store", made / "g.sqlite", "--json", made / "sweep.json", "--figure", made / "sweep.svg")
    said = llmqsim("sweep", made / "g.yaml", *outputs)
    assert said.code == 0, said.err
    found = {}
    for name in [*commands, "sweep"]:
        said = llmqsim("report", made / f"{name}.json", "-o", made / f"{name}.html")
        assert said.code == 0, said.err
        found[name] = made / f"{name}.html"
    assert llmqsim("report", made / "s.yaml", "-o", made / "run.html").code == 0
    return {"run": made / "run.html", **found}


def test_every_page_is_well_formed_and_small(pages):
    for path in pages.values():
        Page(path.read_text(encoding="utf-8")).check_read_aloud()
        assert path.stat().st_size < 3_000_000


def test_every_answer_has_a_figure(pages):
    for name, path in pages.items():
        if name != "run":
            drawn = ElementTree.parse(path.with_suffix(".svg")).getroot()
            assert len(list(drawn.iter("{http://www.w3.org/2000/svg}path"))) > 10, name


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if browser.found() is None:
        pytest.skip(f"no headless Chromium here (looked for {', '.join(browser.NAMES)})")
    one = browser.Browser(tmp_path_factory.mktemp("chromium"))
    yield one
    one.close()


def test_they_render_quietly_at_both_widths(pages, chromium):
    for path in pages.values():
        for width in WIDTHS:
            for dark in (False, True):
                chromium.errors.clear()
                asked = chromium.open(path, width, 900, dark)
                assert asked == [path.resolve().as_uri()]
                assert chromium.errors == []
                charts = chromium.run("document.querySelectorAll('figure.chart').length")
                assert chromium.run("document.documentElement.dataset.ready") == str(charts)
                assert chromium.run("document.documentElement.scrollWidth") <= width, path.name
                ground = chromium.run("getComputedStyle(document.body).backgroundColor")
                assert ground == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
                flat = "[...document.querySelectorAll('.area')].filter(a => a.clientWidth < 200 || a.clientHeight < 100).length"
                assert chromium.run(flat) == 0


def test_a_picture_is_more_than_one_colour(pages, chromium, tmp_path):
    chromium.open(pages["run"], 1440, 900)
    chromium.picture(tmp_path / "p.png", whole=False)
    from matplotlib.image import imread

    assert len({tuple(pixel) for pixel in imread(tmp_path / "p.png")[::4, ::4].reshape(-1, 4).tolist()}) > 20


def test_hover_keys_and_zoom(pages, chromium):
    chromium.open(pages["run"], 1440, 900)
    first = "document.querySelector('figure.chart')"
    box = chromium.run(
        f"(r => [r.left, r.top, r.width, r.height])({first}.querySelector('.area').getBoundingClientRect())"
    )
    x, y, w, h = box
    chromium.mouse("mouseMoved", x + w / 2, y + h / 2)
    said = chromium.run(f"{first}.querySelector('.read').textContent")
    assert said.startswith("time ") and "arrive" in said and "are completed" in said
    told = chromium.run(f"JSON.parse({first}.querySelector('script').textContent)")
    at = min(range(len(told["x"])), key=lambda i: abs(told["x"][i] - (told["range"][0] + told["range"][1]) / 2))
    assert f"arrive {told['series'][0]['values'][at]:.3g}".rstrip("0").rstrip(".") in said
    chromium.mouse("mousePressed", x + w / 4, y + h / 2, down=True)
    chromium.mouse("mouseMoved", x + w / 2, y + h / 2, down=True)
    chromium.mouse("mouseReleased", x + w / 2, y + h / 2)
    view = "[...document.querySelectorAll('figure.chart svg[preserveAspectRatio]')].map(s => s.getAttribute('viewBox'))"
    views = chromium.run(view)
    low, _, wide, _ = map(float, views[0].split())
    assert low == pytest.approx(250, abs=3) and wide == pytest.approx(250, abs=5)
    assert views.count(views[0]) > 3 and "0 0 1000 1000" in views  # those over time together, distributions not
    chromium.run(f"{first}.querySelector('.area').focus()")
    chromium.key("Escape")
    assert set(chromium.run(view)) == {"0 0 1000 1000"}
    chromium.key("Home")
    chromium.key("ArrowRight")
    assert chromium.run(f"{first}.querySelector('.read').textContent").startswith("time ")
    chromium.key("+")
    assert chromium.run(view)[0] != "0 0 1000 1000"


def test_values_sort_and_filter(pages, chromium):
    chromium.open(pages["run"], 1440, 900)
    first = "document.querySelector('figure.chart')"
    chromium.run(f"{first}.querySelector('.values').click()")
    rows = chromium.run(f"{first}.querySelectorAll('table tr').length")
    assert rows == chromium.run(f"JSON.parse({first}.querySelector('script').textContent).x.length") + 1
    table = "[...document.querySelectorAll('table.sortable')].at(-1)"
    column = f"[...{table}.tBodies[0].rows].filter(r => !r.hidden).map(r => Number(r.cells[0].dataset.v))"
    before = chromium.run(column)
    chromium.run(f"{table}.querySelector('th button').click()")
    assert chromium.run(column) == sorted(before) != before
    chromium.run(f"{table}.querySelector('th button').click()")
    assert chromium.run(column) == sorted(before, reverse=True)
    field = f"{table}.closest('.scroll').previousElementSibling.querySelector('input')"
    chromium.run(f"(f => {{ f.value = 'completed'; f.dispatchEvent(new Event('input')); }})({field})")
    assert len(chromium.run(column)) == len(before)
    chromium.run(f"(f => {{ f.value = 'nothing like it'; f.dispatchEvent(new Event('input')); }})({field})")
    assert chromium.run(column) == []


def test_the_data_can_be_saved(pages, chromium):
    chromium.open(pages["compare"], 1440, 900)
    assert chromium.run("document.querySelector('button.save').hidden") is False
    chromium.run(
        "window.kept = null; URL.createObjectURL = b => (window.kept = b, 'blob:x');"
        "HTMLAnchorElement.prototype.click = () => {}; document.querySelector('button.save').click()"
    )
    text = chromium.run("window.kept.text()")
    assert json.loads(text) == Page(Path(pages["compare"]).read_text(encoding="utf-8")).data["answer-0"]
