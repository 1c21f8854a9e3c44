"""Acceptance of published chains by kind of draft, which `jaxspec advise` takes where a user gives none.

`python -m experiments.field.acceptance` writes the table again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from scipy.optimize import brentq

import jaxspec.studies
from experiments.field.rows import FieldRow, read_rows
from hwmodels import expected_tokens_iid
from jaxspec.files import write_text

__all__ = ["TABLE", "alpha_token", "published_acceptance"]

#: The table that is shipped.
TABLE = Path(jaxspec.studies.__file__).parent / "advise" / "published_acceptance.toml"

#: Kind of draft, as engines call it -> its name, and what published ones are called.
_KINDS = {
    "eagle3": ("an EAGLE-3 head", r"eagle-?3"),
    "eagle": ("an EAGLE-1 or EAGLE-2 head", r"eagle"),
    "mtp": ("a network's own multi-token head", r"mtp"),
    "network": ("a small network", r"model"),
}


def alpha_token(row: FieldRow) -> float | None:
    """The acceptance of a chain that gains as many tokens per cycle at every position alike; None where none does."""
    length, tokens = int(row.draft_length), row.tokens_per_cycle
    is_chain = "tree" not in row.draft_kind and (row.tree_nodes is None or row.tree_nodes <= row.draft_length)
    if tokens is None or not is_chain or not 1.0 < tokens < length + 1.0:
        return None
    found = brentq(lambda alpha: float(expected_tokens_iid(alpha, length)) - tokens, 0.0, 1.0, full_output=False)
    return float(found)  # pyright: ignore[reportArgumentType]


def published_acceptance(rows: Sequence[FieldRow]) -> dict[str, dict[str, Any]]:
    """By kind of draft: title, median, standard deviation over rows, number of rows, and their targets."""
    found: dict[str, list[tuple[float, FieldRow]]] = {}
    for row in rows:
        kind = next((kind for kind, (_, words) in _KINDS.items() if re.search(words, row.draft_kind.lower())), None)
        alpha = alpha_token(row)
        if kind is not None and alpha is not None and not row.excluded:
            found.setdefault(kind, []).append((alpha, row))
    return {
        kind: {
            "title": _KINDS[kind][0],
            "alpha_token": round(float(np.median([alpha for alpha, _ in cells])), 3),
            "deviation": round(float(np.std([alpha for alpha, _ in cells])), 3),
            "rows": len(cells),
            "targets": sorted({row.target for _, row in cells}),
        }
        for kind, cells in sorted(found.items())
    }


if __name__ == "__main__":
    write_text(TABLE, tomli_w.dumps(published_acceptance(read_rows())))
