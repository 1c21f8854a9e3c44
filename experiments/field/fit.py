"""Few numbers of each engine from measured rows, and how far predictions scatter about rows of groups that no fit saw."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls
from scipy.stats import t as student

from experiments.field.engines import engine_of
from experiments.field.networks import A_NETWORK
from experiments.field.predict import Parts, predict
from experiments.field.rows import FieldRow
from hwmodels.speculation.engine_terms import EngineTerms

__all__ = [
    "FAMILIES",
    "FITTED_TERMS",
    "Cell",
    "Numbers",
    "fit_numbers",
    "group_of",
    "kind_of",
    "left_out",
    "scatter_of",
]

#: Engine of a fit -> the catalog's engines whose rows it sees: terms that several fit are theirs alike.
FAMILIES = {
    "vllm": ("vllm", "vllm-2025"),
    "sglang": ("sglang",),
    "llama.cpp": ("llama.cpp",),
    "mlx": ("mlx",),
    "mlx-cuda": ("mlx-cuda",),
}

#: Terms that are fitted. Of vLLM what a pass adds is 0: kernels of a network's pass hide what the host does meanwhile. Rows of
#: SGLang are of one kind of head alone, which tells a pass from a cycle, and not a layer or a map from a pass. llama.cpp and
#: MLX for NVIDIA have instructions of rows alone.
_VLLM = ("cycle_s", "drafted_token_s", "prompt_token_s", "draft_layer_s")
FITTED_TERMS: dict[str, tuple[str, ...]] = {
    "vllm": _VLLM,
    "vllm-2025": (*_VLLM, "mapped_pass_s"),
    "sglang": ("cycle_s", "draft_pass_s", "drafted_token_s"),
    "llama.cpp": (),
    "mlx": ("cycle_s",),
    "mlx-cuda": (),
}

#: Groups of a kind below which those of all kinds count.
_FEW = 3

#: Standard deviation of log speedup where no group is left to see it from.
UNSEEN = 0.35

_TERMS = tuple(field.name for field in dataclasses.fields(EngineTerms))

Cell = tuple[FieldRow, Parts]


class Numbers(NamedTuple):
    """What a fit gives for all engines of a family.

    Attributes:
        instructions: per weight and further row of a product.
        terms: of each engine.
    """

    instructions: float
    terms: dict[str, EngineTerms]

    def speedup(self, row: FieldRow, parts: Parts) -> float:
        """The predicted one."""
        name = engine_of(row.engine).name
        assert name is not None
        return predict(row, parts, self.terms[name], self.instructions).speedup


def group_of(row: FieldRow) -> str:
    """Rows that are left out together: of a device where kernels take instructions for rows, else of its drafter too."""
    if engine_of(row.engine).rows is not None:
        return row.device
    return " | ".join((row.device, str(row.device_count), row.engine, row.target, row.draft_kind, row.draft))


def kind_of(row: FieldRow, parts: Parts) -> str:
    """Which of an engine's scatters counts for a row: by what was priced, whatever the row calls it."""
    if row.device_count > 1:
        return "several devices"
    return "small network" if parts.draft == A_NETWORK else "other drafts"


def _tells(row: FieldRow, parts: Parts) -> bool:
    """Whether what a row's engine spends can be told from its kernels: they were measured, or have a form of their own, and no
    links between devices take time."""
    return row.device_count == 1 and (parts.kernels is not None or parts.rows is not None or parts.device == "m3-ultra")


def fit_numbers(cells: Sequence[Cell], family: str) -> Numbers:
    """Numbers, none below 0, with least squares of the relative errors of cycles and of steps, each group counting alike."""
    cells = [cell for cell in cells if _tells(*cell)] or cells
    sizes: dict[str, int] = {}
    for row, _ in cells:
        sizes[group_of(row)] = sizes.get(group_of(row), 0) + 1
    counts, missing = [], []
    for row, parts in cells:
        name, rows = engine_of(row.engine).name, parts.rows
        fitted = np.array([term in FITTED_TERMS[str(name)] for term in _TERMS], float)
        for measured, kernels, spent, place in (
            (row.cycle_s, parts.cycle_s, parts.cycle_counts, 1),
            (row.ar_s, parts.ar_s, parts.ar_counts, 0),
        ):
            if measured is None:
                continue
            for_each = 0.0 if rows is None else float(rows[place] or 0.0)
            known = 0.0 if rows is None or rows.bound is None else rows.bound
            weight = 1.0 / (measured * np.sqrt(sizes[group_of(row)]))
            counts.append(weight * np.array([*(spent * fitted), 0.0 if known else for_each]))
            missing.append(weight * (measured - kernels - known * for_each))
    table = np.reshape(np.array(counts), (-1, len(_TERMS) + 1))
    # Columns of like size: seconds per cycle and per token differ by orders of magnitude.
    scales = np.maximum(np.abs(table).max(axis=0, initial=0.0), 1e-30)
    found = nnls(table / scales, np.array(missing))[0] / scales if len(table) else np.zeros(len(_TERMS) + 1)
    *values, instructions = (float(f"{value:.4g}") for value in found)
    terms = {
        name: EngineTerms(
            **{term: value * (term in FITTED_TERMS[name]) for term, value in zip(_TERMS, values, strict=True)}
        )
        for name in FAMILIES[family]
    }
    return Numbers(instructions, terms)


def left_out(cells: Sequence[Cell], family: str, usual: float) -> dict[str, dict[str, Any]]:
    """Group -> its rows' ids, numbers fitted to the other groups, their scatters, and errors of its rows by kind.

    Args:
        usual: instructions where no other group has any, of the engine that most groups are of.
    """
    found: dict[str, dict[str, Any]] = {}
    for group in dict.fromkeys(group_of(row) for row, _ in cells):
        own = [cell for cell in cells if group_of(cell[0]) == group]
        rest = [cell for cell in cells if group_of(cell[0]) != group]
        numbers = fit_numbers(rest, family)
        if not any(parts.rows is not None and parts.rows.bound is None for _, parts in rest):
            numbers = numbers._replace(instructions=usual)
        errors: dict[str, list[float]] = {}
        for row, parts in own:
            if row.speedup and not row.excluded:
                miss = np.log(numbers.speedup(row, parts) / row.speedup)
                errors.setdefault(kind_of(row, parts), []).append(float(miss))
        found[group] = {
            "rows": [row.id for row, _ in own],
            "instructions": numbers.instructions,
            "terms": {name: dataclasses.asdict(terms) for name, terms in numbers.terms.items()},
            "errors": {kind: float(np.sqrt(np.mean(np.square(misses)))) for kind, misses in errors.items()},
        }
    for group, one in found.items():
        others = [other["errors"] for name, other in found.items() if name != group]
        one["scatter"] = scatter_of(others)
    return found


def scatter_of(errors: Sequence[dict[str, float]]) -> dict[str, float]:
    """Kind of draft -> standard deviation of log speedup, from errors of groups left out; wider the fewer they are."""
    found = {}
    for kind in ("small network", "other drafts", "several devices"):
        same = [one[kind] for one in errors if kind in one]
        if len(same) < _FEW:
            same = [value for one in errors for value in one.values()]
        few = float(student.ppf(0.95, len(same)) / student.ppf(0.95, np.inf)) if same else 1.0
        found[kind] = float(f"{few * float(np.median(same)):.3g}") if same else UNSEEN
    return found
