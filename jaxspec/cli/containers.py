"""`jaxspec unpack` and `jaxspec inspect`."""

from __future__ import annotations

import click

from jaxspec.cli.options import Command, force_option, give_out, json_option, out_option, plot_option, write_json
from jaxspec.errors import InputError
from jaxspec.output_places import check_apart


def _later(path: str, what: str) -> None:
    """No check of a place yet: unpacking knows more about what may be there."""


@click.command(cls=Command)
@click.argument("container", type=click.Path())
@out_option(
    "A folder, or a .safetensors file if one was packed.", "the folder <name of the container> here", "-o", check=_later
)
@force_option("Replace files that are there.")
@json_option
def unpack(container, out, force, json_file) -> None:
    """Restore the checkpoint in CONTAINER.

    Files equal the packed ones byte for byte if the scheme is lossless. Every section's checksum and every tensor's SHA-256
    are checked; files get their names once all of them are complete.
    """
    check_apart({"--json": json_file}, [container])
    from jaxspec.report.terminal import say
    from jaxspec.studies.pack.run import unpack_container

    unpacked = unpack_container(container, out, force=force)

    def prints() -> None:
        for file in unpacked.files:
            say(f"{file.file}: {file.bytes} bytes")

    give_out([lambda: write_json(json_file, unpacked.plain())], prints)


@click.command(cls=Command)
@click.argument("path", type=click.Path())
@click.option("--tensor", help="Show the code tables of this tensor.")
@click.option("--all", "every", is_flag=True, help="A row for every tensor, not one per kind of tensor.")
@plot_option("Write a figure of bits per weight by tensor.")
@json_option
def inspect(path, tensor, every, plot, json_file) -> None:
    """Show the contents of PATH, a container or a checkpoint.

    For each tensor: entropy of sign, exponent and mantissa, bits per weight of the target and of the draft, ratio, code
    tables. The whole file is read and thereby checked.
    """
    if tensor is not None and every:
        raise InputError("--tensor shows one tensor and --all every one; leave one of them out")
    check_apart({"--json": json_file, "--plot": plot}, [path])
    from jaxspec.report.figure_style import save_figure
    from jaxspec.report.terminal import show
    from jaxspec.studies.pack.figures import container_figure
    from jaxspec.studies.pack.run import inspect_file
    from jaxspec.studies.pack.view import code_tables, tensor_table

    result = inspect_file(path)
    tables = code_tables(result, tensor) if tensor else [tensor_table(result, every=every)]

    def draws() -> None:
        if plot and (figure := container_figure(result)) is not None:
            save_figure(figure, plot)

    give_out([lambda: write_json(json_file, result.plain()), draws], lambda: show(*tables))
