"""Acceptance by kind of draft that commands take where a user gives none: published chains, and what ran on a real network.

`python -m experiments.field.acceptance` writes the table again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tomli_w

from experiments.field.rows import FieldRow, read_rows
from experiments.papers.performance_or_illusion.model import DATASETS, requests
from hwmodels.speculation.acceptance import iid_acceptance
from jaxspec.partial_files import write_text
from jaxspec.studies.given_acceptance import TABLE

__all__ = [
    "RESULTS",
    "alpha_token",
    "known_table",
    "looked_up_acceptance",
    "measured_acceptance",
    "published_acceptance",
]

#: What `python -m experiments.real_network` counted.
RESULTS = Path(__file__).parents[1] / "results" / "real_network.json"

#: Kind of draft, as engines call it -> its name, and what published ones are called.
_KINDS = {
    "eagle3": ("an EAGLE-3 head", r"eagle-?3"),
    "eagle": ("an EAGLE-1 or EAGLE-2 head", r"eagle"),
    "mtp": ("a network's own multi-token head", r"mtp"),
    "network": ("a small network", r"model"),
}

#: Name of the network that ran, as its release calls it.
_RELEASED = {"smollm2-135m": "SmolLM2-135M-Instruct"}

#: Compiled once for all rows.
_rate = jax.jit(iid_acceptance)


def alpha_token(row: FieldRow) -> float | None:
    """The acceptance of a chain that gains as many tokens per cycle at every position alike; None where none does."""
    length, tokens = int(row.draft_length), row.tokens_per_cycle
    is_chain = "tree" not in row.draft_kind and (row.tree_nodes is None or row.tree_nodes <= row.draft_length)
    if tokens is None or not is_chain or not 1.0 < tokens < length + 1.0:
        return None
    return float(_rate(tokens, length))


def _entry(title: str, alphas: Sequence[float], center: float, **words: Any) -> dict[str, Any]:
    deviation = round(float(np.std(alphas)), 3)
    return {"title": title, "alpha_token": round(center, 3), "deviation": deviation, **words}


def published_acceptance(rows: Sequence[FieldRow]) -> dict[str, dict[str, Any]]:
    """By kind of draft: title, median, standard deviation over rows, number of rows, their targets and texts."""
    found: dict[str, list[tuple[float, FieldRow]]] = {}
    for row in rows:
        kind = next((kind for kind, (_, words) in _KINDS.items() if re.search(words, row.draft_kind.lower())), None)
        alpha = alpha_token(row)
        if kind is not None and alpha is not None and not row.excluded:
            found.setdefault(kind, []).append((alpha, row))
    entries = {}
    for kind, cells in sorted(found.items()):
        alphas = [alpha for alpha, _ in cells]
        names = sorted({re.sub(r"^.*/| \(.*", "", row.dataset) for _, row in cells} - {""}, reverse=True)
        texts = {name.casefold(): name for name in names}
        entries[kind] = _entry(
            _KINDS[kind][0],
            alphas,
            float(np.median(alphas)),
            status="input",
            counted=f"median of {len(cells)} published rows",
            targets=sorted({row.target for _, row in cells}),
            texts=sorted(texts.values()),
            decoding="as published",
            source="experiments/field/published.csv",
        )
    return entries


def measured_acceptance(results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By scheme of the target's compressed copy: what its default knobs gained greedily; scatter over kinds of questions."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in results["rows"]:
        named = re.fullmatch(r"default-(.+)-greedy", row["run"])
        if named is not None and row["draft"] == "given":
            found.setdefault(named[1], {})[row["category"]] = row
    entries = {}
    for scheme, by_category in found.items():
        whole = by_category.pop("all")
        entries[scheme] = _entry(
            f"a compressed copy of the target, {scheme} with default knobs",
            [row["alpha_token"] for row in by_category.values()],
            whole["alpha_token"],
            status="measured",
            counted=f"over {whole['prompts']} prompts",
            targets=[_RELEASED.get(results["model"], results["model"])],
            texts=[f"{len(by_category)} kinds of questions of Spec-Bench"],
            decoding="greedy",
            source="experiments/results/real_network.json",
        )
    return entries


#: Drafted tokens at which a lookup's acceptance is taken: later ones are accepted more often, since it copies passages.
_LOOKED_UP = 3


def looked_up_acceptance() -> dict[str, dict[str, Any]]:
    """Of a lookup, which publishes no rate: counted along the accepted lengths of 1,410 requests; scatter over data sets."""
    rows = requests()
    alphas = {}
    for dataset in DATASETS:
        own = rows["dataset"] == dataset
        tokens = rows["ngram_tokens"][own].sum() / rows[f"ngram_{_LOOKED_UP}"][own].sum()
        alphas[dataset] = float(_rate(tokens, _LOOKED_UP))
    return {
        "ngram": _entry(
            "a lookup of n-grams",
            list(alphas.values()),
            float(np.median(list(alphas.values()))),
            status="input",
            counted=f"median of {len(alphas)} data sets, {_LOOKED_UP} drafted tokens",
            targets=["Llama-3.1-8B-Instruct"],
            texts=[f"{name} ({alpha:.2f})" for name, alpha in alphas.items()],
            decoding="as published in arXiv:2601.11580",
            source="experiments/papers/performance_or_illusion/data",
        )
    }


def known_table() -> dict[str, dict[str, Any]]:
    """The table that is shipped."""
    counted = measured_acceptance(json.loads(RESULTS.read_text(encoding="utf-8")))
    return counted | published_acceptance(read_rows()) | looked_up_acceptance()


if __name__ == "__main__":
    write_text(TABLE, tomli_w.dumps(known_table()))
