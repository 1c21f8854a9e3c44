"""`jaxspec sweep`."""

from __future__ import annotations

import click

from jaxspec.cli.options import force_option, json_option, out_option, print_notes, write_json
from jaxspec.settings import read_toml


@click.command()
@click.argument("config_file", metavar="SWEEP.toml", required=False, type=click.Path())
@click.option("--example", is_flag=True, help="Print a sweep to begin with, and stop.")
@out_option("Run directory.", "runs/sweep-<hash of the settings>")
@force_option()
@json_option
def sweep(config_file: str | None, example: bool, out: str | None, force: bool, json_file: str | None) -> None:
    """Evaluate every combination of axes over device, network, workload, footprint and acceptance.

    \b
    jaxspec sweep --example > sweep.toml
    jaxspec sweep sweep.toml

    Writes sweep.parquet (axes and results, one row per design point, read it with jaxspec.studies.read_sweep or any reader
    of Parquet), figures/pareto.png and result.json. One compiled program evaluates 32,768 points at a time.
    """
    from jaxspec.errors import InputError

    if example and (config_file or out or force or json_file):
        raise InputError("--example prints a sweep and stops; leave everything else out")
    if not example:
        if config_file is None:
            raise InputError("no sweep came; give a TOML file: jaxspec sweep --example prints one to begin with")
        read_toml(config_file)  # before slow imports
    from jaxspec.studies.sweep.config import EXAMPLE, read_sweep_config

    if example:
        click.echo(EXAMPLE, nl=False)
        return
    assert config_file is not None

    from jaxspec.report.terminal import say, show
    from jaxspec.studies.sweep.report import sweep_table
    from jaxspec.studies.sweep.run import sweep as run_sweep

    result = run_sweep(read_sweep_config(config_file), out=out, force=force)
    write_json(json_file, result)
    show(sweep_table(result))
    print_notes([result])
    say(f"{result['points']:,} points in {result['directory']}/sweep.parquet; figure: figures/pareto.png")
