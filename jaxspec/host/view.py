"""What `jaxspec calibrate` shows: tables, and a page with figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure

from hwmodels.numerics.units import MICRO
from jaxspec.host.result import CalibrateResult, FittedPart, MeasuredTime
from jaxspec.report.columns import Column, Grid, fill
from jaxspec.report.figure_style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    legend_below,
    new_figure,
    styled,
)
from jaxspec.report.formatting import NOT_KNOWN, fixed, quantity
from jaxspec.report.page import Proof, Section, figures_of, network_section, page_writer
from jaxspec.report.terminal import Shown, Table
from jaxspec.results import Quantity
from jaxspec.runs.directory import RunDirectory

_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)


_PARTS = {"product": BLUE, "attention": VERMILLION, "step": GREEN, "lookup": PURPLE, "sampling": ORANGE, "cycle": SKY}


@styled
def rows_figure(result: CalibrateResult) -> Figure | None:
    """Time of a product by its rows: measured points, and the line of the device file; a panel for each format."""
    products = [row for row in result.measurements if row.part == "product"]
    formats = sorted({row.weight_bits for row in products if row.weight_bits}, reverse=True)
    if not formats:
        return None
    figure = new_figure(
        "Products by rows",
        f"{result.device_title}: measured (points) and by the device file (lines), several matrices; where a step of rows "
        "shows in the points, the line follows it",
        height_inches=4.4,
    )
    panels = figure.subplots(1, len(formats), squeeze=False, sharey=True)[0]
    for axes, bits in zip(panels, formats):
        mine = [row for row in products if row.weight_bits == bits]
        for colour, (shape, rows) in zip(_COLOURS, _some_matrices(mine)):
            rows = sorted(rows, key=lambda row: row.rows or 0)
            at = [row.rows or 0.0 for row in rows]
            axes.plot(at, [row.seconds.known / MICRO for row in rows], "o", color=colour, markersize=3.5)
            axes.plot(at, [row.predicted_s.known / MICRO for row in rows], color=colour, linewidth=1.2, label=shape)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.grid(True)
        axes.set(xlabel="rows", title=f"{bits:g}-bit weights")
    panels[0].set_ylabel("time (µs)")
    legend_below(figure, panels[0], columns=3)
    return figure


def _some_matrices(rows: Sequence[MeasuredTime]) -> list[tuple[str, list[MeasuredTime]]]:
    """A few matrices with most rows each, from small to large."""
    by_shape: dict[str, dict[float, MeasuredTime]] = {}
    for row in rows:
        by_shape.setdefault(f"{row.inner:g} x {row.outer:g}", {}).setdefault(row.rows or 0.0, row)
    full = [(shape, list(each.values())) for shape, each in by_shape.items()]
    full.sort(key=lambda item: (item[1][0].inner or 0) * (item[1][0].outer or 0))
    if len(full) <= len(_COLOURS):
        return full
    step = (len(full) - 1) / (len(_COLOURS) - 1)
    return [full[round(i * step)] for i in range(len(_COLOURS))]


@styled
def residuals_figure(result: CalibrateResult) -> Figure | None:
    """Predicted over measured of rows that each fit did not see, by measured time."""
    known = [row for row in result.measurements if row.held_out_s.number is not None and row.seconds.number]
    if not known:
        return None
    figure = new_figure(
        "What the fits miss",
        f"{result.device_title}: predicted over measured time, each by a fit that did not see its shape; dashed: 10 %",
        height_inches=3.8,
    )
    axes = figure.add_subplot()
    for part, colour in _PARTS.items():
        mine = [row for row in known if row.part == part]
        if mine:
            ratio = [row.held_out_s.known / row.seconds.known for row in mine]
            axes.plot([row.seconds.known / MICRO for row in mine], ratio, ".", color=colour, markersize=4, label=part)
    for level, style in ((1.0, "-"), (0.9, "--"), (1.1, "--")):
        axes.axhline(level, color=INK, linewidth=0.8, linestyle=style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(True)
    axes.set(xlabel="measured time (µs)", ylabel="predicted over measured")
    legend_below(figure, axes, columns=6)
    return figure


def _percent(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{100 * value:.1f} %"


def _errors(
    title: str, heading: str, meaning: str, read: Callable[[FittedPart], Quantity[float]]
) -> Column[FittedPart]:
    return Column[FittedPart](heading, meaning, read, words=lambda part: _percent(read(part).number), page_title=title)


def _interval(part: FittedPart) -> str:
    return NOT_KNOWN if part.low.number is None else f"{part.low.known:.2f}–{part.high.known:.2f}"


def _covered(part: FittedPart) -> str:
    shares = part.covered.value or []
    return f"{', '.join(fixed(100 * share, 0) for share in shares)} %" if shares else NOT_KNOWN


#: Of a fit.
PART_COLUMNS = (
    Column[FittedPart]("times", "that were fitted to", "times", 0),
    _errors(
        "held-out error", "held-out\nerror", "mean, of groups that the fit did not see", lambda part: part.held_out_mean
    ),
    _errors("median", "median", "of the same errors", lambda part: part.held_out_median),
    _errors("largest", "largest", "of the same errors", lambda part: part.held_out_largest),
    _errors("form alone", "form\nalone", "the same mean without measured steps of rows", lambda part: part.smooth_mean),
    Column[FittedPart]("90 %\ninterval", "of measured over predicted", "low", words=_interval),
    Column[FittedPart](
        "covered", "share of the other half's rows within each half's interval", "covered", words=_covered
    ),
)


def _name(part: FittedPart) -> str:
    return f"products, {part.weight_bits:g}-bit" if part.part == "products" else str(part.part)


def calibrate_tables(result: CalibrateResult) -> list[Table]:
    """The fits, and the steps of rows."""
    table = Table(
        _headline(result),
        "times: measured; errors: of groups that the fit did not see (matrices, contexts, networks); steps are priced with all "
        "other fits",
    )
    fill(table, PART_COLUMNS, [(_name(part), part) for part in result.parts], corner="part")
    return [table, _steps_of_rows(result)]


def _steps_of_rows(result: CalibrateResult) -> Table:
    table = Table(
        "Measured steps of rows, over the smooth form",
        "median over matrices of a size; verification of x tokens is priced by them; measured",
    )
    table.add_column("weights")
    shown_rows = [1, 2, 3, 5, 8, 9, 16, 17, 32, 128]
    for count in shown_rows:
        table.add_column(f"{count}", justify="right")
    for steps in result.row_steps:
        rows = list(steps.rows.known)
        for size, factors in zip(steps.weights.known, steps.factors.known, strict=True):
            cells = [f"{factors[rows.index(c)]:.2f}" if c in rows else "" for c in shown_rows]
            table.add_row(f"{steps.weight_bits:g}-bit, {size:.2g}", *cells)
    return table


def _headline(result: CalibrateResult) -> str:
    error = result.step_error.number
    said = str(result.device_title)
    if error is not None:
        said += f": whole steps within {_percent(error)} in the mean"
        unseen = [part.held_out_mean.number for part in result.parts if part.part == "steps"]
        said += (
            f", {_percent(unseen[0])} of networks that the fit did not see" if unseen and unseen[0] is not None else ""
        )
    if result.noise is not None and not result.noise.believed.value:
        said += "; TOO BUSY TO BE BELIEVED"
    return said


#: The report's figures by name.
figures = figures_of(rows=rows_figure, residuals=residuals_figure)


def calibrate_section(result: CalibrateResult) -> Section:
    """What the page shows: fits across, numbers down."""
    noise, terms = result.noise, result.engine_terms.value or {}
    quiet = "Times of a file: how quiet the machine was is not known." if noise is None else str(noise.words)
    busy = noise is not None and not noise.believed.value
    return network_section(
        result,
        title=str(result.device_title),
        headlines=[_headline(result)],
        pays=not busy,
        provenance=result.statement or NOT_KNOWN,
        tables=[Grid([(_name(part), part) for part in result.parts], PART_COLUMNS, corner="fit")],
        proof=Proof("broken" if busy else "unknown", quiet[0].upper() + quiet[1:] + "."),
        figures=figures(result),
        settings=[
            ("origin", str(result.origin)),
            ("launch from Python", _time(result.launch_s.number)),
            ("turn of a loop", _time(result.turn_s.number)),
            *((f"loop {words}", _time(terms[name])) for name, words in _LOOP.items() if name in terms),
            ("compiling", _time(result.compile_s.number)),
            *((f"note {i}", note) for i, note in enumerate(result.doubts, start=1)),
        ],
    )


#: Term of the loop -> what it is of.
_LOOP = {
    "cycle_s": "per cycle",
    "draft_layer_s": "per layer of the draft",
    "draft_pass_s": "per pass of the draft",
    "drafted_token_s": "per drafted token",
}


def _loop(result: CalibrateResult) -> list[str]:
    terms = result.engine_terms.value or {}
    said = [f"{_time(terms[name])} {words}" for name, words in _LOOP.items() if name in terms]
    return [f"the decoding loop spends {', '.join(said)} beside its networks (calibrated)"] if said else []


def _time(value: float | None) -> str:
    return NOT_KNOWN if value is None else quantity("_s", value)


def shown(returned: tuple[CalibrateResult, RunDirectory]) -> Shown:
    """Tables for the terminal, from what `calibrate` returned."""
    result, directory = returned
    quiet = [] if result.noise is None or not result.noise.believed.value else [str(result.noise.words)]
    return Shown(
        result.plain(),
        calibrate_tables(result),
        [*quiet, *_loop(result), *(f"note: {doubt}" for doubt in result.doubts)],
        f"report: {directory.path / 'report.html'}; device file: {directory.path / 'device.toml'}, and where -o said",
    )


write_calibrate_report = page_writer(__file__, calibrate_section)
