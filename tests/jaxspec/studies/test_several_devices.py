"""Whole runs on a mesh of eight devices, and on one. Minutes: `pytest -m slow`."""

import pytest
from runs_on_devices import check_same, check_stages, ended, result, start, write_settings

pytestmark = pytest.mark.study


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_model, some_text, small):
    path = tmp_path_factory.mktemp("devices")
    write_settings(path, tiny_model, some_text, small)
    return path


def test_scaling_on_eight_devices_is_scaling_on_one(folder):
    """To the last token of every sample, every branch that a search chose, and every accepted token."""
    ended(start(folder, "scale", "one", devices=1))
    _, error = ended(start(folder, "scale", "eight", "--mesh", "data=4,tensor=2", devices=8))
    assert "on each of 8 devices (data=4,tensor=2)" in " ".join(error.split())
    check_same(result(folder, "eight"), result(folder, "one"))
    check_stages(folder, "eight", "one", ("samples/0/0", "samples/0/8", "beams/0-4/0", "beams/0-4/8", "drafted/0"))


@pytest.mark.parametrize("command", ["tree", "compare"])
def test_measuring_on_eight_devices_is_measuring_on_one(folder, command):
    ended(start(folder, command, f"{command}-one", devices=1))
    ended(start(folder, command, f"{command}-eight", "--mesh", "data=4,tensor=2", devices=8))
    check_same(result(folder, f"{command}-eight"), result(folder, f"{command}-one"))
