"""All variants of one network on text, and of the arithmetic network on its task."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.quantization_quality.measuring import Text, calls, held_out_solutions, task_scores, text_scores
from experiments.quantization_quality.report import Scores, comparison_rows, statements, variant_rows
from experiments.quantization_quality.variants import FLOAT, VARIANTS, Variant, bits_per_weight
from jaxspec.models.embedded import ARITHMETIC_NAME, load_model
from jaxspec.runs.progress import Reporter
from jaxspec.text import load_text
from jaxspec.tuning import target_params

__all__ = ["Settings", "measure"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """How much is measured.

    Attributes:
        text: "stdlib", or a file whose second half is held out.
        windows, tokens: of that half.
        problems: of arithmetic; 0: none.
    """

    text: str = "stdlib"
    windows: int = 64
    tokens: int = 256
    problems: int = 400
    seed: int = 0


def measure(
    model: str, settings: Settings, reporter: Reporter, variants: Sequence[Variant] = VARIANTS
) -> dict[str, Any]:
    """Scores of every variant, intervals, and statements.

    Args:
        model: an embedded network, a directory or a container; arithmetic is always that of the embedded network for it.
    Raises:
        InputError: an unknown network, or a text that holds no window.
    """
    loaded = load_model(model)
    split = load_text(settings.text, loaded.tokenizer, needed=(0, settings.tokens + 1))
    rows = split.held_out_windows(settings.windows, settings.tokens + 1, settings.seed)
    text, stored = Text.of(np.asarray(rows), loaded), target_params(loaded.params)
    solutions = held_out_solutions(settings.problems)
    solver = load_model(ARITHMETIC_NAME)
    solver_stored = target_params(solver.params)
    chosen = [FLOAT, *(variant for variant in variants if variant != FLOAT)]
    found: dict[Variant, Scores] = {}
    with reporter.bar("variants", len(chosen) * (calls(settings.windows) + calls(settings.problems))) as bar:
        for variant in chosen:
            scores = text_scores(variant.params(stored), loaded.config, text, variant, bar.advance)
            task = None
            if settings.problems:
                task = task_scores(variant.params(solver_stored), solver.config, solutions, variant, bar.advance)
            found[variant] = Scores(bits_per_weight(variant, stored, loaded.config), scores, task)
    comparisons = comparison_rows(found)
    return {
        "model": model,
        "text": split.source,
        "settings": dataclasses.asdict(settings),
        "variants": variant_rows(found, text),
        "comparisons": comparisons,
        "statements": statements(comparisons),
        "status": "measured",
    }
