"""The tuned knobs, matrix by matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from jaxspec.models.config import MATRIX_KINDS
from jaxspec.report.figures.style import INK, new_figure, styled, text_colour_on
from jaxspec.report.formatting import NOT_KNOWN
from jaxspec.report.titles import in_order, provenance
from jaxspec.results.network_results import Configuration
from jaxspec.results.quantity import finite
from jaxspec.settings.schemes import KNOBS
from jaxspec.studies.tune.result import TuneResult

#: The columns of KV and of the LM head stand apart by this share of a cell.
_GAP = 0.35

#: Panel -> knob of weights, of KV and of the LM head, factor to the unit shown, label.
_PANELS = (
    ("weight_prune", "kv_prune", "head_prune", 100.0, "pruned (% of the values)"),
    ("weight_cut_bits", "kv_cut_bits", "head_cut_bits", 1.0, "cut (low mantissa bits)"),
)


@styled
def knobs_figure(result: TuneResult, configuration: str = "tuned") -> Figure | None:
    """Two heat maps, layers down and matrix kinds across, with KV and the LM head at the right: the share pruned and the
    bits cut."""
    knobs = result.configurations.get(configuration, Configuration()).knobs.value or {}
    layers = _number_of_layers(knobs)
    if not layers:
        return None
    length = finite(knobs.get("draft_length"))
    title = f"Knobs of the {configuration} draft"
    if length is not None:
        title += f", draft length {length:.0f}"
    figure = new_figure(title, provenance(result), height_inches=1.45 + 0.32 * max(layers, 2))
    for axes, (weights, kv, head, factor, label) in zip(figure.subplots(1, 2), _PANELS):
        _draw_panel(axes, knobs, weights, kv, head, factor=factor, label=label, layers=layers)
    return figure


def _number_of_layers(knobs: Mapping[str, Any]) -> int:
    """How many layers the knobs have; 0 where they are absent or not by layer."""
    lengths = set()
    for weights, kv, *_ in _PANELS:
        by_kind = knobs.get(weights)
        lists = [*by_kind.values()] if isinstance(by_kind, Mapping) else []
        lists += [knobs[kv]] if knobs.get(kv) is not None else []
        lengths |= {len(values) if isinstance(values, Sequence) else 0 for values in lists}
    return lengths.pop() if len(lengths) == 1 else 0


def _draw_panel(
    axes: Axes, knobs: Mapping[str, Any], weights: str, kv: str, head: str, *, factor: float, label: str, layers: int
) -> None:
    by_kind = knobs.get(weights) or {}
    columns: list[tuple[str, float, Sequence]] = [
        (kind, index, by_kind[kind]) for index, kind in enumerate(in_order(by_kind, MATRIX_KINDS))
    ]
    if knobs.get(kv) is not None:
        columns.append(("KV", len(columns) + _GAP, knobs[kv]))
    if knobs.get(head) is not None:  # one number, not one of each layer
        columns.append(("head", len(columns) + 2 * _GAP, [knobs[head]]))
    # The range of networks in bfloat16; of float16 more bits can be cut.
    most = max((float(v) for _, _, values in columns for v in map(finite, values) if v is not None), default=0.0)
    low, high = factor * KNOBS[weights].low, factor * max(KNOBS[weights].high, most)
    colours, scale = colormaps["cividis"], Normalize(low, high)
    for _, x, values in columns:
        found = [finite(value) for value in values]
        edges = np.linspace(0, layers, len(found) + 1) - 0.5
        column = np.array([[np.nan if value is None else factor * value] for value in found])
        axes.pcolormesh(
            [x - 0.5, x + 0.5],
            edges,
            np.ma.masked_invalid(column),
            cmap=colours,
            norm=scale,
            edgecolors="face",
            linewidth=0.2,
        )
        for layer, value in enumerate(column[:, 0]):
            known = np.isfinite(value)
            colour = text_colour_on(colours(scale(value))) if known else INK
            label_of_cell = f"{value:.0f}" if known else NOT_KNOWN
            axes.text(
                x, edges[layer : layer + 2].mean(), label_of_cell, ha="center", va="center", fontsize=9, color=colour
            )
    axes.set_xticks([x for _, x, _ in columns], [name for name, _, _ in columns])
    axes.set_yticks(range(layers))
    axes.set_ylim(layers - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("matrix kind")
    axes.set_ylabel("layer")
    bar = axes.figure.colorbar(
        ScalarMappable(scale, colours), ax=axes, location="bottom", pad=0.02, fraction=0.08, aspect=35
    )
    bar.set_label(label)
    bar.outline.set_visible(False)
