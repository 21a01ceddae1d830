"""What is kept on disk between processes is what would be worked out again, and is only read where it can be trusted."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtrit

from llmqsim import kept
from llmqsim.cost import kept as kept_costs
from llmqsim.cost import lower
from llmqsim.hardware import data
from llmqsim.jit import disk
from llmqsim.metrics.student import AT_95, NORMAL, t_quantile
from llmqsim.scenario.build import Servers
from llmqsim.simulation import prepare

SCENARIO = Path(__file__).parents[2] / "scenarios" / "first_answer.yaml"


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "costs"
    monkeypatch.setattr(disk, "homes", lambda what="kernels": [folder])
    return folder


def _cost() -> lower.StepCost:
    servers = prepare(SCENARIO).servers
    assert isinstance(servers, Servers) and isinstance(servers.deployment.cost, lower.StepCost)
    return servers.deployment.cost


def _same(a: lower.StepCost, b: lower.StepCost) -> None:
    for name in a.__dataclass_fields__:
        mine, other = getattr(a, name), getattr(b, name)
        if isinstance(mine, np.ndarray):
            assert mine.tobytes() == other.tobytes() and mine.dtype == other.dtype
        else:
            assert mine == other and type(mine) is type(other)


def test_kept_costs_are_the_lowered_ones(home, monkeypatch):
    fresh = _cost()
    (file,) = home.glob("*.npz")
    written = file.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(lower, "_lowered", None)  # would be an error: nothing is lowered
        _same(_cost(), fresh)
    for damaged in (written[:200], b"", written[:-1000] + bytes(1000)):
        file.write_bytes(damaged)
        _same(_cost(), fresh)
        assert kept_costs.read(file.stem) is not None, "what was damaged is written again"
    file.chmod(0o666)
    assert kept.read(file.name) is None, "others could have written it"


@pytest.mark.skipif(os.geteuid() != 0 if hasattr(os, "geteuid") else True, reason="only root can give a file away")
def test_what_another_user_owns_is_not_read(home):
    kept.write("a", b"mine")
    assert kept.read("a") == b"mine"
    os.chown(home / "a", 12345, 12345)
    assert kept.read("a") is None


def test_where_nothing_can_be_kept_nothing_is(home):
    home.parent.joinpath("costs").write_text("a file, not a folder")
    kept.write("a", b"mine")
    assert kept.read("a") is None


def test_the_older_half_makes_room(home, monkeypatch):
    monkeypatch.setattr(kept, "MOST_FILES", 4)
    for number in range(5):
        kept.write(str(number), b"")
        os.utime(home / str(number), (number, number))
    assert sorted(path.name for path in home.iterdir()) == ["2", "3", "4"]


def test_another_deployment_or_fit_has_another_name(tmp_path):
    (tmp_path / "fits.npz").write_bytes(b"1")
    one = kept_costs.digest_of("a", 1, fits=tmp_path)
    assert one == kept_costs.digest_of("a", 1, fits=tmp_path) != kept_costs.digest_of("a", 2, fits=tmp_path)
    (tmp_path / "fits.npz").write_bytes(b"2")
    assert kept_costs.digest_of("a", 1, fits=tmp_path) != one


@pytest.mark.parametrize("path", ("devices.yaml", "engines.yaml", "coefficients/h100-sxm.yaml"))
def test_presets_read_back_as_they_were(home, path):
    read = data.read_preset.__wrapped__
    parsed = read(path)
    (file,) = home.glob("*.json")
    assert repr(read(path)) == repr(parsed)
    file.write_text("{")
    assert read(path) == parsed and file.read_text() != "{"


def test_students_law_is_scipys():
    for degrees in (*range(1, len(AT_95) + 5), NORMAL):
        assert t_quantile(0.95, degrees) == pytest.approx(float(stdtrit(degrees, 0.975)), rel=1e-13)
        assert t_quantile(0.95, float(degrees)) == t_quantile(0.95, degrees)
    assert t_quantile(0.9, 7) == float(stdtrit(7, 0.95))
    assert t_quantile(0.95, 7.5) == float(stdtrit(7.5, 0.975))
