"""Options of the commands, made from the settings; their completion by the tab key; and the files that commands write.

Each default, limit and choice is stated once. A place is checked before the work (`jaxspec.output_places`); when the work is
done, a disk may be full or a folder gone: each output is tried whatever became of the others. Nothing here loads JAX.
"""

from __future__ import annotations

import dataclasses
import typing
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from jaxspec.errors import InputError, hint
from jaxspec.output_places import check_figure_place, check_file_place
from jaxspec.partial_files import to_json, write_text
from jaxspec.settings import layered_config, read_layer
from jaxspec.settings.base import ConfigType, Settings, quick_help
from jaxspec.settings.coercion import as_path, places_of_lists, short_number, shown
from jaxspec.settings.fields import (
    choices_of,
    explained,
    fields_of,
    flag_of,
    has_flag,
    hints,
    names_of,
    setting_of,
    takes_several,
    takes_text,
)

__all__ = [
    "FIRST",
    "RUN_KEEPS_IT",
    "Command",
    "Completion",
    "Group",
    "ListOption",
    "completion_of",
    "config_option",
    "force_option",
    "give_out",
    "json_option",
    "names_of_catalog",
    "option_of",
    "out_option",
    "plot_option",
    "quick_option",
    "resolve",
    "settings_options",
    "unknown_command",
    "usage_line",
    "words_or_files",
    "write_json",
]

# Wrong use of the command line in one line: a command or option that does not exist, misses something, or came twice.


def unknown_command(name: str, commands: Iterable[str], ctx: click.Context) -> click.UsageError:
    """The error for a command that does not exist."""
    return click.UsageError(f"no such command {shown(name)}{hint(name, commands, quote=False)}", ctx)


def usage_line(error: click.ClickException) -> str:
    """What came, what was perhaps meant, and where to read on."""
    ctx = getattr(error, "ctx", None)
    where = ctx.command_path if ctx is not None else "jaxspec"
    if isinstance(error, click.NoSuchOption):
        options = [] if ctx is None else [name for parameter in ctx.command.get_params(ctx) for name in parameter.opts]
        long = [name for name in options if name.startswith("--")]
        known = _ELSEWHERE.get(error.option_name) or hint(error.option_name, long, quote=False, list_all=False)
        message = f"no such option {error.option_name}{known}"
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        return f"a command is missing; {where} --help lists them"
    else:
        message = " ".join(error.format_message().split()).removesuffix(".")
        message = message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…"
    return f"{message}; see {where} --help"


#: Options that readers of engines' manuals look for, and what stands for them here.
_ELSEWHERE = {
    "--draft-device": "; a draft runs on the devices of its target, --device, or on some of them: --draft-tensor-parallel"
}

#: Click repeats what came, however long it is.
_LONGEST = 400


class ListOption(click.Option):
    """An option whose value is several ones, separated by commas."""


class Command(click.Command):
    """A command that refuses an option that came again, unless it is meant to be repeated.

    Raises:
        click.UsageError: an option with a value, or the switch between --this and --no-this, came more than once.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Words that no parameter took. Raises click.UsageError."""
        given = list(args)  # parsing takes words out
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(given)
            _refuse_repeated(order, ctx)
        return rest


class Group(Command, click.Group):
    """A group of such commands."""

    command_class = Command


def _refuse_repeated(order: Iterable[click.Parameter], ctx: click.Context) -> None:
    """Args: order: the parameters that came, each as often as it came."""
    for option, times in Counter(order).items():
        if times == 1 or not isinstance(option, click.Option) or option.multiple or option.count:
            continue
        if option.is_flag and not option.secondary_opts:
            continue  # a plain flag says the same twice
        name = max(option.opts, key=len)
        several = f", with commas between several values: {name} A,B" if isinstance(option, ListOption) else ""
        raise click.UsageError(f"{name} came {times} times; give it once{several}", ctx)


Function = TypeVar("Function", bound=Callable[..., Any])

#: Settings that help shows first, where a command has them: those that newcomers need.
FIRST = ("model", "architecture", "device", "engine", "batch", "context", "acceptance", "draft_length")
FIRST += ("draft", "scheme", "text")


class _Whole(click.types.IntParamType):
    """A whole number, be it as "128k"."""

    def __init__(self, field: dataclasses.Field):
        self._field = field

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = short_number(value)
        if number is None and "," in str(value):
            places = places_of_lists(self._field.name, setting_of(self._field), before="--")
            self.fail(f"{shown(value)} is a list; give one number, lists go to {places}", param, ctx)
        return super().convert(value, param, ctx) if number is None else number


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
    number = _Whole(field) if number is int else number
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
    what: str, default: str, *names: str, check: Callable[[str, str], None]
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


#: For commands with a run directory.
RUN_KEEPS_IT = "the run directory keeps the result: the same command writes it there without the work"


def give_out(writes: Iterable[Callable[[], object]], show: Callable[[], object], *, kept: str = "") -> None:
    """Write all files, show the result, and then tell which files are missing.

    Args:
        writes: of one file each, which is written whole or not at all.
        show: prints the result.
        kept: where the result is beside that, for the message.
    Raises:
        InputError: one line, with the place and the reason of each file that could not be written.
    """
    refused = []
    for write in writes:
        try:
            write()
        except InputError as error:
            refused.append(str(error))
    show()
    if refused:
        raise InputError("; ".join([*refused, *filter(None, [kept])]))


#: What Click calls to complete a value that is begun.
Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completion_of(field: dataclasses.Field, annotation: Any) -> Completion | None:
    """Completion of one setting; None: it takes no text."""
    if choices := choices_of(annotation):
        return lambda _, __, begun: _names(choices, begun, annotation)
    if not takes_text(annotation):
        return None
    return lambda _, __, begun: _names(names_of(field), begun, annotation) or _files(begun)


def words_or_files(words: Iterable[str]) -> Completion:
    """Completion of an argument that is a file, or one of a few words."""
    # bash forgets what came before an item that asks for files.
    return lambda _, __, begun: [*_files(begun), *_items(words, begun)]


def names_of_catalog(names: Callable[[], Iterable[str]]) -> Completion:
    """Completion of an argument that is a name of the catalog, which is read when the tab key asks."""
    return lambda _, __, begun: _items(names(), begun)


def _names(names: Iterable[str], begun: str, annotation: Any) -> list[CompletionItem]:
    """Names in any case; of several separated by commas the last one, which is none of those before."""
    before, comma, last = begun.rpartition(",") if takes_several(annotation) else ("", "", begun)
    return _items((name for name in names if name not in before.split(",")), last, before + comma)


def _items(names: Iterable[str], begun: str, before: str = "") -> list[CompletionItem]:
    matching = (name for name in names if name.casefold().startswith(begun.casefold()))
    return [CompletionItem(f"{before}{name}") for name in matching]


def _files(begun: str) -> list[CompletionItem]:
    return [CompletionItem(begun, type="file")]
