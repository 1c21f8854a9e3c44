"""Help of every command with all settings, as the command line prints it."""

from __future__ import annotations

import click

#: Columns of the help in the site: what a page shows beside its navigation.
_WIDTH = 92


def _help(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=name, max_content_width=_WIDTH, terminal_width=_WIDTH)
    context.meta["jaxspec.help_all"] = True
    return command.get_help(context)


def _within(command: click.Command) -> dict[str, click.Command]:
    """Commands below a command, by name: of a group, or words that stand for one in place of an argument."""
    from jaxspec.registries import load_object

    if isinstance(command, click.Group):
        return dict(command.commands)
    return {name: load_object(place) for name, place in getattr(command, "subcommands", {}).items()}


def all_commands() -> dict[str, click.Command]:
    """Every command by its words, those below a command behind it."""
    from jaxspec.cli.app import cli

    context = click.Context(cli)
    commands = {}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        commands |= {name: command, **{f"{name} {word}": inner for word, inner in _within(command).items()}}
    return commands


def help_of_commands() -> str:
    """A heading and the help of each command, and of those below it."""
    sections = []
    for title, command in all_commands().items():
        depth = "###" if " " in title else "##"
        sections.append(f"{depth} jaxspec {title}\n\n```text\n{_help(command, f'jaxspec {title}')}\n```")
    return "\n\n".join(sections)
