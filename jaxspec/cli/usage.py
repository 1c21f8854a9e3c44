"""Wrong use of the command line in one line: a command or option that does not exist, misses something, or came twice.

Click by itself takes the last of several values of an option and says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import click

from jaxspec.settings.coercion import shown
from jaxspec.suggestions import hint

__all__ = ["Command", "Group", "ListOption", "unknown_command", "usage_line"]


def unknown_command(name: str, commands: Iterable[str], ctx: click.Context) -> click.UsageError:
    """The error for a command that does not exist."""
    return click.UsageError(f"no such command {shown(name)}{hint(name, commands, quote=False)}", ctx)


def usage_line(error: click.ClickException) -> str:
    """What came, what was perhaps meant, and where to read on."""
    ctx = getattr(error, "ctx", None)
    where = ctx.command_path if ctx is not None else "jaxspec"
    if isinstance(error, click.NoSuchOption):
        options = [] if ctx is None else [name for parameter in ctx.command.params for name in parameter.opts]
        long = [name for name in options if name.startswith("--")]
        known = hint(error.option_name, long, quote=False, list_all=False)
        message = f"no such option {error.option_name}{known}"
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        return f"a command is missing; {where} --help lists them"
    else:
        message = " ".join(error.format_message().split()).removesuffix(".")
        message = message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…"
    return f"{message}; see {where} --help"


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
