"""Outputs are whole or not there, keep links, never replace what is read; text for terminals that lack characters."""

from __future__ import annotations

import os

import pytest

from llmqsim import terminal
from llmqsim.errors import DataError
from llmqsim.files import check_outputs, read_bytes, write, write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_every_place_that_can_not_be_written_is_named(tmp_path):
    with pytest.raises(DataError) as error:
        check_outputs({"--json": tmp_path, "--requests": tmp_path / "nowhere" / "x", "--third": "", "--no": None})
    folder, missing, empty = error.value.faults
    assert "is a folder" in folder and "does not exist" in missing and "--third" in empty


def test_outputs_meet_neither_inputs_nor_each_other_whatever_they_are_called(tmp_path):
    (tmp_path / "in").write_text("mine")
    (tmp_path / "link").symlink_to("in")
    with pytest.raises(DataError, match="input of this command"):
        check_outputs({"--json": tmp_path / "link"}, [tmp_path / "in"])
    with pytest.raises(DataError, match="named for --json"):
        check_outputs({"--json": tmp_path / "x", "--requests": tmp_path / "." / "x"})
    check_outputs({"--json": "/dev/null", "--requests": "/dev/null"})


def test_a_link_stays_one_and_a_long_name_is_no_obstacle(tmp_path):
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "x\n")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "x\n"
    write_text(tmp_path / ("n" * 255), "x")
    with pytest.raises(DataError, match="name"):
        write_text(tmp_path / ("n" * 256), "x")


def test_what_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "x"
    target.write_text("old")

    def fail(file):
        file.write("new")
        raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match="no space left"):
        write(target, fail)
    assert target.read_text() == "old" and names(tmp_path) == ["x"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_devices_are_written_to_and_not_replaced():
    write_text("/dev/null", "x")
    with pytest.raises(DataError, match="no space left"):
        write_text("/dev/full", "x")
    assert not os.path.isfile("/dev/null")


@pytest.mark.parametrize("name", ("missing", ".", "n" * 300, "a\0b"))
def test_what_can_not_be_read_is_one_sentence(name):
    with pytest.raises(DataError, match="a trace was expected|can't be read"):
        read_bytes(name, "a trace")


def test_text_of_a_user_can_not_steer_the_terminal():
    assert terminal.plain("a\x1b[31mb\r\n\u202ec") == "a?[31mb?\n?c"
    assert terminal.plain("Größe 数") == "Größe 数"


def test_columns_of_a_text():
    assert terminal.width("数a") == 3 and terminal.width("e\u0301") == 1 and terminal.width("abc") == 3


def test_characters_that_a_terminal_lacks_are_spelt_out():
    terminal.prepare()
    assert "2 × ≤ 数 … \udcff".encode("ascii", "llmqsim") == b"2 x <= ? ... ?"
