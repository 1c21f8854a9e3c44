"""What the page of a tuning run shows of one device, as text and cells for the template."""

from __future__ import annotations

from typing import Any

from jaxspec.report.columns import shown_columns
from jaxspec.report.device_data import assumptions, device_rows
from jaxspec.report.draft_columns import LARGEST_GAP, PAGE_COLUMNS, gap_in_standard_errors
from jaxspec.report.formatting import NOT_KNOWN, fixed, knobs_in_words, times
from jaxspec.report.intervals import statements
from jaxspec.report.section import Cell, lossless_in_words, settings, timing
from jaxspec.report.stopwatch import stopwatch_page_tables
from jaxspec.report.titles import architecture_title, configurations, device_title, provenance
from jaxspec.report.verdict import headline, ratio, verdict
from jaxspec.results.network_results import Configuration
from jaxspec.studies.tune.disagreement import disagreement_in_words
from jaxspec.studies.tune.optimism import promises
from jaxspec.studies.tune.result import TuneResult


def section(result: TuneResult) -> dict[str, Any]:
    """All that the template needs of one device, its figures apart."""
    answer = verdict(result)
    tuned = result.configurations.get("tuned", Configuration())
    compared = [ratio(result, name) for name in ("grid", "default")]
    return {
        "title": f"{architecture_title(result)} on {device_title(result)}",
        "device": device_title(result),
        "headline": headline(result),
        "pays": answer.pays,
        "provenance": provenance(result),
        "columns": list(configurations(result)),
        "best": answer.best,
        "choice": answer.choice,
        "rows": _rows(result),
        "ratios": _ratios(result),
        "lossless": lossless_in_words(result.lossless),
        "more_tables": stopwatch_page_tables(result),
        "device_data": device_rows(result),
        "assumptions": assumptions(result),
        "settings": [*settings(result, objective=result.objective), *_by_j(result), *_intervals(result)],
        "timing": timing(result),
        "summary": [
            (times(tuned.speedup_vs_bf16_ar.number), ""),
            (times(tuned.speedup_vs_stored_ar.number), ""),
            *((times(found.value), found.interval) if found else (NOT_KNOWN, "") for found in compared),
        ],
    }


def _rows(result: TuneResult) -> list[dict[str, Any]]:
    """Metrics down, configurations across."""
    found = configurations(result).values()
    rows = [
        {
            "title": column.title,
            "meaning": column.meaning,
            "cells": [Cell(column.text(configuration), column.status(configuration)) for configuration in found],
        }
        for column in shown_columns(PAGE_COLUMNS, found)
    ]
    rows.append(
        {
            "title": "gap between the two",
            "meaning": f"in standard errors of the count; beyond {LARGEST_GAP:.0f} it is a defect",
            "cells": [_gap(configuration) for configuration in found],
        }
    )
    for title, what in (("weights", "weight"), ("keys and values", "kv"), ("LM head", "head")):
        words = [knobs_in_words(configuration.knobs.value, what) for configuration in found]
        if any(said != NOT_KNOWN for said in words):  # a scheme may leave out nothing of a kind
            rows.append({"title": title, "meaning": "what the draft leaves out", "cells": list(map(Cell, words))})
    return rows


def _by_j(result: TuneResult) -> list[tuple[str, str]]:
    words = disagreement_in_words(result)
    return [("objective J", words)] if words else []


def _intervals(result: TuneResult) -> list[tuple[str, str]]:
    held = (each.intervals for each in configurations(result).values())
    return [("intervals", words) for words in statements(held)]


def _gap(configuration: Configuration) -> Cell:
    gap = gap_in_standard_errors(configuration)
    if gap is None:
        return Cell(NOT_KNOWN)
    status = configuration.tokens_per_cycle_gap_in_standard_errors.status or "measured"
    return Cell(fixed(gap, 1), status, alarm="defect" if gap > LARGEST_GAP else "")


def _ratios(result: TuneResult) -> list[tuple[str, str, str]]:
    found = [(name, ratio(result, name)) for name in configurations(result) if name != "tuned"]
    rows = [
        (f"tuned vs {name}", str(value), "" if value.clear else "no clear difference: the interval contains 1")
        for name, value in found
        if value is not None
    ]
    return rows + [(f"tuned vs {name}, on calibration text", value, remark) for name, value, remark in promises(result)]
