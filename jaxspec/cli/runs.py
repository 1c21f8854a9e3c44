"""`jaxspec runs list | show | compare | resume` and `jaxspec sweep merge`: run directories that are kept."""

from __future__ import annotations

import click

from jaxspec.cli.options import (
    Command,
    Group,
    force_option,
    give_out,
    json_option,
    out_option,
    unknown_command,
    write_json,
)
from jaxspec.output_places import check_folder_place

__all__ = ["merge", "runs"]


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
    from jaxspec.runs.run_index import list_runs, runs_table

    listed = list_runs(folder)
    rows = [run.plain() for run in listed]
    give_out([lambda: write_json(json_file, rows)], lambda: show(runs_table(listed, f"Runs in {folder}")))


@runs.command("show")
@click.argument("run", type=click.Path())
@json_option
def show_command(run: str, json_file: str | None) -> None:
    """Show settings, inputs and versions of RUN.

    RUN is a run directory; of a finished one the result is shown as well.
    """
    from jaxspec.api.calls import open_result
    from jaxspec.report.terminal import show
    from jaxspec.runs.run_index import find_run

    opened = find_run(run)
    tables = open_result(run).tables if opened.finished else []
    give_out([lambda: write_json(json_file, opened.plain())], lambda: show(opened.table(), *tables))


@runs.command("compare")
@click.argument("run", nargs=-1, required=True, type=click.Path())
@json_option
def compare_command(run: tuple[str, ...], json_file: str | None) -> None:
    """Show the differences between several runs.

    They are those of settings, inputs, versions and numbers. Each RUN is a run directory.
    """
    from jaxspec.report.terminal import show
    from jaxspec.runs.run_index import compare_runs, find_run

    table = compare_runs(run)
    give_out([lambda: write_json(json_file, [find_run(path).plain() for path in run])], lambda: show(table))


@runs.command("resume")
@click.argument("run", type=click.Path())
@json_option
def resume_command(run: str, json_file: str | None) -> None:
    """Resume RUN where it was stopped.

    RUN is a run directory; a finished one is printed again.
    """
    from jaxspec.api.calls import resume
    from jaxspec.cli.study_command import print_shown
    from jaxspec.runs.progress import Reporter

    reporter = Reporter()
    print_shown(resume(run, reporter=reporter).shown, json_file, reporter)


@click.command(cls=Command)
@click.argument("directory", nargs=-1, required=True, type=click.Path())
@out_option("Run directory.", "runs/sweep-<hash of the settings>", check=check_folder_place)
@force_option("Start the run directory anew.")
@json_option
def merge(directory: tuple[str, ...], out: str | None, force: bool, json_file: str | None) -> None:
    """Join the shards of a sweep, one run directory DIRECTORY each, into the sweep that they are parts of.

    \b
    jaxspec sweep sweep.toml --shard 1/2 --out first
    jaxspec sweep sweep.toml --shard 2/2 --out second
    jaxspec sweep merge first second

    All shards must be there, once, and finished; points are neither lost nor counted twice.
    """
    from jaxspec.cli.study_command import print_shown
    from jaxspec.runs.progress import Reporter
    from jaxspec.studies.sweep.run import merge_sweeps
    from jaxspec.studies.sweep.view import shown

    reporter = Reporter()
    print_shown(shown(merge_sweeps(directory, out=out, force=force, reporter=reporter)), json_file, reporter)
