"""Places for results are refused before the work."""

import os
from functools import partial

import pytest

from jaxspec.errors import InputError
from jaxspec.output_places import check_apart, check_figure_place, check_file_place, check_folder_place, figure_format


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()


def test_places_that_can_be_written(tmp_path):
    for place in ("new.json", "folder/new.json", "deep/er/new.json", "file", "/dev/null", "/dev/stdout"):
        check_file_place(place, "--json")
    for place in ("folder", "new", "new/below", str(tmp_path)):
        check_folder_place(place, "--out")
    for place in ("plot", "plot.png", "plot.SVG", "a.b/plot.pdf"):
        check_figure_place(place, "--plot")
    assert figure_format("plot.SVG") == "svg"
    assert sorted(os.listdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    ("check", "place", "words"),
    [
        (check_file_place, "folder", "is a folder"),
        (partial(check_file_place, replace=False), "file", "is there already"),
        (check_file_place, "new/", "is a folder"),
        (check_file_place, "", "is a folder"),
        (check_file_place, "file/below.json", "Not a directory"),
        (check_file_place, "x" * 300, "too long"),
        (check_file_place, "a\0b", "null"),
        (check_folder_place, "file", "it is a file"),
        (check_folder_place, "file/below", "Not a directory"),
        (check_figure_place, "plot.txt", r"end it in \.png, \.svg or \.pdf"),
        (check_figure_place, "folder", "is a folder"),
    ],
)
def test_places_that_cannot(check, place, words):
    with pytest.raises(InputError, match=words):
        check(place, "--json")
    assert sorted(os.listdir()) == ["file", "folder"]


def test_a_folder_without_permission(monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may do everything
    for check in (check_file_place, check_folder_place):
        with pytest.raises(InputError, match="no permission"):
            check("folder/new", "--out")


def test_no_result_replaces_what_is_read_or_another_result(tmp_path):
    check_apart({"--json": "file", "--plot": None}, ["folder", "other"])
    check_apart({"--json": "folder/new"}, ["folder"])
    os.symlink("file", "link")
    for inputs in (["file"], [tmp_path], ["link"]):
        with pytest.raises(InputError, match="--json 'file' is a file that this command reads; give another place"):
            check_apart({"--json": "file", "--plot": None}, inputs)
    with pytest.raises(InputError, match="--json and --plot name the same file"):
        check_apart({"--json": "new.svg", "--plot": "./new.svg"}, [])
