"""What is no scenario at all: unreadable files, broken or hostile YAML, odd keys; and nothing breaks the reader."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from llmqsim.errors import ScenarioError
from llmqsim.scenario.load import Scenario, from_mapping, load, load_text

GOOD = """\
workload:
  requests: 10
  arrivals: {process: poisson, rate: 1}
  lengths: {prompt: 5, output: 5}
cost: {model: constant, step: 50 ms}
"""


def faults(text: str) -> tuple[str, ...]:
    with pytest.raises(ScenarioError) as caught:
        load_text(text, "x.yaml")
    return caught.value.faults


TEXTS = {
    "empty": ("", "x.yaml: is empty; a scenario is a YAML mapping, see docs/scenario.md"),
    "only comments": ("# nothing\n", "x.yaml: is empty; a scenario is a YAML mapping, see docs/scenario.md"),
    "a list": ("- 1\n", "x.yaml:1: must be a mapping of keys (got [1]); see docs/scenario.md"),
    "a word": ("hello\n", "x.yaml:1: must be a mapping of keys (got 'hello'); see docs/scenario.md"),
    "cut off": (
        "a: [1,\n",
        "x.yaml:2:1: not valid YAML: expected the node content, but found '<stream end>'; the file ends in the middle of a "
        "value: is it cut off, or a bracket or quote never closed?",
    ),
    "colon": (
        "a: b\nc: d: e\n",
        "x.yaml:2:5: not valid YAML: mapping values are not allowed here; check the indentation, and quote text that "
        "contains ': '",
    ),
    "tab": (
        "a:\n\tb: 3\n",
        "x.yaml:2:1: not valid YAML: found character '\\t' that cannot start any token; YAML is indented with spaces, never "
        "tabs",
    ),
    "two documents": (
        "a: 1\n---\nb: 2\n",
        "x.yaml:2:1: not valid YAML: has more than one document; remove the '---' lines",
    ),
    "alias to itself": ("a: &x [*x]\n", "x.yaml:1: nested too deeply; at most 30 levels"),
    "deep": ("a: " + "[" * 5000 + "]" * 5000, "x.yaml: is nested too deeply; at most 30 levels"),
    "unknown alias": ("a: *b\n", "x.yaml:1:4: not valid YAML: found undefined alias 'b'"),
    "control character": ("a: \x01\n", "x.yaml: not valid YAML: special characters are not allowed"),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=TEXTS)
def test_what_is_no_yaml_mapping_is_refused_with_its_place(text, expected):
    assert faults(text) == (expected,)


def test_an_anchor_bomb_is_refused_quickly():
    bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    bomb += "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]\n" for i in range(12))
    assert "more than 20000 values" in faults(bomb)[0]


KEYS = {
    "twice": ("name: a\n" + GOOD + "name: b\n", "x.yaml:7: name: written twice, first in line 1; keep one"),
    "number": (GOOD + "5: a\n", "x.yaml:6: a key must be text (got 5); put it in quotes"),
    "list": (GOOD + "? [a]\n: b\n", "x.yaml:6: a key must be text (got a list or mapping); put it in quotes"),
    "merge": (
        GOOD + "run: {<<: {seed: 3}}\n",
        "x.yaml:6: run: merge keys (<<) are not supported; use 'extends' or 'variants'",
    ),
    "object": (
        GOOD + "name: !!python/object/apply:os.system [ls]\n",
        "x.yaml:6: name: must be text (got ['ls']); write text",
    ),
    "tag": (
        GOOD + "name: !env HOME\n",
        "x.yaml:6: name: the tag !env is not allowed (got 'HOME'); write plain YAML without tags",
    ),
    "digits": (GOOD + "replicas: " + "1" * 5000, "x.yaml:6: replicas: a number of 5000 characters; write at most 40"),
    "dotted": (
        GOOD + "engine.block_size: 3\n",
        "x.yaml:6: engine.block_size: unknown key (got 3); dotted keys are for variants and --set, write nested keys here",
    ),
    "null": (GOOD + "replicsa:\n", "x.yaml:6: replicsa: unknown key (got nothing); did you mean 'replicas'?"),
}


@pytest.mark.parametrize(("text", "expected"), KEYS.values(), ids=KEYS)
def test_odd_keys_and_tags_are_refused(text, expected):
    assert faults(text) == (expected,)


def test_plain_scalars_follow_yaml_1_2():
    scenario = load_text(
        GOOD + "name: on\nquestion: 2024-01-01\nengine: {gpu_memory_utilization: 9e-1, block_size: +016}\n"
    )
    assert (scenario.spec.name, scenario.spec.question) == ("on", "2024-01-01")
    assert (scenario.spec.engine.gpu_memory_utilization, scenario.spec.engine.block_size) == (0.9, 16)


def test_anchors_are_plain_reuse():
    text = GOOD.replace("prompt: 5, output: 5", "prompt: &n {uniform: [1, 9]}, output: *n")
    assert load_text(text).to_dict()["workload"]["lengths"]["output"] == {"uniform": [1, 9]}


def test_files_that_cannot_be_read_say_why(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "zip.yaml").write_bytes(b"PK\x03\x04\0\0")
    (tmp_path / "latin.yaml").write_bytes("name: x\nquestion: caf\xe9\n".encode("latin-1"))
    (tmp_path / "long.yaml").write_bytes(b"#" * (3 * 2**20))
    expected = {
        "god.yaml": "god.yaml: no such file; did you mean 'good.yaml'?",
        "nowhere/x.yaml": "nowhere/x.yaml: no such file; there is no folder 'nowhere' either",
        ".": ".: is a directory; give the scenario file in it",
        "zip.yaml": "zip.yaml: is a binary file; a scenario is YAML text",
        "latin.yaml": "latin.yaml:2: is not UTF-8 text (got byte 0xe9); save it as UTF-8",
        "long.yaml": "long.yaml: is larger than 2097152 bytes; a scenario is a short YAML file",
        "good.yaml/x": "good.yaml/x: cannot be read: Not a directory",
    }
    for path, fault in expected.items():
        with pytest.raises(ScenarioError) as caught:
            load(path)
        assert caught.value.faults == (fault,)


def test_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load(path).where("cost") == f"{path}:5"


@pytest.mark.parametrize("value", [{1: 2}, {"engine": {None: 3}}])
def test_keys_of_python_mappings_are_text(value):
    with pytest.raises(ScenarioError, match="<mapping>: a key must be text"):
        from_mapping(value)


def test_a_mapping_in_itself_is_refused():
    endless: dict = {}
    endless["engine"] = endless
    with pytest.raises(ScenarioError, match="nested too deeply"):
        from_mapping(endless)


def reads_or_refuses(read) -> None:
    """A scenario comes out, or sentences: never another exception."""
    try:
        made = read()
    except ScenarioError as error:
        assert all(error.faults)
    else:
        assert isinstance(made, Scenario)


WORDS = st.sampled_from(
    [*"[]{}:,-#&*!|>'\"%@`\n\t ", "a", "5", "1e3", ".nan", "workload", "engine:", "? ", "<<: ", "null"]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(WORDS, max_size=30).map("".join), st.integers(0, len(GOOD)))
def test_no_text_breaks_the_reader(junk, at):
    reads_or_refuses(lambda: load_text(GOOD[:at] + junk + GOOD[at:]))


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from(["1 s", "fp8"])
)
VALUES_ANY = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["model", "file", "cv", "x"]), inner),
)


def paths(tree, prefix=""):
    for key, value in tree.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{key}.")


FULL = yaml.safe_load(GOOD) | {
    "engine": {"host": {"per_step": 1}},
    "slo": {"ttft": 1},
    "run": {},
    "routing": {"policy": "x"},
}


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from([*paths(FULL), "variants", "extends", "model"]), VALUES_ANY, max_size=3))
def test_no_value_breaks_the_checks(overrides):
    overrides = {key: value for key, value in overrides.items() if not (key == "extends" and isinstance(value, str))}
    top = {key: value for key, value in overrides.items() if "." not in key}
    reads_or_refuses(lambda: from_mapping(FULL | top, sets=overrides))
    reads_or_refuses(lambda: from_mapping(FULL | {"variants": {"v": overrides}}, variant="v"))


def test_nothing_heavy_is_imported_to_read_a_scenario(tmp_path):
    (tmp_path / "x.yaml").write_text(GOOD)
    code = (
        "import sys; from llmqsim.scenario.load import load; load('x.yaml'); "
        "print([m for m in ('numba', 'scipy', 'pandas', 'simpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
