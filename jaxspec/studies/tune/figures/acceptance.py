"""Acceptance against footprint: what each bit that a draft reads buys."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from jaxspec.report.columns import NO_STATUS
from jaxspec.report.figures.style import INK, colour_of, legend_below, marker_of, new_figure, styled
from jaxspec.report.titles import configurations, provenance
from jaxspec.studies.tune.disagreement import by_j
from jaxspec.studies.tune.result import GridPoint, TuneResult


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points (cost, gain) that no other point beats: none is as cheap and better, or as good and cheaper.

    Returns:
        Sorted by cost, gain strictly rising; of equal points one.
    """
    front: list[tuple[float, float]] = []
    for cost, gain in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or gain > front[-1][1]:
            front.append((cost, gain))
    return front


@styled
def acceptance_figure(result: TuneResult) -> Figure | None:
    """Acceptance (alpha_token) against the draft's bits per weight: all grid points, their front, the configurations."""
    chosen = {}
    for name, configuration in configurations(result).items():
        bits, alpha = configuration.bits_per_weight.number, configuration.acceptance.alpha_token.number
        if bits is not None and alpha is not None:
            chosen[name] = (bits, alpha)
    grid, speedups = [], []
    for point in result.grid:
        bits, alpha = point.bits_per_weight.number, point.alpha_token.number
        if bits is not None and alpha is not None:
            grid.append((bits, alpha))
            speedups.append(point.speedup_vs_bf16_ar.number)
    if not chosen and not grid:
        return None

    figure = new_figure("Acceptance against footprint of the draft", provenance(result), height_inches=5.0)
    axes = figure.add_subplot()
    axes.grid(True)
    if grid:
        front = pareto_front(grid)
        axes.step(*zip(*front), where="post", color=INK, linewidth=1.2, zorder=1, label="Pareto front of the grid")
        coloured = {"c": speedups, "cmap": "cividis"} if None not in speedups else {"color": INK}
        points = axes.scatter(
            *zip(*grid),
            **coloured,
            s=30,
            linewidths=0.5,
            edgecolors=INK,
            zorder=2,
            label=f"all {len(grid)} grid points",
        )
        if None not in speedups:
            bar = figure.colorbar(points, ax=axes, pad=0.01, aspect=30)
            bar.set_label("speedup vs bf16 AR of a grid point (predicted)")
            bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    ringed = by_j(result) or GridPoint()
    bits, alpha = ringed.bits_per_weight.number, ringed.alpha_token.number
    if bits is not None and alpha is not None:
        axes.plot(
            bits,
            alpha,
            linestyle="none",
            marker="o",
            markersize=17,
            markerfacecolor="none",
            markeredgecolor=INK,
            zorder=2,
            label="grid point that objective J chooses",
        )
    # Configurations may coincide: later ones are smaller, so that all show.
    for index, (name, (bits, alpha)) in enumerate(chosen.items()):
        axes.plot(
            bits,
            alpha,
            linestyle="none",
            marker=marker_of(name),
            markersize=max(13.0 - 1.5 * index, 6.0),
            markerfacecolor=colour_of(name),
            markeredgecolor=INK,
            zorder=4 if name == "tuned" else 3,
            label=f"{'best grid point' if name == 'grid' else name}: {bits:.2f} bits, {alpha:.3f}",
        )
    found = configurations(result)
    statuses = sorted({found[name].acceptance.alpha_token.status or NO_STATUS for name in chosen})
    axes.set_xlabel("weights read per draft step (bits per stored weight)")
    axes.set_ylabel(f"acceptance alpha_token (probability, {' or '.join(statuses) or 'measured'})")
    axes.margins(0.06)
    legend_below(figure, axes, columns=3)
    return figure
