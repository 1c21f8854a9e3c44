"""Catalog entries by name, and devices from a user's own file."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import os
import re
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

from hwmodels.catalog.architecture_entries import POSITIONS, TOKENIZER, checked_architecture, parse_architecture
from hwmodels.catalog.calibrated import calibrated_unit
from hwmodels.catalog.device_entries import DeviceEntry, parse_device
from hwmodels.catalog.entries import Entry, EntryError, UnknownNameError, near_matches, parse_entry, titled_document
from hwmodels.catalog.units import calibrated_sources
from hwmodels.device import Device, ExtraRows
from hwmodels.network.architecture import Architecture
from hwmodels.numerics.fields import NOT_NEGATIVE
from hwmodels.speculation.engine_terms import EngineTerms

_ENGINE_TERMS = tuple(field.name for field in dataclasses.fields(EngineTerms))

#: Scatter of an engine's cycles by kind of draft -> its field in the engine's file.
_SCATTER = {
    "small network": "scatter_of_small_networks",
    "other drafts": "scatter_of_other_drafts",
    "several devices": "scatter_of_several_devices",
}

#: Instructions per weight that each row of a product beyond the first takes in an engine's kernels, and the ends of 90 %.
_ROWS = ("row_instructions", "row_instructions_low", "row_instructions_high")

#: What this package is called among engines.
OWN_ENGINE = "jax"

#: In the file of an engine whose terms nobody knows, in their place: why.
_GAP = "no_source"

#: How a source names the repository of a config.json.
_REPOSITORY = re.compile(r"\bconfig\.json of ([\w.-]+/[\w.-]+\w)")

#: Field -> rule of a serving engine's file.
_ENGINE_RULES = dict.fromkeys((*_ENGINE_TERMS, *_SCATTER.values(), *_ROWS), NOT_NEGATIVE)


def device_names() -> tuple[str, ...]:
    """Names of all devices, sorted."""
    return _names("devices")


#: What names of devices carry beside the device: makers, kinds, sizes of memory.
_BESIDES = re.compile(
    r"\b(?:nvidia|geforce|amd|intel|apple|google|aws|cloud|instinct|tesla|radeon|quadro|gpu|graphics|sxm[0-9]?|"
    r"[0-9]+[ -]core)\b"
)
_SIZES = re.compile(r"\b[0-9]+ ?gi?b\b")

#: Words that other cards share with one of the catalog.
_OTHER_CARDS = re.compile(r"\b(?:laptop|mobile|max-q|super)\b")


def device_named(text: str, *, whole: bool = True) -> str | None:
    """The catalog's name of a device as people and logs write it, such as "NVIDIA GeForce RTX 5090 32GB"; None: it has none.

    Args:
        whole: whether the text must be the device's name alone; else the longest name in it counts.
    """
    words = re.sub(r"[_\s]+", " ", _SIZES.sub(" ", text.lower())).strip()
    found = [(match, name) for pattern, name in _patterns() for match in [pattern.search(words)] if match]
    if not found or _OTHER_CARDS.search(words):
        return None
    match, name = max(found, key=lambda one: len(one[0][0]))
    left = _BESIDES.sub("", words[: match.start()] + " " + words[match.end() :])
    return name if not whole or not re.search(r"\w", left) else None


@functools.cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Pattern of each name and alias, and the name: parts in any spelling, makers' letters before a number optional."""
    found = []
    for name in _names("devices"):
        for written in (name, *_device_entry(name).aliases):
            parts = written.split("-")
            letters = rf"(?:{re.escape(parts.pop(0))}[ -]?)?" if parts[0] in ("rtx", "rx", "arc") else ""
            text = "[ +-]*".join(map(re.escape, parts))
            found.append((re.compile(rf"(?<![\w])(?:[0-9]+ ?x ?)?{letters}{text}(?![\w])"), name))
    return found


def architecture_names() -> tuple[str, ...]:
    """Names of all architectures, sorted."""
    return _names("architectures")


def device(name: str, *, engine: str | None = None, weight_format: str | None = None) -> Device:
    """A device of the catalog, by its name in any case.

    Args:
        engine, weight_format: as of `with_engine`.
    Raises:
        UnknownNameError: no such device, engine or format.
        EntryError: an engine or a format for a device without measured kernels.
    """
    return with_engine(_device_entry(name), name, engine=engine, weight_format=weight_format).device


def architecture(name: str) -> Architecture:
    """An architecture of the catalog, by its name in any case.

    Raises:
        UnknownNameError: no such architecture.
    """
    return checked_architecture(_architecture_entry(name).values, where=name)


def engine_names() -> tuple[str, ...]:
    """Names of all serving engines whose terms are known, sorted; see `engine_gap` for the others."""
    return tuple(name for name in _names("engines") if engine_gap(name) is None)


def engine_gap(name: str) -> str | None:
    """Why nobody knows what an engine spends beside its kernels; None where it is known, or no such engine is listed."""
    slug = name.strip().lower()
    if slug not in _names("engines"):
        return None
    _, document = titled_document(_read("engines", slug), slug)
    gap = document.get(_GAP)
    return None if gap is None else f"no source: {gap}"


def engine(name: str) -> EngineTerms:
    """What a serving engine spends beside its kernels, by its name in any case.

    Raises:
        UnknownNameError: no such engine, or one whose terms nobody knows (see `engine_gap`).
    """
    found = _engine_entry(name).values
    return EngineTerms(**{field: found[field] for field in _ENGINE_TERMS})


def engine_scatter(name: str) -> dict[str, float]:
    """How far measured speedups of an engine lie from those predicted with its terms. Raises UnknownNameError.

    Returns:
        "small network" and "other drafts" on one device, and "several devices" -> standard deviation of the logarithm; without
        those that nobody measured.
    """
    found = _engine_entry(name).values
    return {kind: found[field] for kind, field in _SCATTER.items() if field in found}


class RowInstructions(NamedTuple):
    """Instructions per weight and row beyond the first of an engine's kernels, the ends of 90 %, and where they come from."""

    value: float
    low: float
    high: float
    source: str


def engine_rows(name: str) -> RowInstructions | None:
    """What further rows of a product take in an engine's kernels; None: not known, or nothing. Raises UnknownNameError."""
    found = _engine_entry(name)
    if _ROWS[0] not in found.values:
        return None
    return RowInstructions(*(found.values[field] for field in _ROWS), found.sources[_ROWS[0]])


def engine_sources(name: str) -> dict[str, str]:
    """Where each of an engine's terms comes from: field -> text. Raises UnknownNameError."""
    if (gap := engine_gap(name)) is not None:
        return dict.fromkeys(_ENGINE_TERMS, gap)
    found = _engine_entry(name).sources
    return {field: found[field] for field in _ENGINE_TERMS}


def device_title(name: str) -> str:
    """What a person calls the device. Raises UnknownNameError."""
    return _device_entry(name).title


def architecture_title(name: str) -> str:
    """What a person calls the network. Raises UnknownNameError."""
    return _architecture_entry(name).title


def device_sources(name: str) -> dict[str, str]:
    """Where each number of a device comes from: field -> text. Raises UnknownNameError."""
    return _device_entry(name).sources


def architecture_sources(name: str) -> dict[str, str]:
    """Where each number of an architecture comes from: field -> text. Raises UnknownNameError."""
    return _architecture_entry(name).sources


def architecture_positions(name: str) -> int | None:
    """Tokens of the longest text that an architecture is made for; None: nobody says. Raises UnknownNameError."""
    found = _architecture_entry(name).values.get(POSITIONS)
    return None if found is None else int(found)


def architecture_tokenizer(name: str) -> str | None:
    """Name of an architecture's tokenizer; "a/b" has the tokens of "a" and further ones behind them; None: nobody says.

    Raises:
        UnknownNameError: no such architecture.
    """
    return _architecture_entry(name).texts.get(TOKENIZER)


def architecture_repository(name: str) -> str | None:
    """The Hugging Face repository whose config.json an architecture has its sizes from; None: they are of none.

    Raises:
        UnknownNameError: no such architecture.
    """
    found = {match[1] for source in architecture_sources(name).values() if (match := _REPOSITORY.search(source))}
    return found.pop() if len(found) == 1 else None


def device_from_file(path: str | Path, *, engine: str | None = None, weight_format: str | None = None) -> Device:
    """A device from a TOML file in the catalog's format (see `hwmodels.catalog.device_entries`).

    Args:
        engine, weight_format: as of `with_engine`.
    Raises:
        UnknownNameError: no such engine or format.
        EntryError: the file cannot be read, or its content is not a device, or one without measured kernels.
    """
    return with_engine(_entry_from_file(path), str(path), engine=engine, weight_format=weight_format).device


def device_entry(name: str, *, engine: str | None = None, weight_format: str | None = None) -> DeviceEntry:
    """A device with its title, sources and calibration, by its name or from a file: a path that exists or ends in ".toml".

    Args:
        engine, weight_format: as of `with_engine`.
    Raises:
        UnknownNameError: no such device, engine or format.
        EntryError: the file cannot be read, or its content is not a device, or one without measured kernels.
    """
    found = _entry_from_file(name) if _is_file(name) else _device_entry(name)
    return with_engine(found, name, engine=engine, weight_format=weight_format)


def with_engine(
    entry: DeviceEntry, name: str, *, engine: str | None = None, weight_format: str | None = None
) -> DeviceEntry:
    """The same device with another engine's kernels, or those of another weight format.

    Args:
        entry: of a device.
        name: what the device is called in messages.
        engine: of `calibrated_engines`, or one with `engine_rows`, or `OWN_ENGINE` on a machine whose file has its terms; the
            device's own unless given.
        weight_format: of `calibrated_formats`; what weights narrower than 16 bits are multiplied in; those kernels whose
            activations keep 16 bits unless given.
    Raises:
        UnknownNameError: no such engine or format on this device.
        EntryError: the device has no measured kernels.
    """
    if engine is None and weight_format is None:
        return entry
    if engine == OWN_ENGINE and weight_format is None and entry.engine_terms is not None:
        return entry  # a measured machine: its kernels are those of this package, and its file has what the loop spends
    if engine == OWN_ENGINE:
        raise EntryError(
            f"engine {engine!r} came, but the file of {name} has no [engine_terms] of this package's own loop; leave it out, "
            "or give the file that jaxspec calibrate writes, without a weight format"
        )
    if weight_format is None and engine in engine_names() and (rows := engine_rows(engine)) is not None:
        return _with_rows(entry, rows)
    if entry.calibration is None:
        what = f"engine {engine!r}" if engine is not None else f"format {weight_format!r}"
        raise EntryError(
            f"{what} came, but {name} has no measured kernels; leave it out, or take one of the calibrated devices "
            "(see jaxspec devices)"
        )
    unit = calibrated_unit(
        entry.calibration,
        multiprocessors=entry.device.matrix_unit.multiprocessors,
        engine=engine,
        weight_format=weight_format,
    )
    # Numbers of the device's own engine go: it may have more formats than this one.
    own = lambda leaf: leaf.startswith("matrix_unit.") and leaf != "matrix_unit.multiprocessors"
    sources = {leaf: source for leaf, source in entry.sources.items() if not own(leaf)}
    sources |= {leaf: source for leaf, source in calibrated_sources(entry.calibration, unit).items() if own(leaf)}
    return dataclasses.replace(entry, device=dataclasses.replace(entry.device, matrix_unit=unit), sources=sources)


#: Share of the data sheet's bandwidth that whole steps of engines without measured kernels reach, and where it comes from.
_STEPS_REACH = (0.7, "transferred: as devices whose files were made for such engines")


def _with_rows(entry: DeviceEntry, rows: RowInstructions) -> DeviceEntry:
    """A device with the kernels of an engine that spends instructions on each row; measured kernels of other engines go."""
    device, sources = entry.device, dict(entry.sources)
    if entry.calibration is not None:
        sources = {leaf: source for leaf, source in sources.items() if not leaf.startswith("matrix_unit.")}
        memory = dataclasses.replace(device.memory, efficiency=_STEPS_REACH[0])
        device = dataclasses.replace(device, matrix_unit=None, memory=memory, operator_latency_s=0.0)
        sources["memory.efficiency"] = _STEPS_REACH[1]
    if device.matrix_unit is None:  # other units have rows of their own
        device = dataclasses.replace(device, extra_rows=ExtraRows(instructions=rows.value))
        sources |= {"extra_rows.instructions": rows.source}
    return dataclasses.replace(entry, device=device, sources=sources, calibration=None)


def device_text(name: str) -> str:
    """Content of a device's file, of the catalog or a user's own: a path that exists or ends in ".toml".

    Raises:
        UnknownNameError: no such device.
        EntryError: the file cannot be read.
    """
    return _text_of_file(name) if _is_file(name) else _read("devices", name)


def _is_file(name: str) -> bool:
    return name.endswith(".toml") or os.path.isfile(name)  # `Path.is_file` raises on names too long for one


def _text_of_file(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EntryError(
            f"{path}: cannot be read as a text file in UTF-8: {error}; give the path of a device's TOML file"
        ) from error


def _entry_from_file(path: str | Path) -> DeviceEntry:
    return parse_device(_text_of_file(path), where=str(path))


def _device_entry(name: str) -> DeviceEntry:
    return parse_device(_read("devices", name), where=name)


def _architecture_entry(name: str) -> Entry:
    return parse_architecture(_read("architectures", name), where=name)


def _engine_entry(name: str) -> Entry:
    if (gap := engine_gap(name)) is not None:
        raise UnknownNameError(f"terms of engine {name!r} are not known ({gap}); allowed: {', '.join(engine_names())}")
    return parse_entry(
        _read("engines", name), _ENGINE_RULES, where=name, optional=frozenset((*_SCATTER.values(), *_ROWS))
    )


def _folder(section: str) -> Traversable:
    return importlib.resources.files("hwmodels.catalog") / section


def _names(section: str) -> tuple[str, ...]:
    return tuple(sorted(f.name.removesuffix(".toml") for f in _folder(section).iterdir() if f.name.endswith(".toml")))


def _read(section: str, name: str) -> str:
    slug, allowed = name.strip().lower(), _names(section)
    if slug not in allowed and section == "devices":
        slug = device_named(name) or slug
    if slug not in allowed:
        singular = section.removesuffix("s")
        raise UnknownNameError(
            f"unknown {singular} {name!r};{near_matches(slug, allowed)} allowed: {', '.join(allowed)}"
        )
    return (_folder(section) / f"{slug}.toml").read_text(encoding="utf-8")
