"""Options of the commands: made from the settings, so that each default, limit and choice is stated once."""

from __future__ import annotations

import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from jaxspec.cli.completion import completion_of
from jaxspec.cli.given_once import ListOption
from jaxspec.errors import InputError
from jaxspec.files import to_json, write_text
from jaxspec.output_places import check_figure_place, check_file_place
from jaxspec.settings import layered_config, read_layer
from jaxspec.settings.base import ConfigType, Settings, quick_help
from jaxspec.settings.coercion import as_path, short_number
from jaxspec.settings.fields import explained, fields_of, flag_of, has_flag, hints, takes_several

__all__ = [
    "FIRST",
    "config_option",
    "force_option",
    "json_option",
    "option_of",
    "out_option",
    "plot_option",
    "quick_option",
    "resolve",
    "settings_options",
    "write_json",
]

Function = TypeVar("Function", bound=Callable[..., Any])

#: Settings that help shows first, where a command has them: those that newcomers need.
FIRST = ("model", "architecture", "device", "engine", "batch", "context", "acceptance", "draft_length")
FIRST += ("draft", "scheme", "text")


class _Whole(click.types.IntParamType):
    """A whole number, be it as "128k"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = short_number(value)
        return super().convert(value, param, ctx) if found is None else found


def option_of(kind: type[Settings], name: str) -> Callable[[Function], Function]:
    """The option of one setting. Click knows no default of it, so that a file may stand between flag and default."""
    field, annotation = kind.__dataclass_fields__[name], hints(kind)[name]
    text = explained(field, annotation)
    # Numbers, or nothing; several of them come as one text.
    parts = (annotation, *(typing.get_args(annotation) if typing.get_origin(annotation) is not tuple else ()))
    flag = flag_of(field)
    if bool in parts:
        return click.option(f"{flag}/--no-{flag.removeprefix('--')}", name, default=None, help=text)
    number = str if str in parts else next((part for part in parts if part in (int, float)), str)
    number = _Whole() if number is int else number
    kind_of_option = ListOption if takes_several(annotation) else click.Option
    complete = completion_of(field, annotation)
    return click.option(flag, name, cls=kind_of_option, type=number, help=text, shell_complete=complete)


def settings_options(kind: type[Settings], *, without: tuple[str, ...] = ()) -> Callable[[Function], Function]:
    """An option for each setting but tables: the most common ones, then the others in the order of the fields."""
    place = {name: index for index, name in enumerate(FIRST)}
    shown = sorted(fields_of(kind), key=lambda field: place.get(field.name, len(place)))

    def decorate(function):
        for field in reversed(shown):
            if field.name not in without and has_flag(hints(kind)[field.name]):
                function = option_of(kind, field.name)(function)
        return function

    return decorate


def _place(check: Callable[[str, str], None]) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A path that is checked when the command line is read, before any work."""

    def callback(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value is None:
            return None
        path = as_path(parameter.opts[0], value)
        check(path, parameter.opts[0])
        return path

    return callback


#: `--json FILE`, the same on every command.
json_option = click.option(
    "--json",
    "json_file",
    type=click.Path(),
    callback=_place(check_file_place),
    help="Also write the result to this file.",
)
#: `--config FILE`, the same on every command that has settings.
config_option = click.option(
    "--config", "config_file", type=click.Path(), help="TOML file of settings; flags win over it."
)


def quick_option(kind: type[Settings]) -> Callable[[Function], Function]:
    """`--quick`, with what it changes."""
    return click.option("--quick", is_flag=True, help=quick_help(kind))


def out_option(
    what: str,
    default: str,
    *names: str,
    check: Callable[[str, str], None],
) -> Callable[[Function], Function]:
    """`--out PATH`.

    Args:
        check: of the place.
        default: place used without it, in words.
        names: further names of the option.
    """
    text = f"{what} [default: {default}]"
    return click.option("--out", *names, type=click.Path(), callback=_place(check), help=text)


def plot_option(what: str) -> Callable[[Function], Function]:
    """`--plot FILE`."""
    return click.option(
        "--plot", type=click.Path(), callback=_place(check_figure_place), help=f"{what} [.png, .svg, .pdf]"
    )


def force_option(what: str) -> Callable[[Function], Function]:
    """`--force`."""
    return click.option("--force", is_flag=True, help=what)


def resolve(
    kind: type[ConfigType], flags: dict[str, Any], config_file: str | None = None, quick: bool = False
) -> ConfigType:
    """Flag over file over (quick) default.

    Raises:
        InputError: a setting that cannot be used.
    """
    config = layered_config(kind, flags, {} if config_file is None else read_layer(config_file), quick=quick)
    names = hints(kind)
    for name in (name for name, value in flags.items() if value is not None):
        if isinstance(flags[name], str) and typing.get_origin(names[name]) is tuple:
            parts = [part.strip() for part in flags[name].split(",")]
            if typing.get_args(names[name])[0] is not float and len(set(parts)) < len(parts):
                twice = next(part for part in parts if parts.count(part) > 1)
                click.echo(f"note: {name} {twice!r} came more than once and counts once", err=True)
    return config


def write_json(path: str | None, result: Any) -> None:
    """Write --json, whole or not at all."""
    if path:
        try:
            write_text(Path(path), to_json(result))
        except OSError as error:
            raise InputError(f"--json {path!r} cannot be written ({error.strerror}); give another file") from error
