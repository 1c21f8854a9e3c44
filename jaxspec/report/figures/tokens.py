"""Predicted against counted tokens per cycle: the check that the prediction is worth something."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxspec.report.columns import NO_STATUS
from jaxspec.report.draft_columns import LARGEST_GAP, gap_in_standard_errors
from jaxspec.report.figures.style import INK, PAPER, colour_of, new_figure, styled
from jaxspec.report.titles import configurations, provenance
from jaxspec.results import Quantity
from jaxspec.results.network_results import ConfigurationsResult

_OFFSET = 0.09
_BARS = f"bars: {LARGEST_GAP:.0f} standard errors up and down"
_PREDICTED: dict[str, Any] = {
    "linestyle": "none",
    "marker": "D",
    "markersize": 9,
    "markerfacecolor": PAPER,
    "markeredgewidth": 2,
}
_COUNTED: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 9}


@styled
def tokens_figure(result: ConfigurationsResult) -> Figure | None:
    """Tokens per cycle of each configuration, predicted and counted side by side, with the gap in standard errors."""
    rows = []
    for name, configuration in configurations(result).items():
        predicted = configuration.tokens_per_cycle_predicted.number
        counted = configuration.tokens_per_cycle_counted.number
        if predicted is not None and counted is not None:
            rows.append((name, configuration, predicted, counted))
    if not rows:
        return None
    figure = new_figure("Tokens per cycle, predicted and counted", provenance(result), height_inches=4.2)
    axes = figure.add_subplot()
    axes.grid(True, axis="y")
    drafts = [configuration for _, configuration, _, _ in rows]
    predicted_status = _statuses(draft.tokens_per_cycle_predicted for draft in drafts)
    counted_status = _statuses(draft.tokens_per_cycle_counted for draft in drafts)
    labels = []
    for index, (name, configuration, predicted, counted) in enumerate(rows):
        error = Quantity(configuration.tokens_per_cycle_counted.standard_error).number
        axes.plot(index - _OFFSET, predicted, **_PREDICTED, markeredgecolor=colour_of(name))
        axes.errorbar(
            index + _OFFSET,
            counted,
            yerr=None if error is None else LARGEST_GAP * error,
            color=colour_of(name),
            elinewidth=1.6,
            capsize=5,
            **_COUNTED,
        )
        gap = gap_in_standard_errors(configuration)
        labels.append(name if gap is None else f"{name}\ngap {gap:.1f} standard errors")
        if gap is not None and gap > LARGEST_GAP:
            labels[-1] += "\nDEFECT"
    axes.set_xticks(range(len(rows)), labels)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.margins(y=0.12)
    axes.set_xlabel("configuration")
    axes.set_ylabel("tokens per cycle (tokens)")
    handles = [
        Line2D([], [], **_PREDICTED, markeredgecolor=INK, label=f"expected from the acceptance ({predicted_status})"),
        Line2D([], [], **_COUNTED, color=INK, label=f"counted in decoding ({counted_status}); {_BARS}"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _statuses(quantities: Iterable[Quantity]) -> str:
    """Status of several numbers; where they differ, all of them."""
    return " or ".join(dict.fromkeys(quantity.status or NO_STATUS for quantity in quantities))
