"""An option that takes one value and comes twice is refused, in every command; one meant to be repeated is not."""

import click
import pytest
from command_calls import refused

from jaxspec.cli.app import cli
from jaxspec.cli.runs import merge

PLACES = {"--json": "a.json", "--plot": "a.png", "--out": "a"}


def commands():
    """Words on the command line, with the command that they call."""
    context = click.Context(cli)
    for name in cli.list_commands(context):
        found = cli.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from (((name, inner), found.commands[inner]) for inner in found.commands)
        else:
            yield (name,), found
    yield ("sweep", "merge"), merge


def values(option):
    """What a parser takes for one option, twice."""
    if option.is_flag:
        return [option.opts[0], option.secondary_opts[0]]
    value = str(PLACES.get(option.opts[0], "1"))
    if isinstance(option.type, click.Choice):
        value = option.type.choices[0]
    return [option.opts[0], value, option.opts[-1], value]


CASES = [
    (words, option)
    for words, command in commands()
    for option in command.params
    if isinstance(option, click.Option) and (not option.is_flag or option.secondary_opts)
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_command_and_option_is_tried():
    assert {words[0] for words, _ in CASES} == set(cli.list_commands(click.Context(cli)))
    assert len(CASES) > 400


@pytest.mark.parametrize("words", dict.fromkeys(words for words, _ in CASES), ids=" ".join)
def test_a_second_value_is_refused_and_not_taken_silently(words, capsys, tmp_path):
    needed = {("unpack",): ["x"], ("inspect",): ["x"], ("sweep", "merge"): ["x"]}.get(words, [])
    needed += ["x"] if words[0] == "runs" and words[1] != "list" else []
    for option in (option for of, option in CASES if of == words):
        line = refused(capsys, *words, *needed, *values(option))
        assert f"{max(option.opts, key=len)} came 2 times; give it once" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "option", "several"), [("predict", "--device", True), ("tree", "--context", False)]
)
def test_a_list_is_told_how_it_is_written(command, option, several, capsys):
    line = refused(capsys, command, option, "1", f"{option}=2")
    assert (f"between several values: {option} A,B" in line) == several
