"""Figure of the contest: what each search keeps on held-out prompts, and what its own scores promised."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from jaxspec.report.figures.style import BLUE, VERMILLION, legend_below, new_figure, styled

__all__ = ["contest_figure"]


@styled
def contest_figure(summary: list[dict[str, Any]], rows: list[dict[str, Any]]) -> Figure:
    """A row for each search and budget, a panel for each temperature.

    Args:
        summary: of `contest.summary`, of these rows.
    """
    temperatures = sorted({row["temperature"] for row in summary})
    most = max(sum(row["temperature"] == t for row in summary) for t in temperatures)
    figure = new_figure(
        "Tuning by gradient, and by searches that see hard scores alone",
        "speedup over the best grid point at equal cost (predicted); points: seeds, bars: 95 % intervals of their mean",
        height_inches=1.4 + 0.3 * most,
    )
    panels = figure.subplots(1, len(temperatures), squeeze=False)[0]
    for axes, temperature in zip(panels, temperatures, strict=True):
        here = [row for row in summary if row["temperature"] == temperature][::-1]
        for place, found in enumerate(here):
            own = [r for r in rows if all(r[key] == found[key] for key in ("temperature", "budget", "search"))]
            label = lambda text, place=place: text if place == 0 else None
            seeds = [row["over_grid_held_out"] for row in own]
            axes.plot(seeds, [place] * len(seeds), "o", color=BLUE, alpha=0.5, label=label("held-out prompts"))
            axes.errorbar(
                found["over_grid_held_out"], place, xerr=found["half_interval"], fmt="|", color=BLUE, capsize=3, ms=12
            )
            promised = found["over_grid_calibration"]
            axes.plot(promised, place, "d", color=VERMILLION, label=label("calibration text, mean"))
        axes.set_yticks(range(len(here)), [f"{row['search']}, {row['evaluations']:.0f} evaluations" for row in here])
        axes.set(
            xlabel="speedup over the best grid point", title=f"temperature {temperature:g}", ylim=(-0.6, most - 0.4)
        )
        axes.axvline(1.0, color="0.6", lw=0.8, zorder=0)
        axes.grid(True, axis="x")
    legend_below(figure, panels[0])
    return figure
