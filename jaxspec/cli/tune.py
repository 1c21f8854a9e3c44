"""`jaxspec tune`."""

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
from jaxspec.settings import TuneConfig


@click.command()
@settings_options(TuneConfig)
@out_option("Run directory.", "runs/tune-<hash of the settings>")
@config_option
@quick_option
@force_option()
@json_option
def tune(out, config_file, quick, force, json_file, **flags) -> None:
    """Tune a draft for a device: calibrate, compare with the grid, tune by gradient, harden, prove, report.

    The draft is a subset of the target's own bits: each matrix has a pruning ratio and a number of cut mantissa bits,
    each layer's KV cache too. Acceptance is measured on the network (the embedded one unless --model), cost is
    predicted for --architecture on --device. A run directory keeps everything; the same command resumes a killed run
    and reprints a finished one.
    """
    config = resolve(TuneConfig, flags, config_file, quick)

    from jaxspec.report import tables
    from jaxspec.report.terminal import show
    from jaxspec.runs.progress import Reporter

    reporter = Reporter()
    reporter.line(f"jaxspec tune: {config.model} priced as {config.architecture} on {', '.join(config.device)}")
    from jaxspec.studies.tune.run import tune as run_tune

    entries, directory = run_tune(config, out=out, force=force, reporter=reporter)
    write_json(json_file, entries)
    show(*tables(entries))
    print_notes(entries)
    reporter.line(f"report: {directory.path / 'report.html'}")
