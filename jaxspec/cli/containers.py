"""`jaxspec pack`, `jaxspec unpack` and `jaxspec inspect`."""

from __future__ import annotations

import click

from jaxspec.cli.options import json_option, plot_option, write_json


@click.command()
@click.argument("checkpoint", default="embedded")
@click.option(
    "--out",
    "-o",
    type=click.Path(),
    help="The container; default <name of the checkpoint>.jspk here, dots in the name kept.",
)
@click.option(
    "--scheme", help="huffman, huffllm, cassandra1 (default), cassandra1-coded, cassandra2 (not lossless), raw."
)
@click.option("--weight-prune", type=float, help="Share of each row's weights that the draft does not read, 0 to 0.95.")
@click.option("--weight-cut-bits", type=int, help="Mantissa bits of a weight that the draft does not read, 0 to 7.")
@click.option("--knobs", help="result.json of `jaxspec tune`: its tuned knobs, matrix by matrix, instead of one pair.")
@click.option(
    "--importance", help="wanda (runs the network on text), magnitude, or auto: wanda if the network is known."
)
@click.option("--text", help="'stdlib', or a text file, for wanda: its first half is used.")
@click.option("--seed", type=int, help="Decides the windows of that text.")
@click.option("--config", "config_file", type=click.Path(), help="TOML file of settings; flags win over it.")
@click.option("--force", is_flag=True, help="Replace a container that is there.")
@json_option
def pack(checkpoint, out, config_file, force, json_file, **flags) -> None:
    """Pack CHECKPOINT (a safetensors file, a folder with one or with shards, or 'embedded') into one file.

    \b
    jaxspec pack model.safetensors -o model.jspk --scheme huffman     smallest, decodes fastest
    jaxspec pack DIR -o model.jspk                                    the target, and inside it a draft (cassandra1)
    jaxspec pack DIR -o model.jspk --knobs runs/tune-.../result.json  the draft that was tuned
    jaxspec tune --model model.jspk                                   containers open wherever a model is asked for

    Lossless schemes restore every tensor bit for bit; each is decoded and compared before it counts as packed.
    """
    from jaxspec.report.container import tensor_table
    from jaxspec.report.terminal import show
    from jaxspec.runs.config import build_config, read_toml
    from jaxspec.runs.packing import PackConfig, pack_checkpoint

    settings = read_toml(config_file) if config_file else {}
    # The argument has a default, which a file may replace.
    model = {} if "model" in settings and checkpoint == "embedded" else {"model": checkpoint}
    config = build_config(PackConfig, settings, flags | model)
    summary = pack_checkpoint(config, out, force=force)
    write_json(json_file, summary)
    show(tensor_table(summary))


@click.command()
@click.argument("container", type=click.Path())
@click.option(
    "--out",
    "-o",
    type=click.Path(),
    help="A folder, or a .safetensors file if one was packed; default the folder <name of the container> here.",
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
@json_option
def unpack(container, out, force, json_file) -> None:
    """Restore the checkpoint in CONTAINER: the files that were packed, byte for byte if the scheme is lossless.

    Every section's checksum and every tensor's SHA-256 are checked; files get their names once all of them are whole.
    """
    from jaxspec.report.terminal import say
    from jaxspec.runs.packing import unpack_container

    summary = unpack_container(container, out, force=force)
    write_json(json_file, summary)
    for file in summary["files"]:
        say(f"{file['file']}: {file['bytes']} bytes")


@click.command()
@click.argument("path", type=click.Path())
@click.option("--tensor", help="Show the code tables of this tensor.")
@click.option("--all", "every", is_flag=True, help="A row for every tensor, not one per kind of tensor.")
@plot_option("Write a figure of bits per weight by tensor (.png, .svg or .pdf).")
@json_option
def inspect(path, tensor, every, plot, json_file) -> None:
    """Show what PATH (a container, or a checkpoint not packed yet) is made of.

    Of each tensor: entropy of sign, exponent and mantissa, bits per weight of the target and of the draft, ratio, code
    tables. Reads all of the file, and so checks it.
    """
    from jaxspec.report.container import code_tables, container_figure, tensor_table
    from jaxspec.report.save import save_figure
    from jaxspec.report.terminal import show
    from jaxspec.runs.inspection import inspect_file

    summary = inspect_file(path)
    write_json(json_file, summary)
    show(*(code_tables(summary, tensor) if tensor else [tensor_table(summary, every=every)]))
    if plot and (figure := container_figure(summary)) is not None:
        save_figure(figure, plot)
