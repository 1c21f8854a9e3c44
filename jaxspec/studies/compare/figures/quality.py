"""Quality of what is decoded against its speed."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxspec.report.figures.style import INK, limits_from_zero, new_figure, styled
from jaxspec.report.titles import provenance
from jaxspec.studies.compare.figures.speedups import KIND_COLOURS, KIND_TITLES
from jaxspec.studies.compare.result import AUTOREGRESSIVE, CompareResult

__all__ = ["quality_figure"]

_MARKERS = {"self-draft": "o", "draft": "s", "compression": "D", AUTOREGRESSIVE: "*"}

#: Names of points that stand no nearer than this are written; share of the figure.
_APART = 0.035


@styled
def quality_figure(result: CompareResult) -> Figure | None:
    """A point for each way to decode, named where there is room."""
    rows = {
        name: (each, each.speedup_vs_bf16_ar.known, each.quality.bits_per_byte.known)
        for name, each in result.contestants.items()
        if each.speedup_vs_bf16_ar.number is not None and each.quality.bits_per_byte.number is not None
    }
    if not rows:
        return None
    figure = new_figure(
        "Quality against speed",
        f"{provenance(result)}; bits per byte measured on held-out prompts (less is better), ± one standard error of the mean",
        height_inches=4.8,
    )
    axes = figure.add_subplot()
    axes.grid(True)
    plain = rows.get(AUTOREGRESSIVE)
    if plain is not None:
        axes.axhline(plain[2], color=INK, linewidth=1.0, linestyle="--", zorder=1)
    told: set[str] = set()
    for each, speed, bits in rows.values():
        kind = str(each.kind)
        label = None if kind in told else KIND_TITLES.get(kind, kind)
        told.add(kind)
        axes.plot(
            [speed],
            [bits],
            _MARKERS.get(kind, "v"),
            color=KIND_COLOURS.get(kind, INK),
            markersize=7,
            alpha=0.85,
            label=label,
            linestyle="none",
            zorder=3,
        )
    bits_all = [bits for _, _, bits in rows.values()]
    low, high = min(bits_all), max(bits_all)
    room = 0.08 * (high - low) or 0.05
    axes.set_ylim(low - room, high + 1.6 * room)
    right = limits_from_zero([1.0, *(speed for _, speed, _ in rows.values())], room=1.18)
    axes.set_xlim(right)
    places = {
        name: (speed, bits, speed / right[1], (bits - low) / (high - low or 1.0))
        for name, (_, speed, bits) in rows.items()
    }
    _name_points(axes, places)
    axes.set_xlabel("speed over 16-bit autoregressive decoding")
    axes.set_ylabel("bits per byte")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def _name_points(axes: Axes, places: Mapping[str, tuple[float, float, float, float]]) -> None:
    """Names beside points, but where another name stands already.

    Args:
        places: of each point, in its units and as shares of the figure.
    """
    written: list[tuple[float, float]] = []
    for name, (speed, bits, x, y) in places.items():
        if any(abs(x - a) < 4.5 * _APART and abs(y - b) < _APART for a, b in written):
            continue
        written.append((x, y))
        axes.annotate(name, (speed, bits), (6, 4), textcoords="offset points", fontsize=7.5)
