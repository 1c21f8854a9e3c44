"""What `jaxspec serve --plot` draws: throughput against latency, with and without a draft."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from hwmodels.numerics.units import MILLI
from jaxspec.report.figures.style import BLUE, INK, VERMILLION, WIDTH_INCHES, ShownFigure, styled
from jaxspec.report.page import Drawings
from jaxspec.studies.serve.loads import DECODING
from jaxspec.studies.serve.report import CALLED
from jaxspec.studies.serve.result import LoadRow, ServeResult

__all__ = ["figures", "plot", "serving_figure"]

_COLOURS: dict[str, str] = dict(zip(DECODING, (INK, VERMILLION, BLUE), strict=True))
_MARKERS = dict(zip(DECODING, "osD", strict=True))
_PANELS = (
    ("tpot", "time per further token (ms)"),
    ("ttft", "time to the first token (ms)"),
    ("request", "time of a request (ms)"),
)


def plot(found: tuple[Sequence[ServeResult], Any]) -> Figure:
    """What `jaxspec serve --plot` draws, from what `serve` returned."""
    return serving_figure(found[0])


@styled
def serving_figure(results: Sequence[ServeResult]) -> Figure:
    """Up to three panels per device: tokens per second against each latency, its median with the 99th percentile above.

    In the last one a star marks where a draft stops to pay.
    """
    figure = ShownFigure(figsize=(WIDTH_INCHES * 1.3, 4.0 * len(results)), layout="constrained")
    parts = figure.subfigures(len(results), 1, squeeze=False)
    for part, result in zip(parts[:, 0], results, strict=True):
        part.suptitle(
            f"{result.architecture} on {result.device}, draft: {result.draft} (predicted; median, bar to the 99th percentile)",
            fontsize=11,
        )
        # Where every request is one token, there is no time per further token.
        panels = [panel for panel in _PANELS if all(_known(row, panel[0]) for row in result.rows)]
        for axes, (what, label) in zip(part.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            for decoding in DECODING:
                rows = [row for row in result.rows if row.decoding == decoding]
                median, worst = (
                    [getattr(row, f"{what}_{place}_s").known / MILLI for row in rows] for place in ("p50", "p99")
                )
                tokens = [row.tokens_per_s.known for row in rows]
                axes.plot(median, tokens, marker=_MARKERS[decoding], color=_COLOURS[decoding], label=CALLED[decoding])
                axes.hlines(tokens, median, worst, color=_COLOURS[decoding], linewidth=0.7, alpha=0.5)
            if what == "request":
                _mark_crossings(axes, result)
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=_labelled(axes)))
            axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set(xlabel=label, ylabel="tokens per second")
            axes.set_ylim(bottom=0)
            axes.grid(True)
        part.axes[0].legend(fontsize=8)
    return figure


def _labelled(axes: Axes) -> tuple[float, ...]:
    """Multiples of powers of ten that are labelled on the axis: fewer where it is long, so that none meets the next."""
    low, high = axes.get_xlim()
    decades = np.log10(high / low)
    return (1.0, 2.0, 5.0) if decades < 2.0 else (1.0, 3.0) if decades < 3.0 else (1.0,)


def _known(row: LoadRow, what: str) -> bool:
    return all(getattr(row, f"{what}_{place}_s").number is not None for place in ("p50", "p99"))


def _mark_crossings(axes: Axes, result: ServeResult) -> None:
    """A star on each draft's curve at the rate from which on it lengthens the median request."""
    for crossing in result.crossings:
        rows = [row for row in result.rows if row.decoding == crossing.decoding]
        at = crossing.rate_per_s.number
        if at is None:
            continue
        latency = _at_rate(rows, at, [row.request_p50_s.known / MILLI for row in rows])
        tokens = _at_rate(rows, at, [row.tokens_per_s.known for row in rows])
        colour = _COLOURS[crossing.decoding]
        axes.plot([latency], [tokens], marker="*", markersize=15, color=colour, markeredgecolor=INK, linestyle="none")
        axes.annotate(
            f"pays up to\n{at:.3g} requests/s",
            (latency, tokens),
            xytext=(8, -10),
            textcoords="offset points",
            fontsize=8,
            color=colour,
        )


def _at_rate(rows: Sequence[LoadRow], rate: float, numbers: Sequence[float]) -> float:
    """A number at a rate between those served: straight between them in logarithms, as the crossing was found."""
    known = np.log([row.rate_per_s.known for row in rows])
    return float(np.exp(np.interp(np.log(rate), known, np.log(numbers))))


def figures(result: ServeResult, directory: Path | None = None) -> Drawings:
    """The figure of one device by name."""
    return {"throughput_latency": lambda: serving_figure([result])}
