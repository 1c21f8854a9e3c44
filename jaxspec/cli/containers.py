"""`jaxspec pack`, `jaxspec unpack` and `jaxspec inspect`."""

from __future__ import annotations

import click

from jaxspec.cli.options import (
    config_option,
    force_option,
    json_option,
    later,
    out_option,
    plot_option,
    resolve,
    settings_options,
    write_json,
)
from jaxspec.errors import InputError
from jaxspec.settings import PackConfig


@click.command()
@click.argument("checkpoint", required=False)
@out_option("The container.", "<name of the checkpoint>.jspk here", "-o", check=later)
@settings_options(PackConfig, without=("model",))
@config_option
@force_option("Replace a container that is there.")
@json_option
def pack(checkpoint, out, config_file, force, json_file, **flags) -> None:
    """Pack CHECKPOINT (a safetensors file, a folder with one or with shards, or 'embedded', the default) into one file.

    \b
    jaxspec pack model.safetensors -o model.jspk --scheme huffman     smallest, decodes fastest
    jaxspec pack DIR -o model.jspk                                    the target, and inside it a draft (cassandra1)
    jaxspec pack DIR -o model.jspk --knobs runs/tune-.../result.json  the draft that was tuned
    jaxspec tune --model model.jspk                                   containers open wherever a model is asked for

    Lossless schemes restore every tensor bit for bit; each is decoded and compared before it counts as packed.
    """
    config = resolve(PackConfig, flags | {"model": checkpoint}, config_file)

    from jaxspec.report.terminal import show
    from jaxspec.studies.pack.report import tensor_table
    from jaxspec.studies.pack.run import pack_checkpoint

    summary = pack_checkpoint(config, out, force=force)
    write_json(json_file, summary)
    show(tensor_table(summary))


@click.command()
@click.argument("container", type=click.Path())
@out_option(
    "A folder, or a .safetensors file if one was packed.", "the folder <name of the container> here", "-o", check=later
)
@force_option("Replace files that are there.")
@json_option
def unpack(container, out, force, json_file) -> None:
    """Restore the checkpoint in CONTAINER: the files that were packed, byte for byte if the scheme is lossless.

    Every section's checksum and every tensor's SHA-256 are checked; files get their names once all of them are whole.
    """
    from jaxspec.report.terminal import say
    from jaxspec.studies.pack.run import unpack_container

    summary = unpack_container(container, out, force=force)
    write_json(json_file, summary)
    for file in summary["files"]:
        say(f"{file['file']}: {file['bytes']} bytes")


@click.command()
@click.argument("path", type=click.Path())
@click.option("--tensor", help="Show the code tables of this tensor.")
@click.option("--all", "every", is_flag=True, help="A row for every tensor, not one per kind of tensor.")
@plot_option("Write a figure of bits per weight by tensor.")
@json_option
def inspect(path, tensor, every, plot, json_file) -> None:
    """Show what PATH (a container, or a checkpoint not packed yet) is made of.

    Of each tensor: entropy of sign, exponent and mantissa, bits per weight of the target and of the draft, ratio, code
    tables. Reads all of the file, and so checks it.
    """
    if tensor is not None and every:
        raise InputError("--tensor shows one tensor and --all every one; leave one of them out")
    from jaxspec.report.save import save_figure
    from jaxspec.report.terminal import show
    from jaxspec.studies.pack.inspection import inspect_file
    from jaxspec.studies.pack.report import code_tables, container_figure, tensor_table

    summary = inspect_file(path)
    write_json(json_file, summary)
    show(*(code_tables(summary, tensor) if tensor else [tensor_table(summary, every=every)]))
    if plot and (figure := container_figure(summary)) is not None:
        save_figure(figure, plot)
