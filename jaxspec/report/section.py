"""What the page shows of one device, as text and cells for the template."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxspec.report.device_data import assumptions, device_rows
from jaxspec.report.entries import (
    LARGEST_GAP,
    NO_STATUS,
    STATUSES,
    Entry,
    architecture_title,
    configurations,
    device_title,
    gap_in_standard_errors,
    lookup,
    model_title,
    number,
    numbers,
    provenance,
    status,
)
from jaxspec.report.formatting import NOT_KNOWN, fixed, knobs_in_words, times
from jaxspec.report.metrics_shown import METRICS
from jaxspec.report.verdict import headline, ratio, verdict


@dataclasses.dataclass(frozen=True)
class Cell:
    """One number of the table: its text, its status, and a remark that must not be overlooked."""

    text: str
    status: str | None = None
    alarm: str = ""

    @property
    def css_class(self) -> str:
        """How the status is coloured."""
        return self.status if self.status in STATUSES else "none"


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


def lossless_in_words(entry: Entry) -> dict[str, Any]:
    """The proof that drafts change speed and nothing else, in a line."""
    prompts, tokens, mismatches = (number(entry, "lossless", key) for key in ("prompts", "tokens", "mismatches"))
    if mismatches is None:
        return {"state": "unknown", "text": "Lossless: not checked in this run."}
    where = f"{fixed(tokens, 0)} tokens of {fixed(prompts, 0)} prompts"
    ties, margin = number(entry, "lossless", "ties"), number(entry, "lossless", "smallest_margin")
    more = "" if ties is None else f", {ties:.0f} {'tie' if ties == 1 else 'ties'}"
    more += "" if margin is None else f"; smallest margin between the two best tokens {margin:.3g}"
    if mismatches:
        said = f"NOT lossless: {mismatches:.0f} of {where} differ between speculative and autoregressive output{more}."
        return {"state": "broken", "text": said}
    said = f"Lossless: speculative and autoregressive output agree in all {where}, 0 mismatches{more}."
    return {"state": "holds", "text": said}


def settings(entry: Entry) -> list[tuple[str, str]]:
    """What the result holds for."""
    found: list[tuple[str, Any]] = [("model", model_title(entry)), ("note", lookup(entry, "model", "note"))]
    found += [(name, lookup(entry, name)) for name in ("architecture", "device", "scheme", "objective", "text", "seed")]
    for group in ("workload", "decoding"):
        parts = [f"{name.replace('_', ' ')} {_plain(value)}" for name, value in (lookup(entry, group) or {}).items()]
        found.append((group, ", ".join(parts) or None))
    return [(name, _plain(value)) for name, value in found if value is not None]


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def timing(entry: Entry) -> list[tuple[str, str]]:
    """Seconds by kind of stage: what stands before a slash in the stages' names."""
    totals: dict[str, float] = {}
    for stage, seconds in numbers(entry, "timing_s").items():
        kind = stage.partition("/")[0].replace("_", " ")
        totals[kind] = totals.get(kind, 0.0) + seconds
    return [(kind, f"{seconds:.1f} s") for kind, seconds in totals.items()]
