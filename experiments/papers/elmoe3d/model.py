"""Speedups of Table 3 from the fitted numbers, on the catalog's devices, under the placements of section 7.1.

A cycle is ten draft steps and one verification and gains 1 + 10 alpha tokens.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from experiments.papers.elmoe3d.fitted import MODEL, PER_MODEL, Fitted, Variant
from experiments.papers.elmoe3d.printed import BATCHES, METHODS, table_three
from experiments.papers.elmoe3d.steps import (
    OwnDrafts,
    Priced,
    Steps,
    Targets,
    cell_steps,
    own_drafts,
    pick,
    stack,
    targets,
)
from hwmodels import catalog
from hwmodels.device import Device
from hwmodels.numerics.fast_compile import jit_fast_compile

__all__ = ["ROWS", "Speedups", "all_speedups", "devices", "speedups", "tokens_per_cycle"]

Cells = npt.NDArray[np.float64]

#: Sets of fitted numbers that one program prices: a set and a small step in each of its sixteen numbers.
ROWS = 17


class Speedups(NamedTuple):
    """Over autoregressive decoding on the baseline, "model method batch", and what they follow from, "model batch"."""

    autoregressive: Cells
    speculative: Cells
    baseline: Priced
    steps: dict[str, Steps]
    tokens: Cells  # of a cycle, "model method batch"
    cycle_s: Cells


@functools.cache
def devices(capacity_gb: int) -> tuple[Device, Device]:
    """The chip with 4 or 8 GB, and the baseline with as many PEs and the external memory alone."""
    bonded, external = catalog.device(f"elmoe3d-hb{capacity_gb}"), catalog.device("elmoe3d-xpu")
    unit = dataclasses.replace(external.matrix_unit, pes=bonded.matrix_unit.pes)
    return bonded, dataclasses.replace(external, matrix_unit=unit, peak_flops_per_s=bonded.peak_flops_per_s)


def tokens_per_cycle(acceptance: Cells, variant: Variant) -> Cells:
    """Tokens that a cycle gains, the bonus token included."""
    if variant.alpha_by_token:
        return np.sum([acceptance**n for n in range(variant.draft_depth + 1)], axis=0)
    return 1.0 + acceptance * variant.draft_depth


@functools.cache
def _program(rules: Variant) -> Callable[..., tuple[Priced, dict[str, Steps]]]:
    """`_priced` compiled for some rules: it takes longer to compile than all that a fit asks of it."""
    return jit_fast_compile(functools.partial(_priced, rules))


def _priced(
    rules: Variant,
    bonded: Device,
    external: Device,
    sizes: Targets,
    own: OwnDrafts,
    fitted: Fitted,
    inside: Any,
    one_rule: Any,
) -> tuple[Priced, dict[str, Steps]]:
    """All cells for several sets of fitted numbers, leaves "row ..."."""

    def of_row(numbers: Fitted) -> tuple[Priced, dict[str, Steps]]:
        def cell(size: Targets, drafts: OwnDrafts, own_numbers: dict[str, Any], batch: Any) -> Any:
            some = dataclasses.replace(numbers, **own_numbers)
            return cell_steps(rules, bonded, external, inside, size, drafts, some, one_rule, batch)

        by_model = jax.vmap(jax.vmap(cell, in_axes=(None, None, None, 0)), in_axes=(0, 0, 0, None))
        batches = jnp.asarray(BATCHES, jnp.float32)
        return by_model(sizes, own, {field: getattr(numbers, field) for field in PER_MODEL}, batches)

    return jax.vmap(of_row)(fitted)


def all_speedups(rows: Sequence[Fitted], capacity_gb: int, variant: Variant = MODEL) -> list[Speedups]:
    """All speedups of a half of Table 3, from its printed acceptance, for several sets of fitted numbers.

    Any number of sets goes through programs of `ROWS` of them.
    """
    by_model = []
    for start in range(0, len(rows), ROWS):
        some = list(rows[start : start + ROWS])
        fitted = stack(some + [some[-1]] * (ROWS - len(some)))
        # What changes the program, the same for all other variants.
        rules = Variant(lru=variant.lru, slices_always=variant.slices_always, steepening=variant.steepening)
        numbers = fitted, float(variant.embedding_inside), variant.one_rule
        priced = _program(rules)(*devices(capacity_gb), targets(), own_drafts(), *numbers)
        priced = jax.device_get(priced)
        for row in range(len(some)):
            baseline, steps = pick(priced, row)
            by_model.append(_over_baseline(baseline, steps, capacity_gb, variant))
    return by_model


def _over_baseline(baseline: Priced, steps: dict[str, Steps], capacity_gb: int, variant: Variant) -> Speedups:
    base_s = np.asarray(baseline.seconds, np.float64)[:, None]
    over_methods = lambda seconds: np.stack([seconds(steps[method]) for method in METHODS], axis=1).astype(np.float64)
    cycle_s = over_methods(lambda one: variant.draft_depth * one.draft.seconds + one.verify.seconds)
    tokens = tokens_per_cycle(table_three(capacity_gb).acceptance, variant)
    alone = base_s / over_methods(lambda one: one.autoregressive.seconds)
    return Speedups(alone, tokens * base_s / cycle_s, baseline, steps, tokens, cycle_s)


def speedups(fitted: Fitted, capacity_gb: int, variant: Variant = MODEL) -> Speedups:
    """`all_speedups` of one set of fitted numbers."""
    return all_speedups([fitted], capacity_gb, variant)[0]
