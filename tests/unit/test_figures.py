"""The figures of the cost model's page: drawn from tables, the same twice; without matplotlib a plain word."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="kernel tables are parquet files")

from llmqsim.calibrate.tables import read_parts
from tests.unit.test_calibrate import decodes

SCRIPT = Path(__file__).parents[2] / "calibration" / "figures.py"
PAGE = Path(__file__).parents[2] / "docs" / "cost_model.md"


@pytest.fixture(scope="module")
def figures():
    spec = importlib.util.spec_from_file_location("calibration_figures", SCRIPT)
    module = sys.modules["calibration_figures"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["calibration_figures"]


def test_without_matplotlib_the_command_that_installs_it_is_named(figures, monkeypatch, tmp_path):
    decodes().to_parquet(tmp_path / "attention_decode.parquet")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(sys, "argv", ["figures.py", "--kernels", str(tmp_path), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match=r"pip install 'llmqsim\[figures\]'"):
        figures.main()
    assert not (tmp_path / "out").exists()


def test_a_figure_is_the_same_twice(figures, tmp_path):
    pytest.importorskip("matplotlib", reason="an extra: pip install 'llmqsim[figures]'")
    decodes().to_parquet(tmp_path / "attention_decode.parquet")
    parts, panel = list(read_parts(tmp_path)), figures.FIGURES["attention"][1]
    for name in ("one.png", "two.png"):
        figures.draw(figures.pyplot(), (panel,), parts, tmp_path / name)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.png", "two.png"))
    assert one == two and one.startswith(b"\x89PNG")


def test_the_page_shows_every_figure(figures):
    shown = PAGE.read_text(encoding="utf-8")
    for name in figures.FIGURES:
        assert f"](figures/{name}.png)" in shown
        assert 5_000 < (PAGE.parent / "figures" / f"{name}.png").stat().st_size < 150_000
