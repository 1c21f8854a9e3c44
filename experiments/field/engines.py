"""Engines of published rows: whose kernels ran, what the engine spends beside them, and what is not known of it."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping

from experiments.field.stored import WORDS
from hwmodels import catalog
from hwmodels.speculation.engine_logs import NO_ENGINE, EngineTerms

__all__ = ["UNSEEN", "Engine", "engine_of"]

#: Engines whose host launches each kernel of each layer, so that layers of a draft take as long beside them as the target's.
_EAGER = re.compile(r"(?<![a-z])transformers(?!-)|\bhf\b|hugging ?face|\beager\b")

#: Releases of vLLM until the end of 2025, whose heads with a vocabulary of their own wrote their logits into the target's.
_OLDER = re.compile(r"\b202[345]\b|\bv?0\.(?:[0-9]|1[0-2])\b(?!\.dev)|\bv0(?![.0-9])")

#: The engine whose terms bound what those without any may spend: the one that spends least of the measured.
_MEASURED = "vllm"

#: Standard deviation of log speedup where no group of rows is left to see it from.
UNSEEN = 0.35

#: The engine whose rows count where the kernels of an engine are not known.
_USUAL_ROWS = "llama.cpp"


@dataclasses.dataclass(frozen=True)
class Engine:
    """What is known of a row's engine.

    Attributes:
        name: in the catalog; None: the catalog has none of that name.
        terms: that are added to kernels; none where nobody fitted any.
        most: the terms of an engine that was measured, where this one's are not known: how slow a cycle may be; else `terms`.
        scatter: kind of draft -> standard deviation of log speedup about predictions with `most`.
        notes: sentences for a reader.
        rows: what a product's rows take on devices without measured kernels; None: nothing beside the device's rates.
        eager: whether the host launches the kernels of each layer; this takes the time that a step spends beside them.
    """

    name: str | None
    terms: EngineTerms
    most: EngineTerms
    scatter: Mapping[str, float]
    notes: tuple[str, ...] = ()
    rows: catalog.RowInstructions | None = None
    eager: bool = False

    @property
    def kernels(self) -> str | None:
        """The name in calibrations: older versions of an engine have the kernels of its current one."""
        return catalog.kernels_of(self.name)


@functools.cache
def engine_of(text: str) -> Engine:
    """The engine that a row names, as logs write it."""
    name = next((found for pattern, found in WORDS["engines"] if re.search(pattern, text.lower())), None)
    if name == "vllm" and _OLDER.search(text.lower()):
        name = "vllm-2025"
    if name is not None and name in catalog.engine_names():
        terms, rows = catalog.engine(name), catalog.engine_rows(name)
        return Engine(name, terms, terms, catalog.engine_scatter(name), _version(name, text), rows)
    title = text.strip() or "an engine without a name"
    why = None if name is None else catalog.engine_gap(name)
    said = (
        f"what {title} spends beside its kernels is not known ({why or 'the catalog has no such engine'}): kernels alone; the "
        f"interval reaches down to what it would be with the terms of {_MEASURED}"
    )
    rows = catalog.engine_rows(_USUAL_ROWS) if name is None else None
    eager = _EAGER.search(text.lower()) is not None
    return Engine(name, NO_ENGINE, catalog.engine(_MEASURED), {"other drafts": UNSEEN}, (said,), rows, eager)


def _version(name: str, text: str) -> tuple[str, ...]:
    """Terms of vLLM are those of its V1: its scheduler and sampler are other programs than those of V0.

    V1 became the default with 0.8; 0.1.dev is what a build calls itself that has no tags to take a version from.
    """
    words = text.lower()
    old = re.search(r"\bv0(?![.0-9])|\bv?0\.[0-7]\b(?!\.dev)", words) and not re.search(r"\bv1\b(?!\.)", words)
    said = f"the terms of {_MEASURED} were fitted to its version V1; this row names {text.strip()}"
    return (said,) if name.startswith(_MEASURED) and old else ()
