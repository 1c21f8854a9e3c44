"""Parts of a page that several studies show of a device: cells, proof, settings and times."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxspec.report.entries import STATUSES, Entry, lookup, model_title, number, numbers
from jaxspec.report.formatting import fixed


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
