"""`jaxspec sweep`."""

from __future__ import annotations

import click

from jaxspec.cli.options import json_option, print_notes, run_option, write_json


@click.command()
@click.argument("config_file", metavar="SWEEP.toml", required=False, type=click.Path())
@click.option("--example", is_flag=True, help="Print a sweep to begin with, and stop.")
@run_option
@click.option("--force", is_flag=True, help="Start the run directory anew.")
@json_option
def sweep(config_file: str | None, example: bool, out: str | None, force: bool, json_file: str | None) -> None:
    """Evaluate every combination of axes over device, network, workload, footprint and acceptance.

    \b
    jaxspec sweep --example > sweep.toml
    jaxspec sweep sweep.toml

    Writes sweep.parquet (axes and results, one row per design point, read it with jaxspec.runs.read_sweep or any reader
    of Parquet), figures/pareto.png and result.json. One compiled program evaluates 32,768 points at a time.
    """
    from jaxspec.errors import InputError
    from jaxspec.runs.sweep_config import EXAMPLE, read_sweep_config

    if example:
        click.echo(EXAMPLE, nl=False)
        return
    if config_file is None:
        raise InputError("no sweep came; give a TOML file: jaxspec sweep --example prints one to begin with")

    from rich.console import Console

    from jaxspec.report.sweep import sweep_table
    from jaxspec.runs.sweep import sweep as run_sweep

    result = run_sweep(read_sweep_config(config_file), out=out, force=force)
    write_json(json_file, result)
    console = Console()
    console.print(sweep_table(result))
    print_notes(console, [result])
    console.print(f"{result['points']:,} points in {result['directory']}/sweep.parquet; figure: figures/pareto.png")
