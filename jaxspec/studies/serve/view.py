"""What `jaxspec serve` shows: a row for every way to decode at every rate, and throughput against latency."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from hwmodels.numerics.units import MILLI
from jaxspec.report.columns import Column, fill, read_columns
from jaxspec.report.figure_style import BLUE, INK, VERMILLION, WIDTH_INCHES, ShownFigure, styled
from jaxspec.report.formatting import architecture_title, device_title, three_digits
from jaxspec.report.page import Section, figures_of, page_writer
from jaxspec.report.terminal import Shown, Table, note_lines, shown_run
from jaxspec.runs.directory import RunDirectory
from jaxspec.studies.given_acceptance import acceptance_line
from jaxspec.studies.serve.result import DECODING, Crossing, LoadRow, ServeResult

#: Way to decode -> what it is called.
CALLED = {"autoregressive": "no draft", "fixed": "fixed draft", "by_batch": "draft by batch"}


def _ms(value: float) -> str:
    return three_digits(value / MILLI)


_COLUMNS: tuple[Column[LoadRow], ...] = read_columns(
    Path(__file__).with_name("columns.csv"),
    words={"decoding": lambda row: CALLED[row.decoding]},
    write=dict.fromkeys(("ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s"), _ms)
    | {"rate_per_s": lambda value: f"{value:.4g}"},
)


def answer(crossing: Crossing, rows: Sequence[LoadRow] = ()) -> str:
    """Where a draft pays, in a sentence; and by how much, where it does at single rates.

    Args:
        rows: of the result; none: by how much is left out.
    """
    called, pays = CALLED[crossing.decoding], crossing.pays_at.known
    if not pays:
        return f"{called}: pays at none of these rates"
    if (rate := crossing.rate_per_s.number) is not None:
        return f"{called}: shortens the median request up to {rate:.3g} requests/s, and lengthens it beyond"
    most = max((_shorter_by(rows, crossing.decoding, rate) for rate in pays if rows), default=None)
    rates = ", ".join(f"{rate:.3g}" for rate in pays)
    words = "" if most is None else f", by {three_digits(100.0 * most)} % at most"
    return f"{called}: of these rates, shortens the median request at {rates} requests/s{words}"


def _shorter_by(rows: Sequence[LoadRow], decoding: str, rate: float) -> float:
    """Share of a median request's time that a draft saves at a rate."""
    took = {row.decoding: row.request_p50_s.known for row in rows if row.rate_per_s.known == rate}
    return 1.0 - took[decoding] / took[DECODING[0]]


def serving_tables(results: Sequence[ServeResult]) -> list[Table]:
    """For each device a row for every way to decode at every rate."""
    return [_loads(result) for result in results]


def _loads(result: ServeResult) -> Table:
    load = result.workload
    table = Table(
        title=f"{result.architecture} on {result.device}, "
        + (f"{result.release}; " if result.release else "")
        + f"draft: {result.draft}",
        caption=f"{load.requests.value} requests of {load.prompt_tokens.known:.0f} + {load.output_tokens.known:.0f} tokens "
        f"on average, at most {load.max_batch.value} at once and {load.chunk_tokens.value} prompt tokens in a step, room for "
        f"{load.capacity_tokens.known:,.0f} tokens{_states(result)}; fixed draft: {result.draft_length.value} tokens; "
        f"by batch: {_lengths(result)} (rates and lengths: input; acceptance: {result.acceptance.status}; the rest: predicted)"
        + (f"\nin brackets: {result.interval_statement}" if result.interval_statement else ""),
    )
    return fill(table, _COLUMNS, (("", row) for row in result.rows))


def _states(result: ServeResult) -> str:
    """How much of the room each request's states take, in words; empty where there are none."""
    states = result.workload.sequence_tokens.number
    return f", of which a request's states take {states:,.0f}" if states else ""


def _lengths(result: ServeResult) -> str:
    """Lengths by batch in words, as in "4 up to batch 12, then 2 up to 30, then 0"."""
    lengths = result.lengths_by_batch.known
    ends = [
        place + 1 for place in range(len(lengths)) if place + 1 == len(lengths) or lengths[place] != lengths[place + 1]
    ]
    said = [f"{lengths[end - 1]} up to batch {end}" for end in ends[:-1]] + [str(lengths[-1])]
    return ", then ".join(said if len(said) <= 5 else [*said[:4], f"... {said[-1]}"])


def shown(run: tuple[Sequence[ServeResult], RunDirectory]) -> Shown:
    """Tables of what was served for the terminal, from what `serve` returned."""
    results, _ = run
    lines = [f"{result.device}: {answer(crossing, result.rows)}" for result in results for crossing in result.crossings]
    first = dict.fromkeys(acceptance_line(result.acceptance, result.acceptance_source) for result in results)
    return dataclasses.replace(
        shown_run(run, serving_tables(results), [*lines, *note_lines(results)]), first=list(first)
    )


_COLOURS: dict[str, str] = dict(zip(DECODING, (INK, VERMILLION, BLUE), strict=True))


_MARKERS = dict(zip(DECODING, "osD", strict=True))


_PANELS = (
    ("tpot", "time per further token (ms)"),
    ("ttft", "time to the first token (ms)"),
    ("request", "time of a request (ms)"),
)


def plot(returned: tuple[Sequence[ServeResult], Any]) -> Figure:
    """What `jaxspec serve --plot` draws, from what `serve` returned."""
    return serving_figure(returned[0])


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


def points(result: ServeResult) -> dict[str, list[Any]]:
    """Columns of `StudyResults.to_frame`: numbers of a way to decode at a rate, in SI."""
    rows, names = result.rows, [field.name for field in dataclasses.fields(LoadRow)]
    columns = {"device": [result.device] * len(rows), "decoding": [row.decoding for row in rows]}
    numbers = [name for name in names if name not in ("decoding", "intervals")]
    return columns | {name: [getattr(row, name).value for row in rows] for name in numbers}


#: The figure of one device by name.
figures = figures_of(throughput_latency=lambda result: serving_figure([result]))


def _section(result: ServeResult) -> Section:
    return Section(
        result=result,
        title=f"{architecture_title(result)} on {device_title(result)}",
        headlines=[answer(crossing, result.rows) for crossing in result.crossings],
        pays=bool(result.pays.value),
        tables=serving_tables([result]),
        figures=figures(result),
        remarks=[acceptance_line(result.acceptance, result.acceptance_source), *result.notes],
    )


write_serving = page_writer(__file__, _section)
