"""`jaxspec runs list | show | compare | resume`: run directories that are kept."""

from __future__ import annotations

import click

from jaxspec.cli.given_once import Group
from jaxspec.cli.options import json_option, write_json
from jaxspec.cli.outputs import give_out
from jaxspec.cli.usage import unknown_command

__all__ = ["runs"]


class _Group(Group):
    def resolve_command(self, ctx: click.Context, args: list[str]):
        if args and args[0] not in self.commands:
            raise unknown_command(args[0], self.commands, ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Group)
def runs() -> None:
    """List, show, compare and resume run directories.

    \b
    jaxspec runs list                             run directories in ./runs
    jaxspec runs show runs/tune-0123456789ab      settings, versions, commit, devices, inputs, numbers
    jaxspec runs compare runs/tune-0123456789ab runs/tune-ba9876543210
    jaxspec runs resume runs/tune-0123456789ab    the same as repeating its command

    Equal settings, inputs and seed give equal results.
    """


@runs.command("list")
@click.argument("folder", default="runs", type=click.Path())
@json_option
def list_command(folder: str, json_file: str | None) -> None:
    """List the run directories in FOLDER.

    Each with its command, state, commit and headline numbers. FOLDER is ./runs unless it is given.
    """
    from jaxspec.report.terminal import show
    from jaxspec.runs.kept import list_runs, runs_table

    found = list_runs(folder)
    rows = [run.plain() for run in found]
    give_out([lambda: write_json(json_file, rows)], lambda: show(runs_table(found, f"Runs in {folder}")))


@runs.command("show")
@click.argument("run", type=click.Path())
@json_option
def show_command(run: str, json_file: str | None) -> None:
    """Show settings, inputs and versions of RUN.

    RUN is a run directory; of a finished one the result is shown as well.
    """
    from jaxspec.api.kept import open_result
    from jaxspec.report.terminal import show
    from jaxspec.runs.kept import find_run

    found = find_run(run)
    tables = open_result(run).tables if found.finished else []
    give_out([lambda: write_json(json_file, found.plain())], lambda: show(found.table(), *tables))


@runs.command("compare")
@click.argument("run", nargs=-1, required=True, type=click.Path())
@json_option
def compare_command(run: tuple[str, ...], json_file: str | None) -> None:
    """Show the differences between several runs.

    They are those of settings, inputs, versions and numbers. Each RUN is a run directory.
    """
    from jaxspec.report.terminal import show
    from jaxspec.runs.kept import compare_runs, find_run

    table = compare_runs(run)
    give_out([lambda: write_json(json_file, [find_run(path).plain() for path in run])], lambda: show(table))


@runs.command("resume")
@click.argument("run", type=click.Path())
@json_option
def resume_command(run: str, json_file: str | None) -> None:
    """Resume RUN where it was stopped.

    RUN is a run directory; a finished one is printed again.
    """
    from jaxspec.api.kept import resume
    from jaxspec.cli.study_command import print_shown
    from jaxspec.runs.progress import Reporter

    reporter = Reporter()
    print_shown(resume(run, reporter=reporter).shown, json_file, reporter)
