"""`jaxspec predict`."""

from __future__ import annotations

import click

from jaxspec.cli.options import json_option, plot_option, print_notes, resolve, settings_options, write_json
from jaxspec.settings import PredictConfig


@click.command()
@settings_options(PredictConfig)
@plot_option("Write a figure: speedups, operators, sensitivities.")
@json_option
def predict(json_file, plot, **flags) -> None:
    """Predict without a network: shapes, device, scheme and acceptance give time, energy, memory and sensitivities.

    \b
    jaxspec predict --device cassandra-npu --acceptance 0.9
    jaxspec predict --architecture qwen3-30b-a3b --device elmoe3d-hb8 --scheme bit-slices --batch 4
    jaxspec predict --architecture path/to/config.json --device my-chip.toml --scheme q4_0 --plot predict.png

    Draft length 0 stands for autoregressive decoding of the stored format: where it wins, no draft pays.
    """
    config = resolve(PredictConfig, flags)

    from jaxspec.report.save import save_figure
    from jaxspec.report.terminal import show
    from jaxspec.studies.predict.figure import prediction_figure
    from jaxspec.studies.predict.report import prediction_tables
    from jaxspec.studies.predict.run import predict as run_predict

    entries = run_predict(config)
    write_json(json_file, entries)
    show(*prediction_tables(entries))
    print_notes(entries)
    if plot:
        figure = prediction_figure(entries)
        assert figure is not None
        save_figure(figure, plot)
