"""Error tables of every calibrated GPU and engine, read from the files that the fits wrote, so that they are never stale."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from generated.page import ROOT, percent, table

FOLDER = ROOT / "hwmodels" / "catalog" / "calibrated"

_NUMBERS = ("rows", "held out", "median", "largest", "fitted", "roofline")
_HEADINGS = ("engine", "kernel", *_NUMBERS, "90 % interval", "covers", "left out", "on a bound")

#: Tables of a file -> how a kernel of the table is called, from its name.
_PARTS = {"formats": "products, {}", "experts": "routed experts, {}", "attention": "attention, decoding, {}"}


def kernels(record: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What was fitted, by its name in the table."""
    for part, words in _PARTS.items():
        for name, entry in record.get(part, {}).items():
            yield words.format(name), entry
    if "prefill" in record:
        yield "attention, prefill", record["prefill"]


def held_out(errors: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Errors on rows that a fit had not seen: of the way of holding out whose mean is the worst."""
    apart = [error for name, error in errors.items() if name.endswith("held out")]
    return max(apart, key=lambda error: error["mean"])


def _fitted(errors: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Of the fit to all rows; nothing of numbers that another table lends."""
    return next((error for name, error in errors.items() if name.endswith("fitted") and "not" not in name), {})


def _row(engine: str, name: str, entry: Mapping[str, Any]) -> list[str]:
    errors, interval = entry["errors"], entry.get("interval")
    apart = held_out(errors)
    return [
        engine,
        name,
        f"{entry['rows']:,}",
        percent(apart["mean"]),
        percent(apart.get("median")),
        percent(apart.get("largest")),
        percent(_fitted(errors).get("mean")),
        percent(entry.get("baselines", {}).get("roofline", {}).get("mean")),
        f"{interval['low']:.2f} to {interval['high']:.2f}" if interval else "",
        ", ".join(percent(share, 0) for share in interval["covered"]) if interval else "",
        percent(interval.get("covered_left_out"), 0) if interval else "",
        ", ".join(entry.get("at_bound", ())),
    ]


def _of_gpu(folder: Path) -> str:
    records = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml"))}
    rows = [_row(engine, *kernel) for engine, record in records.items() for kernel in kernels(record)]
    sources = {entry["table"] for record in records.values() for _, entry in kernels(record)}
    return f"## {folder.name}\n\n{table(_HEADINGS, rows, numbers=_NUMBERS)}\n\nFitted to: {', '.join(sorted(sources))}."


def error_tables() -> str:
    """A section for each GPU, a row for each kernel of each engine."""
    return "\n\n".join(_of_gpu(folder) for folder in sorted(FOLDER.iterdir()) if any(folder.glob("*.toml")))
