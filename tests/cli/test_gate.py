"""llmqsim gate in a CI (user case S15), its exit codes and files, and the pytest plugin."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from llmqsim.planner import gate as planner_gate
from llmqsim.report import gate_report
from tests.cli.commands import ROOT, llmqsim, python_environment, strict_json, write

SERVICE = """\
question: Does chat keep its promise?
workload:
  requests: 1500
  arrivals: {process: poisson, rate: 12 req/s}
  lengths: {prompt: {lognormal: {mean: 200, cv: 1}}, output: {lognormal: {mean: 60, cv: 1}}}
cost: {model: affine, base: 8 ms, per_token: 10 us}
engine:
  max_num_seqs: 64
  num_gpu_blocks_override: 340
slo: {ttft: 300 ms, tpot: 50 ms, attainment: 0.99}
"""
"""a small server with memory to spare; with half of the pool it has too little"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    write(tmp_path, s_yaml=SERVICE)
    assert llmqsim("gate", "s.yaml", "--baseline", "b.yaml", "--update", "--replications", 8).code == 0
    return tmp_path


def gate(*argv: object):
    files = ("--json", "o.json", "--junit", "j.xml", "--summary", "m.md")
    return llmqsim("gate", "s.yaml", "--baseline", "b.yaml", *files, *argv)


def test_the_same_commit_twice_gives_the_same_files(here):
    kept = []
    for _ in range(2):
        said = gate()
        assert (said.code, said.err) == (0, ""), said.out
        kept.append([said.out, *((here / name).read_bytes() for name in ("o.json", "j.xml", "m.md"))])
    assert kept[0] == kept[1]
    assert strict_json(here / "o.json")["verdict"] == "kept"


def test_half_of_the_pool_breaks_the_gate_and_the_log_says_what(here, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(here / "steps.md"))
    (here / "steps.md").write_text("before\n")
    said = llmqsim("gate", "s.yaml", "--baseline", "b.yaml", "--junit", "j.xml", "--json", "o.json",
                   "--set", "engine.num_gpu_blocks_override=170")  # fmt: skip
    assert said.code == 1, said.out
    told = strict_json(here / "o.json")["scenarios"][0]["objectives"]
    broken = [o for o in told if o["verdict"] == "broken"]
    p99 = next(o for o in broken if o["name"] == "TTFT p99 against baseline")
    assert p99["baseline"] < p99["limit"] < p99["low"] < p99["value"] < p99["high"]
    line = next(text for text in said.lines if "TTFT p99 against baseline" in text)
    assert all(word in line for word in ("FAIL", "baseline", "limit at most", "["))
    suite = ET.parse(here / "j.xml").getroot()
    assert int(suite.get("failures")) == len(broken) == len(suite.findall(".//failure"))
    assert len(suite.findall(".//testcase")) == len(told)
    summary = (here / "steps.md").read_text()
    assert summary.startswith("before\n") and "FAIL" in summary and len(summary) < 2**20
    slo_line = SERVICE.splitlines().index("slo: {ttft: 300 ms, tpot: 50 ms, attainment: 0.99}") + 1
    assert f"::error file=s.yaml,line={slo_line},title=llmqsim gate::attainment" in said.out


def test_a_broken_file_is_bad_input(here):
    (here / "s.yaml").write_text(SERVICE.replace("max_num_seqs: 64", "max_num_seqs: lots"))
    before = {path.name for path in here.iterdir()}
    said = gate()
    assert said.code == 2 and "s.yaml:8: engine.max_num_seqs:" in said.err
    assert {path.name for path in here.iterdir()} == before


@pytest.mark.parametrize(
    ("sets", "codes", "word"),
    [
        (["workload.requests=120"], {3}, "inconclusive"),  # too few to decide
        (["slo.attainment=0.9995", "slo.ttft=100 ms"], {1, 3}, "attainment"),
        (["workload.arrivals.rate=400 req/s", "slo.ttft=10 h", "slo.tpot=10 h"], {1, 3}, "settles"),  # overloaded
        (["run.until=1 ms"], {1, 3}, "no data"),  # nothing arrives, nothing completes
        (["run.until=200 ms", "slo.ttft=1 ms"], {1, 3}, ""),
    ],
)
def test_it_never_passes_on_doubt(here, sets, codes, word):
    options = [item for text in sets for item in ("--set", text)]
    said = llmqsim("gate", "s.yaml", "--replications", 3, "--json", "o.json", "--junit", "j.xml", *options)
    assert said.code in codes and word in said.out, said
    strict_json(here / "o.json")
    ET.parse(here / "j.xml")


def test_updating_is_one_command_and_its_difference_is_readable(here):
    before = (here / "b.yaml").read_text().splitlines()
    assert llmqsim("gate", "s.yaml", "--baseline", "b.yaml", "--update", "--replications", 8).out.startswith("s.yaml: as it was")
    assert (here / "b.yaml").read_text().splitlines() == before
    (here / "s.yaml").write_text(SERVICE.replace("base: 8 ms", "base: 9 ms"))
    said = llmqsim("gate", "s.yaml", "--baseline", "b.yaml", "--update", "--replications", 8)
    assert "s.yaml: ttft_s.p99 " in said.out and "->" in said.out
    changed = [new for new in (here / "b.yaml").read_text().splitlines() if new not in before]
    assert 1 <= len(changed) <= 5 and all(":" in line for line in changed)


def test_a_recalibration_is_named(here):
    text = (here / "b.yaml").read_text()
    at = text.index("presets/gpus.yaml: '") + len("presets/gpus.yaml: '")
    (here / "b.yaml").write_text(text[:at] + "0" * 16 + text[at + 16 :])
    said = gate()
    assert said.code == 0 and "costs or presets are not those of the baseline: presets/gpus.yaml" in said.out
    assert "presets/gpus.yaml" in (here / "j.xml").read_text() and "presets/gpus.yaml" in (here / "m.md").read_text()


def test_a_tolerance_is_the_readers(here):
    text = (here / "b.yaml").read_text()
    (here / "b.yaml").write_text(text.replace("ttft_s.p99: 0.1", "ttft_s.p99: 9"))
    (here / "s.yaml").write_text(SERVICE.replace("base: 8 ms", "base: 9 ms"))
    assert gate().code == 1
    told = strict_json(here / "o.json")
    objectives = {o["name"]: o for o in told["scenarios"][0]["objectives"]}
    ttft, tpot = objectives["TTFT p99 against baseline"], objectives["TPOT p99 against baseline"]
    assert ttft["limit"] == pytest.approx(10 * ttft["baseline"]) and ttft["verdict"] != "broken"
    assert tpot["limit"] == pytest.approx(1.1 * tpot["baseline"], rel=0.05) and tpot["verdict"] == "broken"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("llmqsim: ", "llmqsim: 9."), "the baseline was made by version 9."),
        (("format: 1", "format: 99"), "is that of another version (got 99, this one reads 1)"),
        (("  s.yaml:", "  other.yaml:"), "has no scenario 's.yaml'"),
        (("seed: 0", "seed: 1"), "is of another traffic"),
        (("replications: 8", "replications: 5"), "needs 5 values"),
        (("scenarios:", "scenes:"), "is no baseline of llmqsim gate"),
        (("ttft_s.p99: 0.1", "ttft_s.p99: -1"), "tolerance.ttft_s.p99: must be a share from 0"),
        (("ttft_s.p99: 0.1", "ttft_s.p98: 0.1"), "unknown figure (got 'ttft_s.p98')"),
        (("tolerance:", "tolerance: ["), "is no YAML"),
    ],
)
def test_a_baseline_that_is_none(here, change, said):
    (here / "b.yaml").write_text((here / "b.yaml").read_text().replace(*change, 1))
    got = gate()
    assert (got.code, got.out) == (2, "") and said in got.err, got


def test_other_mistakes(here):
    assert "needs --baseline FILE" in llmqsim("gate", "s.yaml", "--update").err
    assert llmqsim("gate", "s.yaml", "--baseline", "none.yaml").code == 2
    (here / "plain.yaml").write_text(SERVICE.replace("slo: {", "# {"))
    assert "plain.yaml:1: slo: missing; a gate needs an SLO" in llmqsim("gate", "plain.yaml").err
    assert "is named twice" in llmqsim("gate", "s.yaml", "./s.yaml").err
    assert "is an input of this command" in llmqsim("gate", "s.yaml", "--junit", "s.yaml").err


def test_a_summary_stays_below_a_mebibyte(here):
    told = planner_gate.gate(["s.yaml"], replications=2)
    one = told["scenarios"][0]
    told["scenarios"] = [{**one, "scenario": f"{i}" * 40, "objectives": one["objectives"] * 20} for i in range(400)]
    text = gate_report.markdown(told)
    assert len(text.encode()) < 2**20 and "more" in text.splitlines()[-1]


def test_names_that_xml_can_not_hold(here):
    told = planner_gate.gate(["s.yaml"], replications=2)
    told["scenarios"][0]["scenario"] = 'a<b>&"\x07.yaml'
    assert ET.fromstring(gate_report.junit(told).encode()).find("testsuite").get("name") == 'a<b>&"?.yaml'


# The plugin ---------------------------------------------------------------------------------------------------------

TESTS = """\
import pytest

@pytest.mark.slo("ttft p90 < 300 ms, tpot < 50 ms, 95 %")
def test_kept(simulate):
    told = simulate("s.yaml")
    assert told.mean("ttft_s.p99") < 1 and told.attainment["judged"] == "kept"

@pytest.mark.slo("ttft < 1 ms")
def test_broken(simulate):
    simulate("s.yaml")

@pytest.mark.slo("ttft < 300 ms, 99 %")
def test_doubt(simulate):
    simulate("s.yaml", sets={"workload.requests": 90}, replications=2)

def test_own_slo(simulate):
    assert simulate("s.yaml", replications=2).attainment["asked"] == 0.99
"""


def test_the_plugin(here):
    (here / "test_service.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "llmqsim.pytest_plugin", "-q", "-p", "no:cacheprovider", "--strict-markers",
         "test_service.py"],
        capture_output=True, text=True, timeout=300, cwd=here,
        # where llmqsim is installed its entry point loads the plugin, too, and pytest takes no plugin twice
        env=python_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
    )  # fmt: skip
    assert "2 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "SLO broken: attainment: 0.00 %" in done.stdout and "SLO not shown to be kept" in done.stdout


def test_the_plugin_is_light():
    code = "import sys, llmqsim.pytest_plugin; print(sorted({'numpy', 'numba', 'pandas', 'pydantic', 'simpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=python_environment(), timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
    assert 'llmqsim = "llmqsim.pytest_plugin"' in (ROOT / "pyproject.toml").read_text()


def test_a_baseline_of_one_run_says_that_it_has_no_interval(tmp_path, monkeypatch):
    """Traffic that is the same in every replication is run once: its figures stand alone, then and now."""
    monkeypatch.chdir(tmp_path)
    lines = "".join(f"{i * 0.1:.1f},{100 + 7 * (i % 13)},{20 + i % 9}\n" for i in range(300))
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + lines)
    text = SERVICE.replace("  requests: 1500\n  arrivals: {process: poisson, rate: 12 req/s}\n", "")
    text = text.replace("  lengths: {prompt: {lognormal: {mean: 200, cv: 1}}, output: {lognormal: {mean: 60, cv: 1}}}\n", "")
    (tmp_path / "s.yaml").write_text(text.replace("workload:\n", "workload:\n  trace: {file: t.csv}\n"))
    assert llmqsim("gate", "s.yaml", "--baseline", "b.yaml", "--update").code == 0
    for slower, verdict in ((1.02, "kept"), (1.5, "broken")):
        said = llmqsim("gate", "s.yaml", "--baseline", "b.yaml", "--json", "o.json", "--set", f"cost.base={0.008 * slower}")
        told = [one for one in strict_json(tmp_path / "o.json")["scenarios"][0]["objectives"] if one["kind"] == "baseline"]
        moved = [one for one in told if one["name"].startswith("TPOT")]
        assert [one["verdict"] for one in moved] == [verdict] and "no interval" in moved[0]["why"]
        assert moved[0]["low"] is None and "no interval" in " ".join(said.out.split())
