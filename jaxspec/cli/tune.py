"""`jaxspec tune`."""

from __future__ import annotations

import click

from jaxspec.cli.options import network_options, pricing_options, print_notes, resolve, write_json


@click.command()
@pricing_options
@network_options
@click.option("--objective", help="speedup (default), kl or bits_per_byte; the last two within --draft-bits.")
@click.option("--max-kl", type=float, help="Constraint: KL to the target, nats per token.")
@click.option("--max-bits-per-byte", type=float, help="Constraint: bits per byte of the draft on calibration text.")
@click.option("--draft-bits", type=float, help="Constraint: mean bits per weight that a draft step reads.")
@click.option("--steps", type=int, help="Gradient steps over all knobs.")
@click.option("--uniform-steps", type=int, help="Gradient steps over one pair for all matrices.")
@click.option("--learning-rate", type=float, help="Of Adam, knobs scaled to 0..1.")
def tune(out, config_file, quick, force, json_file, **flags) -> None:
    """Tune a draft for a device: calibrate, compare with the grid, tune by gradient, harden, prove, report.

    The draft is a subset of the target's own bits: each matrix has a pruning ratio and a number of cut mantissa bits,
    each layer's KV cache too. Acceptance is measured on the network (the embedded one unless --model), cost is
    predicted for --architecture on --device. A run directory keeps everything; the same command resumes a killed run
    and reprints a finished one.
    """
    from rich.console import Console

    from jaxspec.report import tables
    from jaxspec.runs.config import TuneConfig
    from jaxspec.runs.progress import Reporter

    config = resolve(TuneConfig, flags, config_file, quick)
    reporter = Reporter()
    reporter.line(f"jaxspec tune: {config.model} priced as {config.architecture} on {', '.join(config.device)}")
    from jaxspec.runs.tuning import tune as run_tune

    entries, directory = run_tune(config, out=out, force=force, reporter=reporter)
    write_json(json_file, entries)
    console = Console()
    for table in tables(entries):
        console.print(table)
    print_notes(console, entries)
    reporter.line(f"report: {directory.path / 'report.html'}")
