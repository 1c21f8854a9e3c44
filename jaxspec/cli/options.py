"""Options that mean the same in every command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from jaxspec.errors import InputError
from jaxspec.files import to_json, write_text
from jaxspec.output_places import check_figure_place, check_file_place, check_folder_place
from jaxspec.runs.config import QUICK, CommonConfig, CommonType, build_config, read_toml

Function = TypeVar("Function", bound=Callable[..., Any])

_PRICING = [
    click.option("--architecture", help="Whose cost is predicted: catalog name, 'own', or a Hugging Face config.json."),
    click.option(
        "--device", help="Device, several separated by commas, or TOML files of your own (see jaxspec devices)."
    ),
    click.option("--batch", type=int, help="Sequences decoded together, for the cost."),
    click.option("--context", type=int, help="Cached tokens per sequence, for the cost."),
]


def _place(check: Callable[[str, str], None]) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A place for results that is checked when the command line is read, before any work."""

    def callback(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            check(value, parameter.opts[0])
        return value

    return callback


#: `--json FILE`, the same on every command.
json_option = click.option(
    "--json",
    "json_file",
    type=click.Path(),
    callback=_place(check_file_place),
    help="Also write the result to this file.",
)


def plot_option(text: str) -> Callable[[Function], Function]:
    """`--plot FILE`, a figure.

    Args:
        text: its help.
    """
    return click.option("--plot", type=click.Path(), callback=_place(check_figure_place), help=text)


#: `--out FOLDER` of commands with a run directory.
run_option = click.option(
    "--out",
    type=click.Path(),
    callback=_place(check_folder_place),
    help="Run directory; default runs/<command>-<hash>.",
)

_NETWORK = [
    click.option("--model", help="'embedded', or a Hugging Face directory (Llama 3.x, Qwen3)."),
    click.option("--scheme", help="Storage of pruned values: cassandra1 (raw) or cassandra1-coded."),
    click.option("--text", help="'stdlib', or a text file: its first half calibrates, its second half is held out."),
    click.option("--temperature", type=float, help="Of decoding; 0 is greedy."),
    click.option("--prompts", type=int, help="Held-out prompts that are decoded."),
    click.option("--prompt-tokens", type=int, help="Tokens of a prompt."),
    click.option("--output-tokens", type=int, help="Tokens decoded per prompt."),
    click.option("--calibration-prompts", type=int, help="Prompts from the training text that drafts are tuned on."),
    click.option("--seed", type=int, help="Decides windows of text, steps and samples."),
    run_option,
    click.option("--config", "config_file", type=click.Path(), help="TOML file of settings; flags win over it."),
    click.option("--quick", is_flag=True, help=f"Smaller run: {', '.join(f'{k} {v}' for k, v in QUICK.items())}."),
    click.option("--force", is_flag=True, help="Start the run directory anew."),
]


def _apply(options: list[Callable]) -> Callable[[Function], Function]:
    def decorate(function):
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


#: What is priced, and on what.
pricing_options = _apply(_PRICING)
#: Which network runs on which text, and where results go.
network_options = _apply([*_NETWORK, json_option])


def resolve(kind: type[CommonType], flags: dict[str, Any], config_file: str | None, quick: bool) -> CommonType:
    """Flag over file over (quick) default."""
    import dataclasses

    names = {field.name for field in dataclasses.fields(kind)}
    defaults = {key: value for key, value in QUICK.items() if quick and key in names}
    return build_config(kind, defaults, read_toml(config_file) if config_file else {}, flags)


def write_json(path: str | None, result: Any) -> None:
    """Write --json, whole or not at all."""
    if path:
        try:
            write_text(Path(path), to_json(result))
        except OSError as error:
            raise InputError(f"--json {path!r} cannot be written ({error.strerror}); give another file") from error


def print_notes(console: Any, entries: Sequence[Mapping[str, Any]]) -> None:
    """The lines under a command's tables that say what its times cannot know."""
    from jaxspec.report.notes import note_lines

    for line in note_lines(entries):
        console.print(line, markup=False, highlight=False)


__all__ = [
    "CommonConfig",
    "json_option",
    "network_options",
    "plot_option",
    "pricing_options",
    "print_notes",
    "resolve",
    "run_option",
    "write_json",
]
