"""`tree` as a user calls it; a whole call is among the tests of its runs."""

import pytest
from command_calls import refused, run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_help_teaches(capsys):
    code, out, _ = run(capsys, "tree", "--help")
    assert code == 0
    assert "jaxspec tree --device rtx-4090,alveo-v80 --contexts 512,4096,32768" in out
    assert "Do not speculate" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--draft", "nobody"), "draft 'nobody' is unknown"),
        (("--draft", "x" * 300), "is unknown"),
        (("--draft", ""), "draft '' is unknown"),
        (("--device", "rtx-409"), "did you mean 'rtx-4090'"),
        (("--search", "luck"), "allowed are prior, width, depth, greedy"),
        (("--nodes", "0"), "nodes is 0; allowed is 1 to 512"),
        (("--nodes", "3", "--depth", "5", "--search", "depth"), "depth is 5; 3 nodes can have 1 to 3 levels"),
        (("--depth", "65"), "allowed is 1 to 64"),
        (("--contexts", "1k"), "whole numbers, separated by commas"),
        (("--weight-prune", "0.96"), "allowed is 0 to 0.95"),
        (("--model", "nowhere"), "nowhere"),
        (("--node", "3"), "did you mean --nodes"),
    ],
)
def test_bad_input_is_one_line_and_code_2(capsys, arguments, words):
    assert words in refused(capsys, "tree", *arguments)
