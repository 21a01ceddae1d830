"""`llmqsim run`, end to end: options, screen, JSON, CSV, exit codes, determinism."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import subprocess
import sys

import pytest

from tests.cli.commands import (
    AZURE,
    ROOT,
    SCENARIO,
    SERVED,
    TRACE,
    llmqsim,
    process,
    python_environment,
    strict_json,
    write,
)

KEYS = [
    "engine", "requests", "ttft_s", "tpot_s", "ntpot_s", "itl_s", "e2e_s", "attainment", "goodput_per_s",
    "throughput", "utilisation", "kv", "preemptions", "waiting_for", "stability", "envelope", "scenario", "seed",
    "version",
]
BENCH_KEYS = (
    "completed total_input_tokens total_output_tokens request_throughput output_throughput "
    + " ".join(f"{what}_{name}_ms" for name in ("ttft", "tpot", "itl") for what in ("mean", "median", "std", "p99"))
).split()
FIGURES = ("mean", "p50", "p90", "p95", "p99", "max")
OVERLOAD = ("workload.requests=300", "workload.arrivals.rate=100", "engine.max_num_seqs=1")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, s_yaml=SCENARIO, served_yaml=SERVED, t_csv=TRACE, azure_csv=AZURE)


def sets(*overrides: str) -> list[str]:
    return [part for override in overrides for part in ("--set", override)]


def figures(here, *argv: str, name: str = "out.json") -> dict:
    said = llmqsim("run", *argv, "--json", name)
    assert said.code == 0, said.err
    return strict_json(here / name)


# What the screen shows ------------------------------------------------------------------------------------------

SCREENS = {
    "stable": ["s.yaml"],
    "calibrated": ["served.yaml"],
    "overloaded": ["s.yaml", *sets(*OVERLOAD)],
    "unfinished": ["s.yaml", *sets("run.until=3 s", *OVERLOAD)],
    "nothing arrived": ["s.yaml", *sets("run.until=1 ms")],
    "nothing finished": ["s.yaml", *sets("run.until=5 s", "cost.step=1 s")],
    "one request": ["s.yaml", *sets("workload.requests=1")],
    "one token": ["s.yaml", *sets("workload.lengths.output=1")],
    "some rejected": ["s.yaml", *sets("engine.max_model_len=200", "workload.lengths.prompt={uniform: [1, 400]}")],
    "preempted": ["s.yaml", *sets("engine.num_gpu_blocks_override=9", "workload.arrivals.rate=50")],
    "many replicas": ["s.yaml", *sets("replicas=1000")],
    "no SLO": ["s.yaml", *sets("slo=null")],
    "all targets": ["served.yaml", *sets("slo.e2e=10 s", "replicas=12", "tensor_parallel_size=2")],
    "long question": ["s.yaml", *sets("question=" + "why " * 200)],
    "burst": ["s.yaml", *sets("workload.arrivals={process: burst}")],
    "trace": ["s.yaml", "--trace", "azure.csv"],
    "very slow": ["s.yaml", *sets("cost.step=1e6", "workload.requests=20")],
    "rate of one in thirty years": ["s.yaml", *sets("workload.arrivals.rate=1e-9", "workload.requests=1")],
}


@pytest.mark.parametrize("argv", SCREENS.values(), ids=SCREENS)
def test_the_screen_is_small_and_the_json_complete(here, argv):
    said = llmqsim("run", *argv, "--json", "out.json", "--requests", "out.csv")
    assert (said.code, said.err) == (0, "")
    assert 0 < len(said.lines) <= 25
    assert max(map(len, said.lines)) <= 100
    assert "nan" not in said.out.replace("provenance", "").lower()
    result = strict_json(here / "out.json")
    assert [key for key in [*KEYS, *BENCH_KEYS] if key not in result] == []
    for latency in ("ttft_s", "tpot_s", "ntpot_s", "itl_s", "e2e_s"):
        assert set(FIGURES) <= set(result[latency])
    requests = result["requests"]
    assert requests["arrived"] == requests["completed"] + requests["rejected"] + requests["unfinished"]


def test_columns_of_the_latency_table_never_touch(here):
    said = llmqsim("run", "s.yaml", *sets("engine.host.request_before=1e6"))
    row = next(line for line in said.lines if line.startswith("TTFT"))
    assert row.count(" s ") == 4, row  # 5 figures in s, each followed by a blank but the last


def test_a_stable_run_needs_no_warning(here):
    said = llmqsim("run", "s.yaml")
    assert said.lines[0] == "Does one server with steps of 10 ms keep up?"


def test_overload_is_an_answer_with_the_verdict_on_top(here):
    said = llmqsim("run", "s.yaml", *sets(*OVERLOAD), "--json", "out.json")
    assert said.code == 0
    assert "overloaded" in said.lines[0].lower()
    assert strict_json(here / "out.json")["stability"]["verdict"] == "overloaded"


def test_an_unfinished_run_says_so_on_top(here):
    said = llmqsim("run", "s.yaml", *sets("run.until=3 s", *OVERLOAD), "--json", "out.json")
    requests = strict_json(here / "out.json")["requests"]
    assert said.code == 0 and requests["unfinished"] > 0
    top = " ".join(said.lines[:3])
    assert "overloaded" in said.lines[0].lower() or "unsettled" in said.lines[0].lower()
    assert f"{requests['unfinished']:,} did not" in top.replace("\n", " ")


def test_no_answer_claims_that_nobody_waited_when_nobody_was_served(here):
    said = llmqsim("run", "s.yaml", *sets("run.until=1 ms"))
    assert "taken up at once" not in said.out


def test_a_rejection_reads_as_a_count(here):
    said = llmqsim("run", "s.yaml", *sets("engine.max_model_len=200", "workload.lengths.prompt={uniform: [1, 400]}"))
    text = " ".join(" ".join(said.lines).split())
    assert "rejected" in text
    assert not re.search(r"max.model.len \d", text), "reads as if max_model_len were that number"


# What the options do --------------------------------------------------------------------------------------------


def test_times_follow_from_steps_of_10_ms(here):
    result = figures(here, "s.yaml", *sets("workload.requests=1"))
    assert result["ttft_s"]["max"] == pytest.approx(0.010, abs=1e-9)
    assert result["tpot_s"]["max"] == pytest.approx(0.010, abs=1e-9)
    assert result["e2e_s"]["max"] == pytest.approx(0.100, abs=1e-9)
    assert result["total_output_tokens"] == 10 and result["mean_ttft_ms"] == pytest.approx(10)


def test_requests_are_one_row_each(here):
    assert llmqsim("run", "s.yaml", "--requests", "out.csv").code == 0
    rows = list(csv.DictReader((here / "out.csv").read_text().splitlines()))
    assert len(rows) == 150
    assert all(None not in row and None not in row.values() for row in rows)
    assert {row["prompt_tokens"] for row in rows} == {"100"}


def test_precedence_is_set_over_variant_over_file(here):
    slow = figures(here, "s.yaml", "--variant", "slow")
    assert slow["scenario"]["cost"]["step"] == 0.05
    both = figures(here, "s.yaml", "--variant", "slow", "--variant", "two", *sets("cost.step=20 ms"))
    assert (both["scenario"]["cost"]["step"], both["scenario"]["replicas"]) == (0.02, 2)
    assert both["tpot_s"]["mean"] == pytest.approx(0.02)


def test_seed_chooses_the_sample(here):
    first, again, other = (figures(here, "s.yaml", "--seed", seed) for seed in ("1", "1", "2"))
    assert first == again
    assert first["seed"] == first["scenario"]["run"]["seed"] == 1
    assert other["ttft_s"] != first["ttft_s"]


@pytest.mark.parametrize("name", ("t.csv", "azure.csv", "t.csv.gz"))
def test_a_trace_replaces_arrivals_and_lengths(here, name):
    (here / "t.csv.gz").write_bytes(gzip.compress(TRACE.encode()))
    result = figures(here, "s.yaml", "--trace", name)
    assert result["requests"]["arrived"] == 3
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (60, 18)
    assert result["scenario"]["workload"]["trace"]["file"] == name
    half = figures(here, "s.yaml", "--trace", name, *sets("workload.requests=2", "workload.trace.rate_scale=2"))
    assert half["requests"]["arrived"] == 2


NAMES = (
    "trace of May.csv", "Größe 数.csv", "it's.csv", "a=b.csv", "trace #1.csv", "a: b.csv", "[x].csv", "{y}.csv",
    "*.csv", "&x.csv", "!x.csv", "@x.csv", "123", "1e3", "null", "- x.csv", '"q".csv', "| x",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_trace_takes_a_file_whatever_its_name(here, name):
    (here / name).write_text(TRACE)
    said = llmqsim("run", "s.yaml", "--trace", name)
    assert said.code == 0, said.err


def test_the_resolved_scenario_runs_again_to_the_same_figures(here):
    first = figures(here, "served.yaml", *sets("workload.lengths=azure-conversation", "replicas=2"), "--seed", "5")
    (here / "again.yaml").write_text(json.dumps(first["scenario"]))  # JSON is YAML
    again = figures(here, "again.yaml")
    # it writes down every key, and says of those that were left to their defaults, too, what changes nothing
    assert {one["key"] for one in first.pop("no_effect")} <= {one["key"] for one in again.pop("no_effect")}
    assert again == first


def test_outputs_keep_links_and_replace_old_files(here):
    write(here, old_json="old", real_json="old")
    (here / "link.json").symlink_to(here / "real.json")
    figures(here, "s.yaml", name="old.json")
    figures(here, "s.yaml", name="link.json")
    assert (here / "link.json").is_symlink(), "the link was replaced by a file"
    assert strict_json(here / "real.json")["requests"]["arrived"] == 150


# As a process ---------------------------------------------------------------------------------------------------


def test_a_trace_is_found_from_a_scenario_in_a_linked_folder(here):
    (here / "real" / "deep").mkdir(parents=True)
    write(here / "real" / "deep", s_yaml=SCENARIO)
    (here / "link").symlink_to(here / "real" / "deep")
    said = llmqsim("run", "link/s.yaml", "--trace", "t.csv")
    assert said.code == 0, said.err


def test_trace_keeps_the_rate_scale_of_the_scenario(here):
    """--trace names another file; what the scenario says about its replay still holds."""
    text = SCENARIO.replace("  arrivals: {process: poisson, rate: 4 req/s}\n  lengths: {prompt: 100, output: 10}\n", "")
    write(here, replay_yaml=text.replace("  requests: 150\n", "  trace: {file: azure.csv, rate_scale: 2}\n"))
    own, named = figures(here, "replay.yaml"), figures(here, "replay.yaml", "--trace", "t.csv")
    assert own["scenario"]["workload"]["trace"]["rate_scale"] == 2
    assert named["scenario"]["workload"]["trace"]["rate_scale"] == 2


def test_two_processes_write_the_same_bytes(here):
    files = []
    for seed in ("1", "2"):
        argv = ("served.yaml", "--seed", "3", "--json", f"{seed}.json", "--requests", f"{seed}.csv")
        done = process("run", *argv, PYTHONHASHSEED=seed)
        assert done.code == 0, done.err
        files.append((done.out, (here / f"{seed}.json").read_bytes(), (here / f"{seed}.csv").read_bytes()))
    assert files[0] == files[1]
    assert str(here).encode() not in files[0][1], "the folder of the run must not be in the result"


def test_exit_codes_of_a_process(here):
    assert process("run", "s.yaml").code == 0
    for argv in (("run", "nope.yaml"), ("run",), ("run", "s.yaml", "--sed", "x=1"), ("nonsense",), ()):
        done = process(*argv)
        assert (done.code, done.out) == (2, ""), argv
        assert done.err and "Traceback" not in done.err, argv


def test_help_imports_nothing_heavy(here):
    code = (
        "import sys\nfrom llmqsim.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit as leaving: assert not leaving.code\n"
        "heavy = {'numba', 'numpy', 'scipy', 'pandas', 'simpy', 'pydantic', 'yaml'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=python_environment(), cwd=ROOT, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"run" in done.stdout


def test_a_reader_that_stops_early_is_no_error(here):
    command = [sys.executable, "-m", "llmqsim.cli", "run", "s.yaml"]
    assert llmqsim("run", "s.yaml").code == 0  # compiled
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=python_environment())
    child.stdout.close()
    err = child.stderr.read()
    assert (child.wait(timeout=60), err) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_under_stdout_is_one_sentence(here):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "llmqsim.cli", "run", "s.yaml"],
            stdout=full, stderr=subprocess.PIPE, env=python_environment(), timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.decode() == "llmqsim: the answer can't be written to standard output (No space left on device)\n"


def test_a_file_name_that_is_no_unicode(here):
    name = os.fsdecode(b"tr\xff.csv")
    try:
        (here / name).write_text(TRACE)
    except (OSError, UnicodeError):
        pytest.skip("this file system takes no such name")
    result = figures(here, "s.yaml", "--trace", name)
    assert result["scenario"]["workload"]["trace"]["file"] == name
    done = process("run", "s.yaml", "--trace", name)
    assert (done.code, done.err) == (0, "") and "tr?.csv" in done.out


@pytest.mark.parametrize("command", ("run", "explain"))
def test_a_question_can_not_steer_the_terminal(here, command):
    text = SCENARIO.replace("question: Does", r'question: "\e[31mDoes').replace("up?", 'up?"')
    write(here, red_yaml=text)
    said = llmqsim(command, "red.yaml")
    assert said.code == 0, said.err
    assert "\x1b" not in said.out and "?[31mDoes" in said.out


@pytest.mark.parametrize("encoding", ("ascii", "cp1252", "latin-1"))
def test_a_terminal_that_lacks_a_character_still_gets_the_answer(here, encoding):
    done = process("run", "served.yaml", PYTHONIOENCODING=encoding)
    assert (done.code, done.err) == (0, "")
    assert "TTFT" in done.out
