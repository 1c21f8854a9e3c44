"""The figure of `jaxspec inspect`: bits per weight by section."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from jaxspec.report.figures.style import INK, legend_below, limits_from_zero, new_figure, styled
from jaxspec.studies.pack.report import container_caption, container_title, grouped, printable

__all__ = ["container_figure"]

#: Colours of sections: the draft's warm, the target's cool, so that the divide shows.
_SECTION_COLOURS = {
    "bitmap": "#e69f00",
    "sign": "#f0c35a",
    "exponent": "#d55e00",
    "scale": "#d55e00",
    "high": "#cc79a7",
    "low": "#56b4e9",
    "pruned": "#0072b2",
    "pruned_exponent": "#004f7d",
    "pruned_rest": "#0072b2",
    "bytes": "#999999",
    "field1": "#d55e00",
    "field2": "#cc79a7",
    "field3": "#009e73",
    "field4": "#f0e442",
    "plane0": "#56b4e9",
    "plane1": "#0072b2",
}

#: Sections that a draft does not read.
_TARGET_ONLY = {"low", "pruned", "pruned_exponent", "pruned_rest"}

#: Tensors that a figure shows; the largest come first.
_MOST_BARS = 48


@styled
def container_figure(summary: dict[str, Any]) -> Figure | None:
    """Bits per weight by section, beside the entropy; one bar per kind of tensor, the largest kinds first."""
    entries = grouped([entry for entry in summary["tensors"] if entry["elements"]])
    if not entries:
        return None
    packed = "scheme" in summary
    shown = sorted(entries, key=lambda entry: -entry["bytes"])[:_MOST_BARS]
    subtitle = f"{container_title(summary)}. {container_caption(summary)}.".replace("$", r"\$")
    if len(entries) > len(shown):
        subtitle += f" The {len(shown)} largest of {len(entries)} kinds of tensors."
    figure = new_figure("Bits per stored weight", subtitle, height_inches=2.6 + 0.3 * len(shown))
    axes = figure.add_subplot()
    axes.grid(True, axis="x")
    place, ends = np.arange(len(shown)), []
    if packed:
        _stack(axes, shown, place)
        ends += [sum(entry["bits_by_section"].values()) for entry in shown]
    for index, entry in enumerate(shown):
        if entry.get("entropy"):
            total = sum(entry["entropy"].values())
            ends.append(total)
            axes.plot(total, index, "k|", markersize=9, label="entropy of the fields, summed" if index == 0 else None)
    axes.set_yticks(place, [_short(entry) for entry in shown], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(limits_from_zero(ends))
    axes.set_xlabel("bits per weight (measured)")
    legend_below(figure, axes, columns=4)
    return figure


def _stack(axes: Any, shown: list[dict[str, Any]], place: np.ndarray) -> None:
    roles = [role for role in _SECTION_COLOURS if any(role in entry["bits_by_section"] for entry in shown)]
    divided = any(role in _TARGET_ONLY for role in roles)
    labels = {
        role: f"{role} ({'target only' if role in _TARGET_ONLY else 'draft'})" if divided else role for role in roles
    }
    left = np.zeros(len(shown))
    for role in roles:
        width = np.array([entry["bits_by_section"].get(role, 0.0) for entry in shown])
        axes.barh(
            place,
            width,
            left=left,
            height=0.75,
            color=_SECTION_COLOURS[role],
            edgecolor=INK,
            linewidth=0.2,
            label=labels[role],
        )
        left += width


def _short(entry: dict[str, Any], longest: int = 40) -> str:
    # A dollar sign would begin a formula.
    name = printable(entry["name"]).replace("$", r"\$")
    name = name if len(name) <= longest else f"...{name[3 - longest :]}"
    return name if entry["count"] == 1 else f"{name} ({entry['count']})"
