"""Few numbers of each engine from measured rows, and how far predictions scatter about rows of groups that no fit saw."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls
from scipy.stats import t as student

from experiments.field.engines import UNSEEN, engine_of
from experiments.field.networks import A_NETWORK
from experiments.field.predict import Parts, predict
from experiments.field.rows import FieldRow
from hwmodels import catalog
from hwmodels.catalog.loader import SCATTER_FIELDS
from hwmodels.speculation.engine_logs import EngineTerms
from hwmodels.tables import read_table

__all__ = [
    "FAMILIES",
    "FITTED_TERMS",
    "PROFILED",
    "TITLES",
    "Cell",
    "Numbers",
    "fit_numbers",
    "group_of",
    "kinds_of",
    "left_out",
    "likes",
    "scatter_of",
]

_ENGINES = read_table(__package__, "fits.toml")

#: Engine of a fit -> the catalog's engines whose rows it sees.
FAMILIES = {
    family: tuple(name for name, engine in _ENGINES.items() if engine["family"] == family)
    for family in dict.fromkeys(engine["family"] for engine in _ENGINES.values())
}

#: Titles of the engines' files, and terms that are fitted.
TITLES: dict[str, str] = {name: engine["title"] for name, engine in _ENGINES.items()}
FITTED_TERMS: dict[str, list[str]] = {name: engine["terms"] for name, engine in _ENGINES.items()}
_FURTHER = "further_device_s"

#: Families whose engines have instructions of rows, and those whose instructions come from profiles.
_ONE_FORM = tuple(name for name, engine in _ENGINES.items() if "rows" in engine)
PROFILED = tuple(name for name, engine in _ENGINES.items() if "profiled" in engine)

#: Groups of a kind below which others count too.
_FEW = 3

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


def kinds_of(row: FieldRow, parts: Parts) -> tuple[str, ...]:
    """Which of an engine's scatters are a row's, by what was priced, whatever the row calls it: its errors count for the first,
    and its interval is as wide as the widest."""
    unlike = {
        "several devices": row.device_count > 1,
        "unmeasured kernels": not _known_kernels(parts),
        "mixture": parts.mixture,
    }
    usual = "small network" if parts.draft == A_NETWORK else "other drafts"
    return tuple(kind for kind, fits in unlike.items() if fits) or (usual,)


def _known_kernels(parts: Parts) -> bool:
    """Whether a row's kernels were measured, or have a form of their own."""
    return parts.kernels is not None or parts.rows is not None


def _tells(row: FieldRow, parts: Parts) -> bool:
    """Whether a row shows the engine's terms: its kernels are known, and no links between devices take time."""
    return row.device_count == 1 and _known_kernels(parts)


def fit_numbers(cells: Sequence[Cell], family: str) -> Numbers:
    """Numbers, none below 0, with least squares of the relative errors of cycles and of steps, each group counting alike.

    What each further device adds is fitted last, to what is left of cycles of several.
    """
    numbers = _of_one_device([cell for cell in cells if _tells(*cell)] or cells, family)
    fitted = [name for name in FAMILIES[family] if _FURTHER in FITTED_TERMS[name]]
    several = [(row, parts) for row, parts in cells if row.device_count > 1 and row.cycle_s is not None]
    if not fitted or not several:
        return numbers
    sizes = Counter(group_of(row) for row, _ in several)
    weights = np.array([1.0 / (row.cycle_s * np.sqrt(sizes[group_of(row)])) for row, _ in several if row.cycle_s])
    spent = weights * [parts.cycle_counts[_TERMS.index(_FURTHER)] for _, parts in several]
    left = weights * [
        row.cycle_s - predict(row, parts, numbers.terms[str(engine_of(row.engine).name)]).cycle_s
        for row, parts in several
        if row.cycle_s
    ]
    each = max(float(spent @ left) / max(float(spent @ spent), 1e-30), 0.0)
    terms = {name: dataclasses.replace(numbers.terms[name], **{_FURTHER: float(f"{each:.4g}")}) for name in fitted}
    return numbers._replace(terms=numbers.terms | terms)


def _of_one_device(cells: Sequence[Cell], family: str) -> Numbers:
    """What cells of one device tell; of several devices where there are no others."""
    sizes = Counter(group_of(row) for row, _ in cells)
    given = {name: _given_terms(name) for name in FAMILIES[family]}
    profiled = catalog.engine_rows(family) if family in PROFILED else None
    counts, missing = [], []
    for row, parts in cells:
        name, rows = str(engine_of(row.engine).name), parts.rows
        fitted = np.array([term in FITTED_TERMS[name] and term != _FURTHER for term in _TERMS], float)
        beside = np.array([given[name].get(term, 0.0) for term in _TERMS])
        for measured, kernels, spent, place in (
            (row.cycle_s, parts.cycle_s, parts.cycle_counts, 1),
            (row.ar_s, parts.ar_s, parts.ar_counts, 0),
        ):
            if measured is None:
                continue
            for_each = 0.0 if rows is None else float(rows[place] or 0.0)
            known = (0.0 if rows is None else rows.bound) or (0.0 if profiled is None else profiled.value)
            weight = 1.0 / (measured * np.sqrt(sizes[group_of(row)]))
            counts.append(weight * np.array([*(spent * fitted), 0.0 if known else for_each]))
            missing.append(weight * (measured - kernels - float(spent @ beside) - known * for_each))
    table = np.reshape(np.array(counts), (-1, len(_TERMS) + 1))
    # Columns of like size: seconds per cycle and per token differ by orders of magnitude.
    scales = np.maximum(np.abs(table).max(axis=0, initial=0.0), 1e-30)
    found = nnls(table / scales, np.array(missing))[0] / scales if len(table) else np.zeros(len(_TERMS) + 1)
    *values, instructions = (float(f"{value:.4g}") for value in found)
    terms = {
        name: EngineTerms(
            **given[name],
            **{term: value for term, value in zip(_TERMS, values, strict=True) if term in FITTED_TERMS[name]},
        )
        for name in FAMILIES[family]
    }
    return Numbers(instructions if profiled is None else profiled.value, terms)


def _given_terms(name: str) -> dict[str, float]:
    """Terms of an engine that no rows are fitted to."""
    terms = dataclasses.asdict(catalog.engine(name))
    return {term: value for term, value in terms.items() if term not in FITTED_TERMS[name]}


def left_out(cells: Sequence[Cell], family: str, usual: float) -> dict[str, dict[str, Any]]:
    """Group -> its rows' ids, numbers fitted to the other groups, and errors of its rows by kind.

    Args:
        usual: instructions where no other group has any, of the engine that most groups are of.
    """
    found: dict[str, dict[str, Any]] = {}
    for group in dict.fromkeys(group_of(row) for row, _ in cells):
        own = [cell for cell in cells if group_of(cell[0]) == group]
        rest = [cell for cell in cells if group_of(cell[0]) != group]
        numbers = fit_numbers(rest, family)
        seen = any(parts.rows is not None and parts.rows.bound is None for _, parts in rest)
        if not seen and family not in PROFILED:
            numbers = numbers._replace(instructions=usual)
        errors: dict[str, list[float]] = {}
        for row, parts in own:
            if row.speedup and not row.excluded:
                miss = np.log(numbers.speedup(row, parts) / row.speedup)
                errors.setdefault(kinds_of(row, parts)[0], []).append(float(miss))
        found[group] = {
            "rows": [row.id for row, _ in own],
            "instructions": numbers.instructions,
            "terms": {name: dataclasses.asdict(terms) for name, terms in numbers.terms.items()},
            "errors": {kind: float(np.sqrt(np.mean(np.square(misses)))) for kind, misses in errors.items()},
        }
    return found


def likes(family: str, by_family: Mapping[str, Mapping[str, dict[str, Any]]]) -> list[dict[str, float]]:
    """Errors of groups of the other families whose kernels have the same form.

    Args:
        by_family: of each family what `left_out` gives.
    """
    others = [other for other in _ONE_FORM if other != family and family in _ONE_FORM]
    return [one["errors"] for other in others for one in by_family[other].values()]


def scatter_of(errors: Sequence[dict[str, float]], like: Sequence[dict[str, float]] = ()) -> dict[str, float]:
    """Kind of rows -> standard deviation of log speedup, from errors of groups left out; wider the fewer they are.

    Where fewer than three groups are of a kind, the wider counts of all kinds' groups and of that kind's, those of engines with
    kernels of the same form included. A kind that no group shows is as wide as the group that is missed most; none is wider
    than without any group.

    Args:
        errors: of the engine's groups; none: nothing shows its scatter. like: of groups of other engines, see `likes`.
    """
    everything = [value for one in errors for value in one.values()]
    if not everything:
        return dict.fromkeys(SCATTER_FIELDS, UNSEEN)
    found = {}
    for kind in SCATTER_FIELDS:
        same = [one[kind] for one in errors if kind in one]
        if len(same) >= _FEW:
            width = _few(len(same)) * float(np.median(same))
        else:
            same += [one[kind] for one in like if kind in one]
            candidates = [everything, same] if same else [everything]
            width = max(_few(max(len(one), len(everything))) * float(np.median(one)) for one in candidates)
            width = width if same else max(width, *everything)
        found[kind] = float(f"{min(width, UNSEEN):.3g}")
    return found


def _few(groups: int) -> float:
    """How much wider an interval of 90 % is that so few groups show."""
    return float(student.ppf(0.95, groups) / student.ppf(0.95, np.inf))
