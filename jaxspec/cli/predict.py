"""`jaxspec predict`."""

from __future__ import annotations

import click

from jaxspec.cli.options import json_option, pricing_options, write_json


@click.command()
@pricing_options
@click.option("--acceptance", default="0.8", help="alpha_token: one number, or one per position separated by commas.")
@click.option("--draft-bits", type=float, default=5.11, help="Bits a draft step reads per weight of the layers.")
@click.option("--verify-bits", type=float, default=13.9, help="Bits a verification reads per weight of the layers.")
@click.option("--draft-kv-bits", type=float, default=6.85, help="Bits a draft step reads per KV element.")
@click.option("--verify-kv-bits", type=float, default=10.85, help="Bits a verification reads per KV element.")
@click.option("--max-draft-length", type=int, default=8, help="Longest chain considered, with one acceptance number.")
@click.option("--plot", type=click.Path(), help="Write a figure of speedup over draft length and time per operator.")
@json_option
def predict(json_file, **options) -> None:
    """Predict without a network: shapes, device, footprint and acceptance give time per operator, cycle and speedup.

    The default footprint is Cassandra's 40 %/4-bit point. Draft length 0 stands for autoregressive decoding of the
    stored format: where it wins, no draft pays.
    """
    from rich.console import Console

    from jaxspec.runs.prediction import predict as run_predict
    from jaxspec.runs.prediction import prediction_figure, prediction_tables

    plot = options.pop("plot")
    entries = run_predict(**options)
    write_json(json_file, entries)
    console = Console()
    for table in prediction_tables(entries):
        console.print(table)
    if plot:
        prediction_figure(entries, plot)
