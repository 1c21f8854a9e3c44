"""`jaxspec sweep merge`."""

from __future__ import annotations

import click

from jaxspec.cli.given_once import Command
from jaxspec.cli.options import force_option, json_option, out_option
from jaxspec.output_places import check_folder_place

__all__ = ["merge"]


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
