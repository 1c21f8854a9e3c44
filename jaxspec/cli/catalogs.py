"""`jaxspec devices` and `jaxspec models`."""

from __future__ import annotations

import dataclasses

import click

from jaxspec.cli.options import json_option, write_json


def _flat(tree, prefix: str = "") -> dict[str, float]:
    """Leaves of nested dataclasses by dotted name."""
    values: dict[str, float] = {}
    for field in dataclasses.fields(tree):
        value = getattr(tree, field.name)
        name = prefix + field.name
        values |= _flat(value, name + ".") if dataclasses.is_dataclass(value) else {name: float(value)}
    return values


def _entries(names, get, title, sources) -> list[dict]:
    return [
        {
            "schema_version": 1,
            "name": name,
            "title": title(name),
            "values": _flat(get(name)),
            "sources": sources(name),
            "status": "input",
        }
        for name in names
    ]


def _show(entries: list[dict], verbose: bool, what: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    shown = [key for key in entries[0]["values"] if any(entry["values"][key] for entry in entries)]
    table = Table(title=f"{what} (SI units; status of every number: input)")
    table.add_column("")
    for entry in entries:
        table.add_column(entry["name"], justify="right")
    for key in shown:
        table.add_row(key, *(f"{entry['values'][key]:.5g}" for entry in entries))
    console.print(table)
    for entry in entries if verbose else ():
        console.print(f"[bold]{entry['name']}[/bold]: {entry['title']}")
        for key, source in entry["sources"].items():
            console.print(f"  {key}: {source}", highlight=False, soft_wrap=True)


@click.command()
@click.option("--sources", is_flag=True, help="Also print where each number comes from.")
@json_option
def devices(sources: bool, json_file: str | None) -> None:
    """List the devices that --device knows, with every number (SI units) and its source."""
    from hwmodels import catalog

    entries = _entries(catalog.device_names(), catalog.device, catalog.device_title, catalog.device_sources)
    write_json(json_file, entries)
    _show(entries, sources, "Devices")


@click.command()
@click.option("--sources", is_flag=True, help="Also print where each number comes from.")
@json_option
def models(sources: bool, json_file: str | None) -> None:
    """List the architectures that --architecture knows, and the network that ships with the package."""
    from rich.console import Console

    from hwmodels import catalog
    from jaxspec.models.families import FAMILIES

    entries = _entries(
        catalog.architecture_names(), catalog.architecture, catalog.architecture_title, catalog.architecture_sources
    )
    write_json(json_file, entries)
    _show(entries, sources, "Architectures, by shape")
    Console().print(
        "--model: 'embedded' (ships with weights), or a Hugging Face directory of the families "
        f"{', '.join(sorted(FAMILIES))} (config.json and safetensors)."
    )
