"""`jaxspec evaluate`."""

from __future__ import annotations

import click

from jaxspec.cli.options import (
    config_option,
    force_option,
    json_option,
    out_option,
    print_notes,
    quick_option,
    resolve,
    settings_options,
    write_json,
)
from jaxspec.settings import EvaluateConfig


@click.command()
@settings_options(EvaluateConfig)
@out_option("Run directory.", "runs/evaluate-<hash of the settings>")
@config_option
@quick_option
@force_option()
@json_option
def evaluate(out, config_file, quick, force, json_file, **flags) -> None:
    """Measure one draft with given knobs: acceptance, footprint, counted and predicted tokens per cycle, speedup."""
    config = resolve(EvaluateConfig, flags, config_file, quick)

    from jaxspec.report import tables
    from jaxspec.report.terminal import show
    from jaxspec.runs.progress import Reporter

    reporter = Reporter()
    reporter.line(f"jaxspec evaluate: {config.model} priced as {config.architecture} on {', '.join(config.device)}")
    from jaxspec.studies.evaluate.run import evaluate as run_evaluate

    entries, directory = run_evaluate(config, out=out, force=force, reporter=reporter)
    write_json(json_file, entries)
    show(*tables(entries))
    print_notes(entries)
    reporter.line(f"result: {directory.path / 'result.json'}")
