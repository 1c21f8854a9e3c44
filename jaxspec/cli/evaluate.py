"""`jaxspec evaluate`."""

from __future__ import annotations

import click

from jaxspec.cli.options import network_options, pricing_options, print_notes, resolve, write_json


@click.command()
@pricing_options
@network_options
@click.option("--weight-prune", type=float, help="Share of each row's weights that the draft does not read, 0 to 0.95.")
@click.option("--weight-cut-bits", type=float, help="Mantissa bits of a weight that the draft does not read, 0 to 7.")
@click.option("--kv-prune", type=float, help="The same of the KV cache, per token.")
@click.option("--kv-cut-bits", type=float, help="The same of the KV cache.")
@click.option("--draft-length", type=int, help="Tokens drafted per cycle, 1 to 8.")
@click.option("--knobs", help="result.json of a tuning run: take the tuned knobs of its first device instead.")
def evaluate(out, config_file, quick, force, json_file, **flags) -> None:
    """Measure one draft with given knobs: acceptance, footprint, counted and predicted tokens per cycle, speedup."""
    from rich.console import Console

    from jaxspec.report import tables
    from jaxspec.runs.config import EvaluateConfig
    from jaxspec.runs.progress import Reporter

    config = resolve(EvaluateConfig, flags, config_file, quick)
    reporter = Reporter()
    reporter.line(f"jaxspec evaluate: {config.model} priced as {config.architecture} on {', '.join(config.device)}")
    from jaxspec.runs.evaluation import evaluate as run_evaluate

    entries, directory = run_evaluate(config, out=out, force=force, reporter=reporter)
    write_json(json_file, entries)
    console = Console()
    for table in tables(entries):
        console.print(table)
    print_notes(console, entries)
    reporter.line(f"result: {directory.path / 'result.json'}")
