"""Links between devices: a file each of `links/`, with what a data sheet says and what was fitted to measured collectives.

The table `measured` of a file is written by `python -m experiments.silicon --collectives`: by engine (its own all-reduce) or
"nccl" (the library's collectives) and collective the fitted numbers of each kernel, errors of held-out sizes, intervals.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
from collections.abc import Mapping
from typing import Any

from hwmodels.catalog.entries import (
    EntryError,
    UnknownNameError,
    near_matches,
    read_source,
    read_value,
    titled_document,
)
from hwmodels.catalog.forms import TableReader, form_of
from hwmodels.compute.unit import ErrorInterval
from hwmodels.numerics.fields import COUNT
from hwmodels.parallel.collectives import CollectiveKernel, Link

__all__ = ["LinkEntry", "link", "link_entry", "link_names"]

#: Of a file: the collectives of the library, which every engine uses where it has none of its own.
_LIBRARY = "nccl"

#: Of a file: how many devices the link joins; links without it span hosts.
_JOINS = "joins"

#: Fields of a kernel that a record gives.
_FIELDS = ("launch_s", "efficiency", "hop_s", "peer_s", "bridge", "socket")


@dataclasses.dataclass(frozen=True)
class LinkEntry:
    """A link with its sources.

    Attributes:
        sources: dotted field name -> where its number comes from.
        errors: collective -> mean error of held-out sizes.
        measured: engine or "nccl" -> collective -> the whole record of a fit.
    """

    title: str
    link: Link
    sources: dict[str, str]
    errors: dict[str, float]
    measured: dict[str, Any]


def link_names() -> tuple[str, ...]:
    """Names of all links, sorted."""
    return tuple(sorted(file.name.removesuffix(".toml") for file in _folder().iterdir() if file.name.endswith(".toml")))


def link(name: str, *, engine: str | None = None) -> Link:
    """A link, by its name in any case; errors and arguments as of `link_entry`."""
    return link_entry(name, engine=engine).link


def link_entry(name: str, *, engine: str | None = None) -> LinkEntry:
    """A link with title, sources and errors.

    Args:
        name: of `link_names`, in any case.
        engine: whose own all-reduce counts; the library's unless it was measured.
    Raises:
        UnknownNameError: no such link.
        EntryError: its file is damaged.
    """
    slug, allowed = name.strip().lower(), link_names()
    if slug not in allowed:
        raise UnknownNameError(f"unknown link {name!r};{near_matches(slug, allowed)} allowed: {', '.join(allowed)}")
    where = f"links/{slug}.toml"
    title, document = titled_document((_folder() / f"{slug}.toml").read_text(encoding="utf-8"), where)
    measured, joins = document.pop("measured", {}), document.pop(_JOINS, None)
    reader = TableReader(where)
    link = reader.read(document, form_of(Link), "", also=("title", "measured"))
    try:
        records = {**measured.get(_LIBRARY, {}), **measured.get(engine or "", {})}
        kernels = {collective: _kernels(record) for collective, record in records.items()}
        errors = {collective: float(record["errors"]["held out"]["mean"]) for collective, record in records.items()}
        spreads = tuple(
            ErrorInterval(collective, 16.0, **_ends(record["interval"])) for collective, record in records.items()
        )
        sources = {
            f"{collective}.{place}.{field}": f"calibrated: {record['table']}; hwmodels/catalog/{where}"
            for collective, record in records.items()
            for place, kernel in enumerate(record["kernels"])
            for field in kernel["coefficients"]
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise EntryError(
            f"{where} lacks or misstates {error}; write it again with python -m experiments.silicon --collectives"
        ) from error
    if joins is not None:
        sources[_JOINS] = read_source(joins, f"{where}: {_JOINS}")
        joins = int(read_value(joins, COUNT, f"{where}: {_JOINS}"))
    whole = dataclasses.replace(link, **kernels, spreads=spreads, joins=joins)
    return LinkEntry(title, whole, reader.sources | sources, errors, measured)


def _ends(interval: dict[str, Any]) -> dict[str, Any]:
    return {name: float(interval[name]) for name in ("low", "high", "coverage")}


def _kernels(record: Mapping[str, Any]) -> tuple[CollectiveKernel, ...]:
    return tuple(
        CollectiveKernel(
            **{field: float(kernel["coefficients"][field]) for field in _FIELDS if field in kernel["coefficients"]},
            algorithm=kernel["algorithm"],
        )
        for kernel in record["kernels"]
    )


def _folder() -> Any:
    return importlib.resources.files("hwmodels.catalog") / "links"
