"""The same rows for drafted tokens or for samples: time and accuracy of both, at every batch."""

from __future__ import annotations

from matplotlib.figure import Figure

from jaxspec.report.figures.style import BLUE, INK, VERMILLION, limits_from_zero, new_figure, styled
from jaxspec.report.titles import provenance
from jaxspec.studies.scale.result import ScaleResult

__all__ = ["exchange_figure"]


@styled
def exchange_figure(result: ScaleResult) -> Figure | None:
    """A panel for each batch: arrows from one sample to what drafted tokens, and what samples, make of it."""
    name = result.networks[0].name if result.networks else ""
    rows = [row for row in result.speculation.rows if row.model == name and row.sampling_s.number is not None]
    if not rows:
        return None
    batches = list(dict.fromkeys(row.batch for row in rows))
    figure = new_figure(
        "The same matrix rows for drafted tokens or for samples",
        f"{name}, draft {result.speculation.draft}: {provenance(result)}; accuracy measured, times predicted, each over the "
        "time of one sample without speculation; numbers: rows",
        height_inches=3.6,
    )
    found = figure.subplots(1, len(batches), squeeze=False, sharey=True)[0]
    for axes, batch in zip(found, batches):
        here = [row for row in rows if row.batch == batch]
        axes.grid(True)
        axes.plot(1.0, here[0].accuracy_one.known, "o", color=INK, markersize=7, zorder=4, label="one sample")
        axes.plot(
            [1.0, *(1.0 / row.speedup.known for row in here)],
            [row.accuracy_one.known for row in (here[0], *here)],
            "s-",
            color=BLUE,
            markersize=5,
            label="drafted tokens",
        )
        axes.plot(
            [1.0, *(row.slowdown.known for row in here)],
            [here[0].accuracy_one.known, *(row.accuracy.known for row in here)],
            "D-",
            color=VERMILLION,
            markersize=5,
            label="samples",
        )
        for row in here:
            place = row.slowdown.known, row.accuracy.known
            axes.annotate(str(row.rows), place, (5, -9), textcoords="offset points", fontsize=8)
        last = here[-1]
        place = 1.0 / last.speedup.known, last.accuracy_one.known
        axes.annotate(str(last.rows), place, (-4, 7), textcoords="offset points", ha="right", fontsize=8)
        axes.set_xlim(limits_from_zero([1.0, *(row.slowdown.known for row in here)], room=1.12))
        axes.set_ylim(0.0, 1.04)
        axes.set(title=f"batch {batch}", xlabel="time of an answer, over one sample's")
    found[0].set_ylabel("problems answered right")
    handles, labels = found[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure
