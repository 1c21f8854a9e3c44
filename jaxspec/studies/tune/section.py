"""What the page of a tuning run shows of one device, as text and cells for the template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxspec.report.device_data import assumptions, device_rows
from jaxspec.report.entries import (
    LARGEST_GAP,
    NO_STATUS,
    Entry,
    architecture_title,
    configurations,
    device_title,
    gap_in_standard_errors,
    lookup,
    number,
    provenance,
    status,
)
from jaxspec.report.formatting import NOT_KNOWN, fixed, knobs_in_words, times
from jaxspec.report.metrics_shown import METRICS
from jaxspec.report.section import Cell, lossless_in_words, settings, timing
from jaxspec.report.verdict import headline, ratio, verdict


def section(entry: Entry) -> dict[str, Any]:
    """All that the template needs of one device, its figures apart."""
    answer = verdict(entry)
    tuned, compared = lookup(entry, "configurations", "tuned"), [ratio(entry, name) for name in ("grid", "default")]
    return {
        "title": f"{architecture_title(entry)} on {device_title(entry)}",
        "device": device_title(entry),
        "headline": headline(entry),
        "pays": answer.pays,
        "provenance": provenance(entry),
        "columns": list(configurations(entry)),
        "best": answer.best,
        "choice": answer.choice,
        "rows": _rows(entry),
        "ratios": _ratios(entry),
        "lossless": lossless_in_words(entry),
        "device_data": device_rows(entry),
        "assumptions": assumptions(entry),
        "settings": settings(entry),
        "timing": timing(entry),
        "summary": [
            *((times(number(tuned, f"speedup_vs_{baseline}_ar")), "") for baseline in ("bf16", "stored")),
            *((times(found.value), found.interval) if found else (NOT_KNOWN, "") for found in compared),
        ],
    }


def _rows(entry: Entry) -> list[dict[str, Any]]:
    """Metrics down, configurations across."""
    found = configurations(entry).values()
    rows = [
        {
            "title": metric.title,
            "meaning": metric.meaning,
            "cells": [Cell(metric.text(configuration), metric.status(configuration)) for configuration in found],
        }
        for metric in METRICS
        if not metric.optional or any(number(configuration, *metric.path) is not None for configuration in found)
    ]
    rows.append(
        {
            "title": "gap between the two",
            "meaning": f"in standard errors of the count; beyond {LARGEST_GAP:.0f} it is a defect",
            "cells": [_gap(configuration) for configuration in found],
        }
    )
    for title, what in (("weights", "weight"), ("keys and values", "kv")):
        cells = [Cell(knobs_in_words(lookup(configuration, "knobs"), what)) for configuration in found]
        rows.append({"title": title, "meaning": "what the draft leaves out", "cells": cells})
    return rows


def _gap(configuration: Mapping[str, Any]) -> Cell:
    gap = gap_in_standard_errors(configuration)
    if gap is None:
        return Cell(NOT_KNOWN)
    found = status(configuration, "tokens_per_cycle_gap_in_standard_errors")
    return Cell(fixed(gap, 1), "measured" if found == NO_STATUS else found, alarm="defect" if gap > LARGEST_GAP else "")


def _ratios(entry: Entry) -> list[tuple[str, str, str]]:
    found = [(name, ratio(entry, name)) for name in configurations(entry) if name != "tuned"]
    return [
        (f"tuned vs {name}", str(value), "" if value.clear else "no clear difference: the interval contains 1")
        for name, value in found
        if value is not None
    ]
