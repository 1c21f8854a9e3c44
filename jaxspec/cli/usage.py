"""What the command line says about a command or an option that does not exist, or misses something: one line."""

from __future__ import annotations

from collections.abc import Iterable

import click

from jaxspec.settings.coercion import shown
from jaxspec.suggestions import hint

__all__ = ["unknown_command", "usage_line"]


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
