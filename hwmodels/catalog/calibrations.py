"""Files of calibrated GPUs, one per engine, and which of their fits are used.

Each `calibrated/GPU/ENGINE.toml` is written by `python -m experiments.silicon`: a data sheet, for every weight format the eight
fitted numbers with the table, its version, errors and interval, for every format of routed experts the same with six numbers,
and the numbers of attention, decoding by width of the cache and prefill. None is edited by hand.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.resources
import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable
from typing import Any

from hwmodels.catalog.entries import EntryError, UnknownNameError, near_matches
from hwmodels.compute.unit import FitRemark

__all__ = [
    "DEFAULT_ENGINE",
    "LARGEST_ATTENTION_ERROR",
    "LARGEST_HELD_OUT_ERROR",
    "SCALED",
    "calibrated_engines",
    "calibrated_formats",
    "calibrated_names",
    "calibration_record",
    "calibration_remarks",
    "held_out_error",
    "is_used",
    "reading",
    "used_attention",
    "used_formats",
]

#: Mean error of held-out shapes beyond which a packed format's fit is not used unless it is asked for: the bytes of a wider
#: format's kernel are scaled instead.
LARGEST_HELD_OUT_ERROR = 0.10

#: Among a packed format's baselines: what stands in for it where it is not used.
SCALED = "16 bits, bytes scaled"

#: The same of attention over narrow keys and values, whose tables are less smooth.
LARGEST_ATTENTION_ERROR = 0.20

#: The engine whose kernels a GPU has unless another is named: the one with most weight formats among the tables.
DEFAULT_ENGINE = "trtllm"

#: The format that every calibration has.
_WIDEST = "bfloat16"


def calibrated_names() -> tuple[str, ...]:
    """Names of all calibrated GPUs, sorted."""
    return tuple(sorted(folder.name for folder in _folder().iterdir() if folder.is_dir()))


def calibrated_engines(name: str) -> tuple[str, ...]:
    """Engines whose kernels were measured on a GPU, sorted. Raises UnknownNameError."""
    slug, allowed = name.strip().lower(), calibrated_names()
    if slug not in allowed:
        raise UnknownNameError(
            f"unknown calibrated GPU {name!r};{near_matches(slug, allowed)} allowed: {', '.join(allowed)}"
        )
    files = (file.name for file in (_folder() / slug).iterdir())
    return tuple(sorted(file.removesuffix(".toml") for file in files if file.endswith(".toml")))


def calibration_record(name: str, engine: str | None = None) -> dict[str, Any]:
    """A GPU's whole file: tables, versions, splits, standard errors, errors by range, intervals, baselines.

    Args:
        name: of `calibrated_names`.
        engine: of `calibrated_engines`; that of `DEFAULT_ENGINE` unless given.
    Raises:
        UnknownNameError: no such GPU, or no such engine on it.
    """
    slug, allowed = name.strip().lower(), calibrated_engines(name)
    engine = DEFAULT_ENGINE if engine is None else engine
    if engine not in allowed:
        raise UnknownNameError(
            f"engine {engine!r} is not measured on {slug};{near_matches(engine, allowed)} allowed: {', '.join(allowed)}"
        )
    return copy.deepcopy(_parsed((_folder() / slug / f"{engine}.toml").read_text(encoding="utf-8")))


@contextlib.contextmanager
def reading(name: str, engine: str | None = None) -> Iterator[dict[str, Any]]:
    """A GPU's file for a block that may take it for whole: what the block finds missing or wrong is an `EntryError`."""
    record = calibration_record(name, engine)
    try:
        yield record
    except (KeyError, TypeError, ValueError) as error:
        raise EntryError(
            f"calibration of {name} lacks or misstates {error}; write it again with python -m experiments.silicon"
        ) from error


@functools.lru_cache
def _parsed(text: str) -> dict[str, Any]:
    """A file's content: one device asks for it nine times, and reading takes ten times as long as copying."""
    return tomllib.loads(text)


def calibrated_formats(name: str, engine: str | None = None) -> tuple[str, ...]:
    """Formats narrower than 16 bits that an engine's products are measured in; as of `calibration_record`."""
    return tuple(sorted(kind for kind in calibration_record(name, engine)["formats"] if kind != _WIDEST))


def held_out_error(entry: Mapping[str, Any]) -> float:
    """Mean error of a format's products whose shapes were held out: the worse of all ways in which they were."""
    apart = [errors["mean"] for name, errors in entry["errors"].items() if name.endswith("held out")]
    return max([*entry["held_out_halves"], *apart])


def is_used(record: Mapping[str, Any], kind: str, part: str = "formats", wanted: str | None = None) -> bool:
    """Whether a format's fit is a kernel of the GPU.

    The widest is, as it is all there is. Others are if their activations have 16 bits and the fit describes held-out shapes,
    or describes them better than what would stand in for it (`SCALED`); where one is asked for, that one alone.

    Args:
        record: a calibrated GPU's whole file.
        kind: the format's name there.
        part: "formats", those of products, or "experts".
        wanted: the format that is asked for.
    """
    formats = record[part]
    widest = max(entry["weight_bits"] for entry in formats.values())
    entry = formats[kind]
    if entry["weight_bits"] == widest:
        return True
    if wanted is not None and wanted in formats:
        return kind == wanted
    otherwise = entry.get("baselines", {}).get(SCALED, {}).get("mean", 0.0)
    return entry.get("activation_bits", 16.0) == 16.0 and held_out_error(entry) <= max(
        LARGEST_HELD_OUT_ERROR, otherwise
    )


def used_formats(
    record: Mapping[str, Any], part: str = "formats", wanted: str | None = None
) -> list[Mapping[str, Any]]:
    """Entries of the formats that are used, by bits per weight, increasing."""
    entries = [entry for kind, entry in record.get(part, {}).items() if is_used(record, kind, part, wanted)]
    return sorted(entries, key=lambda entry: entry["weight_bits"])


def used_attention(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Entries of decoding attention that are used, by bits per element: the widest, and those that describe theirs."""
    entries = sorted(record["attention"].values(), key=lambda entry: entry["kv_bits"])
    return [e for e in entries if e is entries[-1] or e["errors"]["held out"]["mean"] <= LARGEST_ATTENTION_ERROR]


def calibration_remarks(name: str, engine: str | None = None, wanted: str | None = None) -> tuple[FitRemark, ...]:
    """What a reader of this GPU's times should know: fits left out, fits that err much, fitted numbers on a bound.

    Raises:
        UnknownNameError: no such GPU or engine.
        EntryError: its file is damaged.
    """
    with reading(name, engine) as record:
        remarks = [FitRemark(text, "products") for text, _ in _format_remarks(record, "formats", "weights", wanted)]
        unmeasured = "kernels of routed experts were not measured: they are priced as products one after the other"
        of_experts = [(unmeasured, None)]
        if record.get("experts"):
            of_experts = _format_remarks(record, "experts", "experts", wanted)
        remarks += [FitRemark(text, "experts", bits) for text, bits in of_experts]
        used = used_attention(record)
        for kind, entry in [*record["attention"].items(), ("prefill", record["prefill"])]:
            words = _words(entry, entry["errors"]["held out"]["mean"])
            dropped = "" if kind == "prefill" or entry in used else " are not used"
            part = "prefill" if kind == "prefill" else "attention"
            remarks += [FitRemark(f"kernels of attention, {kind}{dropped}: {words}", part)] if words else []
    return tuple(remarks)


def _format_remarks(
    record: Mapping[str, Any], part: str, of_what: str, wanted: str | None
) -> list[tuple[str, float | None]]:
    """Sentences, with the bits per weight of a format that is used."""
    remarks: list[tuple[str, float | None]] = []
    for kind, entry in sorted(record[part].items(), key=lambda item: item[1]["weight_bits"]):
        error, which = held_out_error(entry), f"kernels of {entry['weight_bits']:g}-bit {of_what}"
        if is_used(record, kind, part, wanted):
            words = _words(entry, error)
            remarks += [(f"{which}: {words}", float(entry["weight_bits"]))] if words else []
        elif wanted is None and entry.get("activation_bits", 16.0) == 16.0:
            remarks.append((f"{which} are not used: {_words(entry, error)}", None))
    return remarks


def _words(entry: Mapping[str, Any], error: float) -> str:
    bound, host = entry["at_bound"], 1e6 * entry["coefficients"].get("host_s", 0.0)
    read, wider = entry["coefficients"].get("read_bits", 0.0), entry.get("wider_from_tokens")
    if not bound and not host and not read and not wider and error <= LARGEST_HELD_OUT_ERROR:
        return ""
    clauses = [f"held-out error {error:.0%}"] + ([f"fitted numbers at a bound: {', '.join(bound)}"] if bound else [])
    clauses += [f"they are expanded to {read:g} bits before they are multiplied"] if read else []
    if wider:
        clauses.append(f"from about {wider:,.0f} tokens on the 16-bit kernel is faster, and priced in their place")
    return "; ".join(
        clauses
        + ([f"the {host:.0f} µs of the host per product, which a CUDA graph saves, are left out"] if host else [])
    )


def _folder() -> Traversable:
    return importlib.resources.files("hwmodels.catalog") / "calibrated"
