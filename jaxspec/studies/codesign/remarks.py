"""What a reader of a co-design should know: widths without measured kernels, numbers of [set] that change nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from hwmodels.analysis.sensitivity import leaf_names
from jaxspec.studies.codesign.problem import Problem
from jaxspec.studies.kernel_notes import kernel_notes
from jaxspec.studies.release import release_notes

__all__ = ["design_notes", "inert_settings"]


def design_notes(problem: Problem, values: np.ndarray) -> dict[str, Any]:
    """The fields of `kernel_notes` for what some designs read, with sentences on [set] among the notes.

    Args:
        values: "design variable"; the first one is the design before.
    """
    tree = problem.tree(values[0])
    read, batches = problem.footprints(values), [float(tree["workload"].batch)]
    context = float(tree["workload"].context_tokens) + 1.0
    shape, texts = tree["architecture"], {problem.config.architecture: context}
    found = kernel_notes(tree["device"], read, batches=batches, architecture=shape, texts=texts)
    about = release_notes(problem.config.architecture)
    return found | {"notes": [*about, *found["notes"], *inert_settings(problem, values)]}


def inert_settings(problem: Problem, values: np.ndarray) -> list[str]:
    """A sentence for each number of [set] with twice and half of which all these designs have the same numbers.

    Knobs of the draft are not among them: acceptance depends on those that are known, and others change what is read.
    """
    plain = _priced(problem, values)
    places = {name: place for place, name in enumerate(leaf_names(problem.tree(values[0])))}
    found = []
    for name, value in problem.config.set.items():
        if name.startswith("draft."):
            continue
        tried = (2.0 * value, 0.5 * value) if value else (1.0,)
        priced = [_priced(_with_leaf(problem, places[name], number), values) for number in tried]
        if all(np.array_equal(plain, other, equal_nan=True) for other in priced):
            words = " and ".join(f"{number:g}" for number in tried)
            found.append(
                f"no number of the design before and of the one found depends on set.{name}: with {words} in its place they "
                "are the same"
            )
    return found


def _with_leaf(problem: Problem, place: int, number: float) -> Problem:
    """The problem with another number in its tree."""
    leaves = list(problem.model.leaves)
    leaves[place] = np.float32(number)
    return dataclasses.replace(problem, model=dataclasses.replace(problem.model, leaves=tuple(leaves)))


def _priced(problem: Problem, values: np.ndarray) -> np.ndarray:
    """All numbers of designs, "number design"; NaN for what is not known."""
    found = jax.tree.leaves(problem.numbers(values))
    return np.stack([np.asarray(column, float) for column in found])
