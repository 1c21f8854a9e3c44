"""Parts of a page that several studies show of a device: cells, proof, settings and times."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxspec.report.formatting import fixed
from jaxspec.report.titles import model_title
from jaxspec.results import STATUSES
from jaxspec.results.network_results import DecodingSettings, Lossless, MeasuredResult, WorkloadSettings


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


def lossless_in_words(proof: Lossless) -> dict[str, Any]:
    """The proof that drafts change speed and nothing else, in a line."""
    mismatches = proof.mismatches.number
    if mismatches is None:
        return {"state": "unknown", "text": "Lossless: not checked in this run."}
    where = f"{fixed(proof.tokens.number, 0)} tokens of {fixed(proof.prompts.number, 0)} prompts"
    ties, margin = proof.ties.number, proof.smallest_margin.number
    more = "" if ties is None else f", {ties:.0f} {'tie' if ties == 1 else 'ties'}"
    more += "" if margin is None else f"; smallest margin between the two best tokens {margin:.3g}"
    if mismatches:
        said = f"NOT lossless: {mismatches:.0f} of {where} differ between speculative and autoregressive output{more}."
        return {"state": "broken", "text": said}
    said = f"Lossless: speculative and autoregressive output agree in all {where}, 0 mismatches{more}."
    return {"state": "holds", "text": said}


def settings(result: MeasuredResult, **more: str | None) -> list[tuple[str, str]]:
    """What the result holds for.

    Args:
        more: further settings, before text and seed.
    """
    found: dict[str, Any] = {
        "model": model_title(result),
        "note": result.model.note,
        "architecture": result.architecture,
        "device": result.device,
        "scheme": result.scheme,
        **more,
        "text": result.text,
        "prompts": result.prompts,
        "seed": result.seed,
        "workload": _in_words(result.workload),
        "decoding": _in_words(result.decoding),
    }
    notes = [(f"note {i}", note) for i, note in enumerate(result.notes, start=1)]
    return [*((name, str(value)) for name, value in found.items() if value is not None), *notes]


def _in_words(part: WorkloadSettings | DecodingSettings) -> str | None:
    known = {name: value for name, value in part.plain().items() if value is not None}
    parts = [f"{name.replace('_', ' ')} {_word(value)}" for name, value in known.items()]
    return ", ".join(parts) or None


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def timing(result: MeasuredResult) -> list[tuple[str, str]]:
    """Seconds by kind of stage, what stands before a slash in the stages' names; the longest first."""
    totals: dict[str, float] = {}
    for stage, seconds in result.timing_s.items():
        if seconds.number is not None:
            kind = stage.partition("/")[0].replace("_", " ")
            totals[kind] = totals.get(kind, 0.0) + seconds.number
    longest_first = sorted(totals.items(), key=lambda entry: -entry[1])
    return [(kind, f"{seconds:.1f} s") for kind, seconds in longest_first]
