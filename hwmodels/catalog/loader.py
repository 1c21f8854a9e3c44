"""Catalog entries by name, and devices from a user's own file."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.resources
import json
import os
import re
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from hwmodels.catalog.architecture_entries import (
    POSITIONS,
    TOKENIZER,
    accept_architecture,
    architecture_document,
    checked_architecture,
    parse_architecture,
)
from hwmodels.catalog.calibrated import calibrated_unit
from hwmodels.catalog.calibrations import calibrated_engines
from hwmodels.catalog.device_entries import DeviceEntry, accept_device, device_document, parse_device
from hwmodels.catalog.entries import (
    Entry,
    EntryError,
    UnknownNameError,
    file_text,
    near_matches,
    parse_entry,
    shown,
    titled_document,
)
from hwmodels.catalog.forms import GIVEN
from hwmodels.catalog.units import calibrated_sources
from hwmodels.device import Device, ExtraRows
from hwmodels.network.architecture import Architecture
from hwmodels.numerics.fields import NOT_NEGATIVE
from hwmodels.numerics.scalars import Leaf
from hwmodels.registry import Registry
from hwmodels.speculation.engine_logs import EngineTerms
from hwmodels.tables import read_table

_ENGINE_TERMS = tuple(field.name for field in dataclasses.fields(EngineTerms))
#: Terms that an engine's file may leave out; they are 0 then.
_MAY_LACK = ("further_device_s", "drafted_token_layer_s", "launched_cycle_s", "lookup_cycle_s", "lookup_sequence_s")

#: Scatter of an engine's cycles by kind of draft -> its field in the engine's file.
SCATTER_FIELDS = {
    "small network": "scatter_of_small_networks",
    "other drafts": "scatter_of_other_drafts",
    "several devices": "scatter_of_several_devices",
    "unmeasured kernels": "scatter_of_unmeasured_kernels",
    "mixture": "scatter_of_mixtures",
}

#: Instructions per weight that each row of a product beyond the first takes in an engine's kernels, and the ends of 90 %.
_ROWS = ("row_instructions", "row_instructions_low", "row_instructions_high")

#: Rows from which on an engine's kernels use tiles, where its file says; else as `ExtraRows` has it.
_UNTIL = "row_until"

#: What this package is called among engines.
OWN_ENGINE = "jax"

#: In the file of an engine whose terms nobody knows, in their place: why.
_GAP = "no_source"

#: Stands for an engine that has no file in the catalog.
_ELSEWHERE = Entry("", {}, {})

#: How a source names the repository of a config.json.
_REPOSITORY = re.compile(r"\bconfig\.json of ([\w.-]+/[\w.-]+\w)")

#: Field -> rule of a serving engine's file.
_ENGINE_RULES = dict.fromkeys((*_ENGINE_TERMS, *SCATTER_FIELDS.values(), *_ROWS, _UNTIL), NOT_NEGATIVE)


def device_names() -> tuple[str, ...]:
    """Names of all devices, sorted."""
    return tuple(sorted(DEVICES))


#: What names of devices carry beside the device: makers, kinds, sizes of memory.
_BESIDES = re.compile(
    r"\b(?:nvidia|geforce|amd|intel|apple|google|aws|cloud|instinct|tesla|radeon|quadro|gpu|graphics|sxm[0-9]?|"
    r"hbm[0-9]e?|blackwell|generation|workstation edition|[0-9]+[ -]core)\b"
)
_SIZES = re.compile(r"\b[0-9]+ ?gi?b\b")


def _sizes(text: str) -> set[str]:
    return {re.sub(r"\D", "", size) for size in _SIZES.findall(text.lower())}


#: Words beside a name that make it another card's.
_OTHER_CARDS = re.compile(r"\b(?:laptop|mobile|max-q|super|ultra|nano|nx|ti|xt|xtx)\b")


def device_named(text: str, *, whole: bool = True) -> str | None:
    """The catalog's name of a device as people and logs write it, such as "NVIDIA GeForce RTX 5090 32GB"; None: it has none.

    Args:
        whole: whether the text must be the device's name alone; else the longest name in it counts.
    """
    words = re.sub(r"[_\s]+", " ", _SIZES.sub(" ", text.lower())).strip()
    matches = [(match, name) for pattern, name in _patterns() for match in [pattern.search(words)] if match]
    if not matches:
        return None
    match, name = max(matches, key=lambda one: len(one[0][0]))
    rest = words[: match.start()] + " " + words[match.end() :]
    # A name that states a size of memory is of one among several cards; what a log's card has beside it, its steps say.
    sizes, own = _sizes(text), _sizes(name)
    if _OTHER_CARDS.search(rest) or (whole and sizes and own and sizes.isdisjoint(own)):
        return None
    return name if not whole or not re.search(r"\w", _BESIDES.sub("", rest)) else None


@functools.cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Pattern of each name and alias, and the name: parts in any spelling, makers' letters before a number optional."""
    patterns = []
    for name in _names("devices"):
        for written in (name, *_device_entry(name).aliases):
            parts = written.split("-")
            letters = rf"(?:{re.escape(parts.pop(0))}[ -]?)?" if parts[0] in ("rtx", "rx", "arc") else ""
            text = "[ +-]*".join(map(re.escape, parts))
            patterns.append((re.compile(rf"(?<![\w])(?:[0-9]+ ?x ?)?{letters}{text}(?![\w])"), name))
    return patterns


def architecture_names() -> tuple[str, ...]:
    """Names of all architectures, sorted."""
    return tuple(sorted(ARCHITECTURES))


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
    return tuple(name for name in sorted(ENGINES) if engine_gap(name) is None)


def engine_gap(name: str) -> str | None:
    """Why nobody knows what an engine spends beside its kernels; None where it is known, or no such engine is listed."""
    slug = _slug(name)
    if ENGINES.get(slug, _ELSEWHERE) is not None:
        return None
    _, document = titled_document(_read(ENGINES, slug), slug)
    gap = document.get(_GAP)
    return None if gap is None else f"no source: {gap}"


def engine(name: str) -> EngineTerms:
    """What a serving engine spends beside its kernels, by its name in any case.

    Raises:
        UnknownNameError: no such engine, or one whose terms nobody knows (see `engine_gap`).
    """
    values = _engine_entry(name).values
    return EngineTerms(**{field: values.get(field, 0.0) for field in _ENGINE_TERMS})


def engine_scatter(name: str) -> dict[str, float]:
    """How far measured speedups of an engine lie from those predicted with its terms. Raises UnknownNameError.

    Returns:
        "small network" and "other drafts" on one device, "several devices", "unmeasured kernels" for devices whose kernels
        nobody measured, and "mixture" for targets with experts -> standard deviation of the logarithm; without those that
        nobody knows.
    """
    values = _engine_entry(name).values
    return {kind: values[field] for kind, field in SCATTER_FIELDS.items() if field in values}


class RowInstructions(NamedTuple):
    """Instructions per weight and row beyond the first of an engine's kernels, the ends of 90 %, where they come from, and the
    rows from which on a further one adds nothing."""

    value: float
    low: float
    high: float
    source: str
    until: Leaf


def engine_rows(name: str) -> RowInstructions | None:
    """What further rows of a product take in an engine's kernels; None: not known, or nothing. Raises UnknownNameError."""
    entry = _engine_entry(name)
    if _ROWS[0] not in entry.values:
        return None
    value, low, high = (entry.values[field] for field in _ROWS)
    return RowInstructions(value, low, high, entry.sources[_ROWS[0]], entry.values.get(_UNTIL, ExtraRows(0.0).until))


def engine_sources(name: str) -> dict[str, str]:
    """Where each of an engine's terms comes from: field -> text. Raises UnknownNameError."""
    if (gap := engine_gap(name)) is not None:
        return dict.fromkeys(_ENGINE_TERMS, gap)
    sources = _engine_entry(name).sources
    return {field: sources.get(field, "0: its file does not say") for field in _ENGINE_TERMS}


def device_title(name: str) -> str:
    """What a person calls the device. Raises UnknownNameError."""
    return _device_entry(name).title


def architecture_title(name: str) -> str:
    """What a person calls the network. Raises UnknownNameError."""
    return _architecture_entry(name).title


def architecture_sources(name: str) -> dict[str, str]:
    """Where each number of an architecture comes from: field -> text. Raises UnknownNameError."""
    return _architecture_entry(name).sources


def architecture_positions(name: str) -> int | None:
    """Tokens of the longest text that an architecture is made for; None: nobody says. Raises UnknownNameError."""
    positions = _architecture_entry(name).values.get(POSITIONS)
    return None if positions is None else int(positions)


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
    repositories = {match[1] for source in architecture_sources(name).values() if (match := _REPOSITORY.search(source))}
    return repositories.pop() if len(repositories) == 1 else None


def device_entry(name: str, *, engine: str | None = None, weight_format: str | None = None) -> DeviceEntry:
    """A device with its title, sources and calibration, by its name or from a file: a path that exists or ends in ".toml".

    Args:
        engine, weight_format: as of `with_engine`.
    Raises:
        UnknownNameError: no such device, engine or format.
        EntryError: the file cannot be read, or its content is not a device, or one without measured kernels.
    """
    entry = accept_device(str(name), Path(name)) if _is_file(name) else _device_entry(name)
    return with_engine(entry, name, engine=engine, weight_format=weight_format)


def with_engine(
    entry: DeviceEntry, name: str, *, engine: str | None = None, weight_format: str | None = None
) -> DeviceEntry:
    """The same device with another engine's kernels, or those of another weight format.

    Args:
        entry: of a device.
        name: what the device is called in messages.
        engine: of `calibrated_engines` of the device or of the GPU that lends it kernels (`lent_kernels`), or one with
            `engine_rows`, or `OWN_ENGINE` on a machine whose file has its terms; the device's own unless given.
        weight_format: of `calibrated_formats`; what weights narrower than 16 bits are multiplied in; those kernels whose
            activations keep 16 bits unless given.
    Raises:
        UnknownNameError: no such engine or format on this device.
        EntryError: the device has no measured kernels.
    """
    if engine is None and weight_format is None:
        return entry
    if weight_format is None and ENGINES.get(engine or "") is not None:
        return entry  # an engine from elsewhere: its terms are known, and the kernels are the device's own
    if engine == OWN_ENGINE and weight_format is None and entry.engine_terms is not None:
        return entry  # a measured machine: its kernels are those of this package, and its file has what the loop spends
    if engine == OWN_ENGINE:
        raise EntryError(
            f"engine {engine!r} came, but the file of {name} has no [engine_terms] of this package's own loop; leave it out, "
            "or give the file that jaxspec calibrate writes, without a weight format"
        )
    if engine == _LLAMA_CPP and entry.title.startswith("Apple"):
        engine = _METAL
    if weight_format is None and engine in engine_names() and (rows := engine_rows(engine)) is not None:
        slug = _catalog_name(name)
        if engine == _MLX and slug in _LENT_BY_M3_ULTRA:
            return _with_kernels_of_mlx(entry)
        if engine != _MLX and slug == _TIMED_UNDER_MLX:
            entry = _without_kernels_of_mlx(entry)
        with_rows = _with_rows(_with_launches_of_metal(entry) if engine == _METAL else entry, rows)
        return _with_steps_of_llama_cpp(with_rows) if engine == _LLAMA_CPP else with_rows
    engine = kernels_of(engine)
    lent, title = lent_kernels(name) if entry.calibration is None else None, entry.title
    if lent is not None and engine_kernels(entry, name, engine) is not None:
        entry = _with_lent_kernels(entry, lent)
    if entry.calibration is None:
        if engine is not None and engine not in ENGINES:
            near = near_matches(engine, engine_names())
            raise UnknownNameError(f"unknown engine {engine!r};{near} allowed: {', '.join(engine_names())}")
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
        lent_to=None if lent is None else title,
    )
    # Numbers of the device's own engine go: it may have more formats than this one.
    own = lambda leaf: leaf.startswith("matrix_unit.") and leaf != "matrix_unit.multiprocessors"
    sources = {leaf: source for leaf, source in entry.sources.items() if not own(leaf)}
    sources |= {leaf: source for leaf, source in calibrated_sources(entry.calibration, unit).items() if own(leaf)}
    return dataclasses.replace(entry, device=dataclasses.replace(entry.device, matrix_unit=unit), sources=sources)


#: Share of the data sheet's bandwidth that whole steps of engines without measured kernels reach, and where it comes from.
_STEPS_REACH = (0.7, "transferred: as devices whose files were made for such engines")


class LentKernels(NamedTuple):
    """The measured GPU whose kernels count on a device without any of its own, and the device's multiprocessors."""

    gpu: str
    multiprocessors: float
    source: str


def _catalog_name(name: str) -> str | None:
    return _slug(name) if _slug(name) in DEVICES else device_named(name)


def lent_kernels(name: str) -> LentKernels | None:
    """Whose kernels a device of the catalog has with engines that nobody measured on it; None: nobody's."""
    slug = _catalog_name(name)
    return None if slug is None else _lenders().get(slug)


def engine_kernels(entry: DeviceEntry, name: str, engine: str | None) -> str | None:
    """The calibrated GPU whose kernels of an engine count on a device: its own, or the one that lends it kernels.

    Args:
        entry, name: of the device.
    Returns:
        of `calibrated_names`; None: the engine was measured on neither.
    """
    gpu = entry.calibration
    if gpu is None and (lent := lent_kernels(name)) is not None:
        gpu = lent.gpu
    return gpu if gpu is not None and kernels_of(engine) in calibrated_engines(gpu) else None


def kernels_of(engine: str | None) -> str | None:
    """The name in calibrations: older releases of an engine, whose terms are their own, have the kernels of its current one."""
    return None if engine is None else engine.removesuffix("-2025")


def kernels_engine(name: str, engine: str | None) -> str | None:
    """An engine as `device_entry` takes it; None where the device has no measured kernels and none of the engine's are known
    for it, so that its own numbers count. Raises UnknownNameError, EntryError: of the device."""
    if engine is None or engine == OWN_ENGINE or engine not in ENGINES or ENGINES.get(engine) is not None:
        return engine
    if engine in engine_names() and engine_rows(engine) is not None:
        return engine
    entry = device_entry(name)
    return None if entry.calibration is None and engine_kernels(entry, name, engine) is None else engine


@functools.cache
def _lenders() -> dict[str, LentKernels]:
    return {
        device: LentKernels(gpu, float(count), entry["source"])
        for gpu, entry in read_table(__package__, "lent_kernels.toml").items()
        for device, count in entry["multiprocessors"].items()
    }


def _with_lent_kernels(entry: DeviceEntry, lent: LentKernels) -> DeviceEntry:
    """A device at its own rates, with everything else of the measured GPU."""
    like, sources = _device_entry(_MEASURED_ON[lent.gpu]), dict(entry.sources)
    memory = dataclasses.replace(entry.device.memory, efficiency=like.device.memory.efficiency)
    of_like = {name: getattr(like.device, name) for name in ("compute_efficiency", "operator_latency_s")}
    unit = dataclasses.replace(like.device.matrix_unit, multiprocessors=lent.multiprocessors)
    device = dataclasses.replace(entry.device, memory=memory, vector_flops_per_s=None, matrix_unit=unit, **of_like)
    sources.pop("vector_flops_per_s", None)
    sources |= dict.fromkeys(("memory.efficiency", *of_like), f"transferred: as of {lent.gpu}")
    sources["matrix_unit.multiprocessors"] = lent.source
    title = f"{entry.title}, kernels as calibrated on {lent.gpu}"
    return dataclasses.replace(entry, title=title, device=device, sources=sources, calibration=lent.gpu)


#: Calibration -> the device that was measured.
_MEASURED_ON = {"a100-sxm": "a100-sxm-80gb"} | {name: name for name in ("l40s", "rtx-pro-6000", "h200-sxm")}


#: GPUs on which MLX's kernels are those of an M3 Ultra. Those of M1 and M2 convert bfloat16 in software, which its instructions
#: do not count, and MLX has tiles for fewer rows there; an M5 has matrix units, and a published row of its own.
_MLX = "mlx"
_TIMED_UNDER_MLX = "m3-ultra"
_LENT_BY_M3_ULTRA = ("m3", "m3-pro", "m3-max", "m4", "m4-pro", "m4-max")

#: Rows from which on MLX uses tiles where a GPU is no Ultra, of large matrices.
_MLX_SWITCH_ROWS = (10.0, "MLX source code, mlx/backend/metal/quantized.cpp, get_qmv_batch_limit: 10, an Ultra 12")


def _with_kernels_of_mlx(entry: DeviceEntry) -> DeviceEntry:
    """A GPU at its own rates with the vectors and tiles of MLX, as counted in its source code and timed on an M3 Ultra."""
    like = _device_entry(_TIMED_UNDER_MLX)
    unit = dataclasses.replace(like.device.matrix_unit, switch_rows=_MLX_SWITCH_ROWS[0])
    of_like = {name: getattr(like.device, name) for name in ("compute_efficiency", "operator_latency_s")}
    device = dataclasses.replace(entry.device, matrix_unit=unit, **of_like)
    lent = {leaf: source for leaf, source in like.sources.items() if leaf in of_like or leaf.startswith("matrix_unit.")}
    sources = entry.sources | {leaf: f"transferred from m3-ultra: {source}" for leaf, source in lent.items()}
    return dataclasses.replace(entry, device=device, sources=sources | {"matrix_unit.switch_rows": _MLX_SWITCH_ROWS[1]})


def _without_kernels_of_mlx(entry: DeviceEntry) -> DeviceEntry:
    """A GPU of Apple at the rates of its file, for engines other than the one whose kernels the file has."""
    sources = {leaf: source for leaf, source in entry.sources.items() if not leaf.startswith("matrix_unit.")}
    return dataclasses.replace(entry, device=dataclasses.replace(entry.device, matrix_unit=None), sources=sources)


#: llama.cpp, and on GPUs of Apple.
_LLAMA_CPP, _METAL = "llama.cpp", "llama.cpp-metal"

#: What a step of it takes elsewhere: the share of the data sheet's bandwidth, and seconds of each operator; a layer has
#: seven. Bandwidth alone misses small networks, which draft, by a third.
_LLAMA_CPP_STEPS = {"memory.efficiency": 0.79, "operator_latency_s": 4.3e-6}
_LLAMA_CPP_SOURCE = (
    "derived: both by least squares from 15 published steps of 1.1, 3.2 and 14.8 billion parameters in Q4_K_M on six cards of "
    "NVIDIA, 30 us a layer, within 19 % (Vulkan; github.com/geerlingguy/ai-benchmarks, issues 36, 39, 40, 43, 45 and 46)"
)


def _with_launches_of_metal(entry: DeviceEntry) -> DeviceEntry:
    """A GPU of Apple whose kernels take as long to launch as an M3 Ultra's.

    The efficiency of its memory is of large networks' steps; small ones, which draft, are bound by launches: Qwen3-0.6B in Q4_0
    takes 3.1 to 3.6 ms a token under llama.cpp on an Ultra (github.com/ggml-org/llama.cpp pull request 19390), its weights 0.5.
    """
    like = _device_entry(_TIMED_UNDER_MLX)
    device = dataclasses.replace(entry.device, operator_latency_s=like.device.operator_latency_s)
    source = f"transferred from {_TIMED_UNDER_MLX}: {like.sources['operator_latency_s']}"
    return dataclasses.replace(entry, device=device, sources=entry.sources | {"operator_latency_s": source})


def _with_steps_of_llama_cpp(entry: DeviceEntry) -> DeviceEntry:
    """A device whose steps take what whole steps of llama.cpp do, its launches apart from its bandwidth."""
    memory = dataclasses.replace(entry.device.memory, efficiency=_LLAMA_CPP_STEPS["memory.efficiency"])
    device = dataclasses.replace(entry.device, memory=memory, operator_latency_s=_LLAMA_CPP_STEPS["operator_latency_s"])
    sources = entry.sources | dict.fromkeys(_LLAMA_CPP_STEPS, _LLAMA_CPP_SOURCE)
    return dataclasses.replace(entry, device=device, sources=sources)


def _with_rows(entry: DeviceEntry, rows: RowInstructions) -> DeviceEntry:
    """A device with the kernels of an engine that spends instructions on each row; measured kernels of other engines go."""
    device, sources = entry.device, dict(entry.sources)
    if entry.calibration is not None:
        sources = {leaf: source for leaf, source in sources.items() if not leaf.startswith("matrix_unit.")}
        memory = dataclasses.replace(device.memory, efficiency=_STEPS_REACH[0])
        device = dataclasses.replace(device, matrix_unit=None, memory=memory, operator_latency_s=0.0)
        sources["memory.efficiency"] = _STEPS_REACH[1]
    if device.matrix_unit is None:  # other units have rows of their own
        device = dataclasses.replace(device, extra_rows=ExtraRows(rows.value, rows.until))
        sources |= {"extra_rows.instructions": rows.source}
    return dataclasses.replace(entry, device=device, sources=sources, calibration=None)


def document_of(kind: str, name: str) -> dict[str, Any]:
    """Content of the file of a "device" or "architecture": of a user's own, which exists or ends in ".toml", of the catalog, or
    the one that would say what is registered by this name.

    Raises:
        UnknownNameError: no such name.
        EntryError: the file cannot be read, or no file can say it.
    """
    registry: Registry[Any] = {"device": DEVICES, "architecture": ARCHITECTURES}[kind]
    if not _is_file(name) and (registered := registry.get(_slug(name))) is not None:
        return device_document(registered, name) if kind == "device" else architecture_document(registered)
    title, document = titled_document(file_text(name) or "" if _is_file(name) else _read(registry, name), name)
    return {"title": title, **document}


def own_name(kind: str, given: Any) -> str:
    """The name under which an object of a user's own, or the content of its file, is registered, which this does.

    An object that equals one member of the catalog alone is that member: kernels and releases are known by its name.

    Args:
        kind: "device" or "architecture".
        given: may have its name, as `name`; otherwise, and where another one has it, a part of the name is a digest.
    Raises:
        ValueError: no object of this kind, or one that no file can say.
    """
    registry: Registry[Any] = {"device": DEVICES, "architecture": ARCHITECTURES}[kind]
    document = dict(given) if isinstance(given, Mapping) else None
    wanted = str(document.pop("name", "")) if document is not None else ""
    try:
        called = wanted or f"own {kind}"
        if kind == "device":
            entry = accept_device(called, document or given)
            content = device_document(entry, f"own {kind}")
        else:
            entry = accept_architecture(called, document or given)
            content = architecture_document(entry)
    except EntryError as error:
        raise ValueError(str(error)) from error
    alike = [name for name, member in _members(kind).items() if member == given] if document is None else []
    if len(alike) == 1:
        return alike[0]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:6]
    taken = wanted in registry and (registry[wanted] is None or document_of(kind, wanted) != content)
    name = wanted if wanted and not taken else f"{wanted or kind}-{digest}"
    if name not in registry:
        registry[name] = entry
    return name


@functools.cache
def _members(kind: str) -> dict[str, Device | Architecture]:
    """Every device or architecture of the catalog's files, by name."""
    return {name: device(name) if kind == "device" else architecture(name) for name in _names(f"{kind}s")}


def _is_file(name: str) -> bool:
    return name.endswith(".toml") or os.path.isfile(name)  # `Path.is_file` raises on names too long for one


def _device_entry(name: str) -> DeviceEntry:
    registered = DEVICES.get(_slug(name))
    if registered is not None:
        return registered
    entry = _parsed_device(_read(DEVICES, name), name)
    return dataclasses.replace(entry, sources=dict(entry.sources))  # the caller's own


@functools.lru_cache(maxsize=256)
def _parsed_device(text: str, name: str) -> DeviceEntry:
    """A file's content, whose title, numbers and sources are asked for one after another."""
    return parse_device(text, where=name)


def _architecture_entry(name: str) -> Entry:
    registered = ARCHITECTURES.get(_slug(name))
    return parse_architecture(_read(ARCHITECTURES, name), where=name) if registered is None else registered


def _engine_entry(name: str) -> Entry:
    if (gap := engine_gap(name)) is not None:
        raise UnknownNameError(f"terms of engine {name!r} are not known ({gap}); allowed: {', '.join(engine_names())}")
    return ENGINES.get(_slug(name)) or _parse_engine(_read(ENGINES, name), name)


def _parse_engine(text: str, where: str) -> Entry:
    return parse_entry(
        text, _ENGINE_RULES, where=where, optional=frozenset((*SCATTER_FIELDS.values(), *_ROWS, _UNTIL, *_MAY_LACK))
    )


def _accept_engine(name: str, given: Any) -> Entry:
    """The terms, or the file that has them."""
    if isinstance(given, EngineTerms):
        values = {field: float(getattr(given, field)) for field in _ENGINE_TERMS}
        return Entry(name, values, dict.fromkeys(values, GIVEN))
    if (text := file_text(given)) is not None:
        return _parse_engine(text, str(given))
    raise ValueError(f"engine {name!r} is {shown(given)}; give EngineTerms, or the path of a TOML file")


def _folder(section: str) -> Traversable:
    return importlib.resources.files("hwmodels.catalog") / section


def _names(section: str) -> tuple[str, ...]:
    return tuple(sorted(f.name.removesuffix(".toml") for f in _folder(section).iterdir() if f.name.endswith(".toml")))


def _apart(name: str) -> list[str]:
    return re.split(r"[\s_/-]+", name)


def _slug(name: str) -> str:
    if not isinstance(name, str):
        raise UnknownNameError(f"name is {repr(name)[:60]}; it must be a text, as 'h100-sxm'")
    return name.strip().lower()


def _read(registry: Registry[Any], name: str) -> str:
    """The catalog's file of a name. Raises UnknownNameError."""
    slug, kind = _slug(name), registry.kind
    if slug not in registry and kind == "device":
        slug = device_named(name) or slug
    if slug not in registry:
        allowed = sorted(registry)
        # A name within what came, as of a tuned release of a network, has few of its letters.
        words = set(_apart(slug))
        within = [each for each in allowed if len(own := set(_apart(each))) > 1 and own <= words]
        longest = sorted(within, key=lambda each: (-len(each), each))[:3]
        near = near_matches(slug, allowed) or near_matches(slug, longest, cutoff=0.0)
        raise UnknownNameError(f"unknown {kind} {name!r};{near} allowed: {', '.join(allowed)}")
    return (_folder(f"{kind}s") / f"{slug}.toml").read_text(encoding="utf-8")


#: By name; None: its entry is in the catalog's file of that name.
DEVICES: Registry[DeviceEntry | None] = Registry("device", dict.fromkeys(_names("devices")), accept_device)
ARCHITECTURES: Registry[Entry | None] = Registry(
    "architecture", dict.fromkeys(_names("architectures")), accept_architecture
)
ENGINES: Registry[Entry | None] = Registry("engine", dict.fromkeys(_names("engines")), _accept_engine)
