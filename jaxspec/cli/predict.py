"""`jaxspec predict`."""

from __future__ import annotations

import click

from jaxspec.cli.options import json_option, plot_option, pricing_options, print_notes, write_json


@click.command()
@pricing_options
@click.option("--prompt-tokens", type=int, help="Tokens of a prompt, for the prefill.")
@click.option("--acceptance", default="0.8", help="alpha_token: one number, or one per position separated by commas.")
@click.option(
    "--scheme",
    help="How weights and KV are stored: bf16, cassandra1, cassandra1-coded, cassandra2, huffman, huffllm, bit-slices, "
    "q8_0, q4_0, mxfp8, mxfp4. Widths are counted on Gaussian weights. Default: Cassandra's printed point.",
)
@click.option("--weight-prune", type=float, default=0.4, help="Share of weights that the scheme's draft lacks.")
@click.option("--weight-cut-bits", type=float, default=4.0, help="Mantissa bits of weights that it lacks.")
@click.option("--kv-prune", type=float, default=0.0, help="Share of KV elements that it lacks.")
@click.option("--kv-cut-bits", type=float, default=4.0, help="Mantissa bits of KV elements that it lacks.")
@click.option("--draft-bits", type=float, help="Bits a draft step reads per weight of the layers; wins over --scheme.")
@click.option("--verify-bits", type=float, help="Bits a verification reads per weight of the layers.")
@click.option("--draft-kv-bits", type=float, help="Bits a draft step reads per KV element.")
@click.option("--verify-kv-bits", type=float, help="Bits a verification reads per KV element.")
@click.option("--max-draft-length", type=int, default=8, help="Longest chain considered, with one acceptance number.")
@plot_option("Write a figure (png, svg, pdf): speedups, operators, sensitivities.")
@json_option
def predict(json_file, **options) -> None:
    """Predict without a network: shapes, device, scheme and acceptance give time, energy, memory and sensitivities.

    \b
    jaxspec predict --device cassandra-npu --acceptance 0.9
    jaxspec predict --architecture qwen3-30b-a3b --device elmoe3d-hb8 --scheme bit-slices --batch 4
    jaxspec predict --architecture path/to/config.json --device my-chip.toml --scheme q4_0 --plot predict.png

    Draft length 0 stands for autoregressive decoding of the stored format: where it wins, no draft pays.
    """
    from rich.console import Console

    from jaxspec.report.figures.prediction import prediction_figure
    from jaxspec.report.prediction import prediction_tables
    from jaxspec.report.save import save_figure
    from jaxspec.runs.prediction import predict as run_predict

    plot = options.pop("plot")
    entries = run_predict(**options)
    write_json(json_file, entries)
    console = Console()
    for table in prediction_tables(entries):
        console.print(table)
    print_notes(console, entries)
    if plot:
        figure = prediction_figure(entries)
        assert figure is not None
        save_figure(figure, plot)
