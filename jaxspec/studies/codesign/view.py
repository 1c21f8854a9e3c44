"""What `jaxspec codesign` shows: tables, and a page with figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from jaxspec.report.figure_style import BLUE, GREEN, INK, ORANGE, VERMILLION, new_figure, styled
from jaxspec.report.formatting import NOT_KNOWN, architecture_title, device_title, quantity
from jaxspec.report.page import Section, figures_of, page_writer
from jaxspec.report.terminal import Shown, Table
from jaxspec.results import Quantity
from jaxspec.results.records import significant
from jaxspec.studies.codesign.config import DEVICE_FILE
from jaxspec.studies.codesign.result import BudgetUse, CodesignResult, VariableRow
from jaxspec.studies.engine_pricing import notes_of
from jaxspec.studies.given_acceptance import law_line

#: A question that exceeds a limit by more is drawn faintly.
_KEPT = 1e-3


@styled
def trajectory_figure(result: CodesignResult) -> Figure | None:
    """Objective at every question of every start, those that exceed a limit faintly."""
    if not result.starts:
        return None
    figure = new_figure(
        f"{result.objective} along {len(result.starts)} climbs",
        f"{result.architecture} on {result.device}, {result.scheme}; smoothed while it climbs (predicted); faint: a budget is "
        f"exceeded there; the line is the {result.ends_with}, exactly evaluated",
        height_inches=4.2,
    )
    axes = figure.add_subplot()
    for start in result.starts:
        values, excess = np.exp(start.objective), np.array(start.excess)
        steps = np.arange(1, len(values) + 1)
        axes.plot(steps, values, color=BLUE, linewidth=0.8, alpha=0.35)
        kept = excess <= _KEPT
        axes.plot(steps[kept], values[kept], ".", color=BLUE, markersize=5)
        axes.plot(steps[~kept], values[~kept], ".", color=BLUE, markersize=3, alpha=0.25)
    axes.axhline(_objective(result, "after"), color=VERMILLION, linewidth=1.2, label=result.ends_with)
    axes.axhline(_objective(result, "before"), color=INK, linewidth=0.8, linestyle=":", label="before")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())  # 300, not 3 × 10²
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axes.grid(True, which="both")
    axes.set(xlabel="values with gradients that a climb asked for", ylabel=result.objective)
    axes.legend()
    return figure


def _objective(result: CodesignResult, which: str) -> float:
    return getattr(getattr(result, which), result.objective).known


@styled
def elasticity_figure(result: CodesignResult) -> Figure | None:
    """Elasticities at the proposal, and what one more mm2 and one more watt buy."""
    if not result.variables:
        return None
    rows = result.variables[::-1]
    figure = new_figure(
        f"What a variable is worth at the {result.ends_with}",
        f"percent of {result.objective} for a percent of the number, for one mm2 and for one W spent on it alone (predicted, "
        "smoothed); equal bars: nothing is gained by moving the budget from one to the other",
        height_inches=0.9 + 0.42 * len(rows),
    )
    panels = figure.subplots(1, 3, sharey=True)
    columns = (("elasticity", "% per %", BLUE), ("per_mm2", "% per mm2", GREEN), ("per_w", "% per W", ORANGE))
    for axes, (name, label, colour) in zip(panels, columns, strict=True):
        values = [getattr(row, name).number or 0.0 for row in rows]
        axes.barh(range(len(rows)), values, color=colour)
        axes.axvline(0.0, color=INK, linewidth=0.8)
        axes.grid(True, axis="x")
        axes.set(xlabel=label)
    panels[0].set_yticks(range(len(rows)), [_label(row) for row in rows], fontsize=8)
    return figure


def _label(row: VariableRow) -> str:
    end = {"low": " (least)", "high": " (most)"}.get(row.at, "")
    return row.name.removeprefix("device.") + end


#: Figures of a co-design by name.
figures = figures_of(trajectory=trajectory_figure, elasticity=elasticity_figure)


#: Numbers of a design in the order of its table, with their units.
_NUMBERS = {
    "tokens_per_s": "tokens/s",
    "tokens_per_j": "tokens/J",
    "draft_tokens": "drafted tokens per cycle",
    "tokens_per_cycle": "tokens per cycle",
    "acceptance": "acceptance, first token",
    "speedup_vs_stored_ar": "speedup over stored AR",
    "area_mm2": "die, mm2",
    "power_w": "power, W",
    "bandwidth_gb_per_s": "bandwidth, GB/s",
    "price": "price",
    "held_share": "share of memory held",
}


#: Slopes of less, in percent, are rounding.
_NO_SLOPE = 1e-5


def _text(number: Quantity[float], digits: int = 4) -> str:
    return NOT_KNOWN if number.number is None else significant(number.number, digits)


def _sized(name: str, number: Quantity[float]) -> str:
    return NOT_KNOWN if number.number is None else quantity(name, number.number)


def _slope(number: Quantity[float]) -> str:
    return "0" if number.number is not None and abs(number.number) < _NO_SLOPE else _text(number, 3)


def headline(result: CodesignResult) -> str:
    """The answer in a sentence."""
    about = f"{result.architecture} on {result.device}, {result.scheme}"
    if not result.after.feasible:
        over = [
            f"{row.name} (at most {_text(row.limit)}, and the nearest design found takes {_text(row.after)})"
            for row in result.budgets
            if _exceeded(result, row)
        ]
        return f"{about}: no design within the ends of the variables keeps {', '.join(over)}."
    value = getattr(result.after, result.objective)
    kept = "" if result.before.feasible else "; the design before does not keep every limit"
    unused = "" if result.after.draft_tokens.number else "; no draft pays there, so that tokens are decoded one by one"
    return f"{about}: {_text(value)} {result.objective}, {_text(result.gain, 3)} times the design before{kept}{unused}."


def _exceeded(result: CodesignResult, row: BudgetUse) -> bool:
    return not result.after.feasible and row.after.known > row.limit.known


def codesign_tables(result: CodesignResult) -> list[Table]:
    """Designs, variables, limits."""
    return [_designs(result), _variables(result), _limits(result)]


def _designs(result: CodesignResult) -> Table:
    table = Table(
        f"Co-design: {result.architecture} on {result.device}",
        f"all predicted; acceptance {result.after.acceptance.status}: {result.law.source}{_law_errors(result)}",
    )
    table.add_columns("", "before", result.ends_with)
    for name, title in _NUMBERS.items():
        # 0 drafted tokens are an answer, 0 mm2 is nothing known.
        if name == "draft_tokens" or any(getattr(row, name).number for row in (result.before, result.after)):
            table.add_row(title, *(_text(getattr(row, name)) for row in (result.before, result.after)))
    table.add_row("keeps every limit", *(("yes" if row.feasible else "no") for row in (result.before, result.after)))
    return table


def _law_errors(result: CodesignResult) -> str:
    law = result.law
    if law.rms_error is None or law.left_out_error is None or law.mean_error is None:
        return ""
    return (
        f"; its error {law.rms_error:.2g} on them, {law.left_out_error:.2g} on each left out, "
        f"{law.mean_error:.2g} by their mean alone"
    )


def _variables(result: CodesignResult) -> Table:
    table = Table(
        "Variables",
        f"before: input; the rest: predicted. Slopes are percent of {result.objective} at the {result.ends_with}, smoothed; "
        f"{NOT_KNOWN}: it takes none",
    )
    slopes = ("% per %", "% per mm2", "% per W")
    table.add_columns("variable", "from", "to", "step", "before", result.ends_with, *slopes)
    for row in result.variables:
        end = {"low": " (least)", "high": " (most)"}.get(row.at, "")
        table.add_row(
            row.name,
            quantity(row.name, row.low),
            quantity(row.name, row.high),
            "" if row.step is None else quantity(row.name, row.step),
            _sized(row.name, row.before),
            _sized(row.name, row.after) + end,
            *(_slope(slope) for slope in (row.elasticity, row.per_mm2, row.per_w)),
        )
    return table


def _limits(result: CodesignResult) -> Table:
    table = Table(
        "Limits",
        f"at most: input; the rest: predicted. Multiplier: percent of {result.objective} for a percent more of the budget, "
        f"{NOT_KNOWN} where a limit is exceeded",
    )
    table.add_columns("limit", "at most", "before", result.ends_with, "reached", "multiplier")
    for row in result.budgets:
        values = (_text(row.limit), _text(row.before), _text(row.after))
        reached = "exceeded" if _exceeded(result, row) else "yes" if row.active else "no"
        table.add_row(row.name, *values, reached, _slope(row.multiplier))
    return table


def shown(result: CodesignResult) -> Shown:
    """Tables, the answer, and where its files are."""
    files = f"report: {result.directory}/report.html" if result.directory else ""
    if files and (Path(result.directory) / DEVICE_FILE).is_file():
        files += f", proposed device: {result.directory}/{DEVICE_FILE}"
    notes = [f"note: {note}" for note in (*notes_of(result.engine), *result.notes)]
    first = [law_line(vars(result.law))]
    return Shown(result.plain(), codesign_tables(result), [headline(result), *notes], files, first=first)


def _section(result: CodesignResult) -> Section:
    asked = f"{result.questions} values with gradients and {result.evaluations} exact ones"
    return Section(
        result=result,
        title=f"{architecture_title(result)} on {device_title(result)}",
        headlines=[headline(result)],
        pays=result.after.feasible,
        tables=[*codesign_tables(result), _costs(result)],
        figures=figures(result),
        remarks=[*notes_of(result.engine), *result.notes, f"all numbers: result.json; the search asked for {asked}"],
    )


def _costs(result: CodesignResult) -> Table:
    table = Table("Costs beside the device's own", "input")
    for heading in ("cost", "of", "mm2", "W", "price", "source"):
        table.add_column(heading)
    for name, cost in result.costs.items():
        product: Any = " · ".join(key if power == 1 else f"{key}^{power:g}" for key, power in cost["of"].items())
        amounts = (f"{cost[key]:.3g}" if cost[key] else "" for key in ("area_mm2", "power_w", "price"))
        table.add_row(name, product, *amounts, cost["source"])
    return table


write_codesign_report = page_writer(__file__, _section)
