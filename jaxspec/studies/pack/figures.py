"""The figure of `jaxspec inspect`: bits per weight by section."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from jaxspec.errors import printable
from jaxspec.partial_files import read_toml_beside
from jaxspec.report import figure_style
from jaxspec.report.figure_style import INK, legend_below, limits_from_zero, new_axes, styled
from jaxspec.report.page import figures_of
from jaxspec.studies.pack.result import PackResult
from jaxspec.studies.pack.view import TensorKind, container_caption, container_title, grouped

__all__ = ["container_figure", "figures"]

#: Of sections in a container.
_SECTION_COLOURS: dict[str, str] = read_toml_beside(figure_style.__file__, "colours.toml")["sections"]

#: Sections that a draft does not read.
_TARGET_ONLY = {"low", "pruned", "pruned_exponent", "pruned_rest"}

#: Tensors that a figure shows; the largest come first.
_MOST_BARS = 48


@styled
def container_figure(result: PackResult) -> Figure | None:
    """Bits per weight by section, beside the entropy; one bar per kind of tensor, the largest kinds first."""
    kinds = grouped([tensor for tensor in result.tensors if tensor.elements])
    if not kinds:
        return None
    shown = sorted(kinds, key=lambda kind: -kind.mean.bytes)[:_MOST_BARS]
    subtitle = f"{container_title(result)}. {container_caption(result)}.".replace("$", r"\$")
    if len(kinds) > len(shown):
        subtitle += f" The {len(shown)} largest of {len(kinds)} kinds of tensors."
    figure, axes = new_axes("Bits per stored weight", subtitle, height_inches=2.6 + 0.3 * len(shown), grid="x")
    place, ends = np.arange(len(shown)), []
    if result.scheme is not None:
        _stack(axes, shown, place)
        ends += [sum(kind.mean.bits_by_section.values()) for kind in shown]
    for index, kind in enumerate(shown):
        if kind.mean.entropy:
            total = sum(kind.mean.entropy.values())
            ends.append(total)
            axes.plot(total, index, "k|", markersize=9, label="entropy of the fields, summed" if index == 0 else None)
    axes.set_yticks(place, [_short(kind) for kind in shown], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(limits_from_zero(ends))
    axes.set_xlabel("bits per weight (measured)")
    legend_below(figure, axes, columns=4)
    return figure


def _stack(axes: Any, shown: list[TensorKind], place: np.ndarray) -> None:
    roles = [role for role in _SECTION_COLOURS if any(role in kind.mean.bits_by_section for kind in shown)]
    divided = any(role in _TARGET_ONLY for role in roles)
    labels = {
        role: f"{role} ({'target only' if role in _TARGET_ONLY else 'draft'})" if divided else role for role in roles
    }
    left = np.zeros(len(shown))
    for role in roles:
        width = np.array([kind.mean.bits_by_section.get(role, 0.0) for kind in shown])
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


def _short(kind: TensorKind, longest: int = 40) -> str:
    # A dollar sign would begin a formula.
    name = printable(kind.name).replace("$", r"\$")
    name = name if len(name) <= longest else f"...{name[3 - longest :]}"
    return name if kind.count == 1 else f"{name} ({kind.count})"


#: The figure of a container by name.
figures = figures_of(container=container_figure)
