"""An option that takes one value is given once: Click by itself takes the last of several and says nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import click

__all__ = ["Command", "Group", "ListOption"]


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
