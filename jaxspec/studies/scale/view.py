"""What `jaxspec scale` shows: plans, and the same rows for samples or for drafted tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hwmodels.numerics.units import MILLI
from jaxspec.report.columns import BRACKETS, Column, Grid, fill, read_columns
from jaxspec.report.figure_style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    VERMILLION,
    WIDTH_INCHES,
    ShownFigure,
    legend_below,
    limits_from_zero,
    new_axes,
    new_figure,
    styled,
)
from jaxspec.report.formatting import (
    NOT_KNOWN,
    architecture_title,
    device_title,
    fixed,
    in_order,
    model_title,
    provenance,
    scale_of,
    three_digits,
    times,
)
from jaxspec.report.page import Proof, Section, figures_of, network_section, network_settings, page_writer
from jaxspec.report.terminal import Shown, Table, shown_run
from jaxspec.results import Quantity
from jaxspec.runs.directory import RunDirectory
from jaxspec.studies.scale.result import CurvePoint, Exchange, PlanRow, ScaleResult


def seconds(value: float) -> str:
    """A time in the unit that fits its size, with three digits."""
    scale, unit = scale_of("_s", value or 1.0)
    return f"{three_digits(value / scale)} {unit}"


def _accuracy(row: PlanRow) -> str:
    # Its interval stands beside it, in place of the standard error.
    return fixed(row.accuracy.number, 3)


def interval(row: PlanRow) -> str:
    """The interval of the accuracy."""
    return f"{fixed(row.low.number, 2)} to {fixed(row.high.number, 2)}"


def _front(row: PlanRow) -> str:
    marks = [
        word
        for word, mark in (("time", row.fastest_of_its_accuracy), ("energy", row.cheapest_of_its_accuracy))
        if mark.value
    ]
    if not row.attainable:
        return "bound"
    return (", ".join(marks) or "no") if row.fits.value else "does not fit"


_COLUMNS = Path(__file__).with_name("columns.csv")

#: Of a plan.
PLAN_COLUMNS: tuple[Column[PlanRow], ...] = read_columns(
    _COLUMNS,
    "plan",
    words={"accuracy": _accuracy, "low": interval, "fastest_of_its_accuracy": _front},
    write=dict.fromkeys(("step_s", "judge_s", "total_s"), seconds) | {"energy_j": lambda value: f"{value:.3g}"},
)

#: Of an exchange.
EXCHANGE_COLUMNS: tuple[Column[Exchange], ...] = read_columns(
    _COLUMNS,
    "exchange",
    words={"speculation_right_s": lambda row: row.better.value or "neither"},
    write=dict.fromkeys(("speculation_s", "sampling_s"), seconds),
)


def here(result: ScaleResult) -> list[PlanRow]:
    """The plans at the batch asked for; of one sample, which all methods share, one."""
    rows = [row for row in result.plans if row.batch == result.workload.batch.number]
    first_rows: dict[tuple[str, str, int], PlanRow] = {}
    for row in rows:
        first_rows.setdefault((row.model, "" if row.samples == 1 else row.method, row.samples), row)
    return list(first_rows.values())


def accepted_by_network(result: ScaleResult) -> dict[str, Quantity[list]]:
    """Acceptance of drafted tokens by position, in the order of the networks."""
    by_network = result.speculation.conditional
    return {name: by_network[name] for name in in_order(by_network, [str(network.name) for network in result.networks])}


def plan_name(row: PlanRow, result: ScaleResult) -> str:
    """What a plan is called; with its network where there are several."""
    return named("one sample" if row.samples == 1 else f"{row.method} {row.samples}", row.model, result)


def named(what: str, model: str, result: ScaleResult) -> str:
    """Something of a network: with its name, of a directory the last part, where there are several networks."""
    names = [network.name for network in result.networks]
    last = Path(model).name
    short = last if [Path(name).name for name in names].count(last) == 1 else model
    return f"{short}: {what}" if len(names) > 1 else what


def shown_plan_columns(rows: Sequence[PlanRow]) -> list[Column[PlanRow]]:
    """Columns of plans that have something to say: no judge's time without a judge, no energy where none is known."""
    return [
        column for column in PLAN_COLUMNS if not column.optional or any(column.quantity(row).number for row in rows)
    ]


def scale_headline(result: ScaleResult) -> str:
    """The device's answer in two sentences."""
    where = f"{architecture_title(result)} on {device_title(result)}"
    best = result.most_accurate
    if best is None:
        return f"{where}: no plan fits its memory."
    one = next(row for row in here(result) if (row.model, row.samples) == (best.model, 1))
    low, high = fixed(one.accuracy.number, 2), fixed(best.accuracy.number, 2)
    if best.samples == 1:
        said = f"{where}: nothing is more accurate than one sample, which is right in {low} of all problems."
    else:
        said = (
            f"{where}: {plan_name(best, result)} raises accuracy from {low} to {high} (95 %: {interval(best)}) in "
            f"{times(best.total_s.known / one.total_s.known)} the time of one sample."
        )
    row = _exchange_of(result, best)
    if row is None or row.speedup.number is None:
        return said
    same = "The same " if best.samples == row.rows else ""
    return (
        f"{said} {same}{row.rows} rows, used for drafted tokens, answer {times(row.speedup.number)} as fast at {low}."
    )


def _exchange_of(result: ScaleResult, plan: PlanRow) -> Exchange | None:
    """The exchange of a plan's rows; of one sample, of the most rows."""
    rows = [row for row in result.speculation.rows if (row.model, row.batch) == (plan.model, plan.batch)]
    return next((row for row in rows if row.rows == plan.samples), rows[-1] if rows else None)


def target_in_words(result: ScaleResult) -> str:
    """The cheapest plan for the accuracy asked for; nothing where none was."""
    target = result.target
    if target is None:
        return ""
    wanted = f"accuracy {fixed(target.accuracy.number, 3)}"
    if target.by_time is None:
        best = result.most_accurate
        most = "" if best is None else f"; the best one reaches {fixed(best.accuracy.number, 3)}"
        return f"{wanted}: none of the plans reaches it{most}"
    row = target.by_time
    said = f"{wanted}: the fastest plan is {plan_name(row, result)}, {seconds(row.total_s.known)} (predicted)"
    if (row := target.by_energy) is not None:
        said += f"; the one with least energy is {plan_name(row, result)}, {row.energy_j.known:.3g} J (predicted)"
    return said


def _plans(result: ScaleResult) -> Table:
    task, rows = result.task, here(result)
    asked = f"{task.name}, {task.check}" if task.check else f"{task.name}"
    ended = ", ".join(f"{100 * network.ended.known:.0f} %" for network in result.networks)
    lines = [
        f"{result.model.name} on {fixed(task.problems.number, 0)} problems ({asked}), {fixed(task.samples.number, 0)} samples "
        f"of each, of which {ended} have an end within {fixed(task.output_tokens.number, 0)} tokens; accuracy and passes: "
        "measured; step, time, energy, memory: predicted; not beaten: no other plan that fits is as accurate in less time, or "
        "with less energy",
        target_in_words(result),
    ]
    lines += _brackets(result, any(row.intervals for row in rows))
    if any(not row.attainable for row in rows):
        lines.append("bound: a checker that knows the right answer would choose; no user has it")
    table = Table(scale_headline(result), "\n".join(line for line in lines if line))
    style = lambda row: "bold" if row == result.most_accurate else None if row.fits.value else "dim"
    return fill(table, shown_plan_columns(rows), [(plan_name(row, result), row) for row in rows], style, corner="plan")


def intervals_in_words(result: ScaleResult) -> list[str]:
    """What intervals of times hold; nothing where there are none."""
    return [] if result.interval_statement is None else [result.interval_statement]


def _brackets(result: ScaleResult, present: bool) -> list[str]:
    """The same below a table that has some."""
    return [f"{BRACKETS}{words}" for words in intervals_in_words(result) if present]


def _exchanges(result: ScaleResult) -> Table:
    draft = result.speculation.draft or NOT_KNOWN
    accepted = "; ".join(
        named(
            f"{', '.join(fixed(chance, 2) for chance in conditional.known[:4])}, ... ({conditional.status})",
            name,
            result,
        )
        for name, conditional in accepted_by_network(result).items()
    )
    table = Table(
        f"{device_title(result)}: the same matrix rows, for drafted tokens or for samples",
        f"draft {draft}, accepted by position {accepted}; times of an answer: predicted; the samples are those of the most "
        "accurate plan that fits; sooner right: the shorter time over accuracy"
        + "".join(f"\n{line}" for line in _brackets(result, any(row.intervals for row in result.speculation.rows))),
    )
    return fill(table, EXCHANGE_COLUMNS, _exchange_rows(result), corner="batch, rows")


def _exchange_rows(result: ScaleResult) -> list[tuple[str, Exchange]]:
    rows = result.speculation.rows
    return [(named(f"{row.batch} x {row.rows}", row.model, result), row) for row in rows]


#: A network each, where there are several.
LINES = ("-", "--", ":", "-.")


_COLOURS = {"pass-at-n": GREEN, "best-of-n": BLUE, "majority": PURPLE, "beam": VERMILLION}


_MARKERS = {"pass-at-n": "o", "best-of-n": "s", "majority": "^", "beam": "D"}


def _style(method: str, attainable: bool) -> dict[str, Any]:
    """Colour and marker of a method, which is open where it is a bound."""
    colour = _COLOURS.get(method, ORANGE)
    filled = colour if attainable else "none"
    return {"color": colour, "marker": _MARKERS.get(method, "v"), "markersize": 5, "markerfacecolor": filled}


def _spread(points: Sequence[CurvePoint | PlanRow]) -> list[list[float]]:
    """Lengths of the bars of accuracies, downwards and upwards."""
    known = [(point.accuracy.known, point.low.known, point.high.known) for point in points]
    return [[max(0.0, mean - low) for mean, low, _ in known], [max(0.0, high - mean) for mean, _, high in known]]


@styled
def accuracy_figure(result: ScaleResult) -> Figure | None:
    """A curve for each network and method; what is a bound is open."""
    if not result.networks:
        return None
    task = result.task
    figure, axes = new_axes(
        "Accuracy against samples",
        f"{model_title(result)} on {task.problems.value} problems of {task.name}"
        f"{f' ({task.check})' if task.check else ''}, temperature {result.decoding.temperature.value}, score {task.score}; "
        "measured, with 95 % intervals over problems",
        height_inches=4.2,
    )
    budgets = sorted({point.samples for network in result.networks for c in network.curves for point in c.points})
    count = max(len(network.curves) for network in result.networks)
    for network, line in zip(result.networks, LINES * len(result.networks)):
        for i, curve in enumerate(network.curves):
            mean = [point.accuracy.known for point in curve.points]
            name = named(curve.method, network.name, result)
            # Beside each other, so that intervals do not hide one another.
            aside = 1.0 + 0.05 * (i - (count - 1) / 2)
            axes.errorbar(
                [point.samples * aside for point in curve.points],
                mean,
                yerr=_spread(curve.points),
                **_style(curve.method, curve.attainable),
                linestyle=line,
                linewidth=1.5,
                elinewidth=0.9,
                capsize=2.5,
                label=name if curve.attainable else f"{name} (a bound: knows the answer)",
            )
    axes.set_xscale("log", base=2)
    axes.set_xticks(budgets, [str(budget) for budget in budgets])
    axes.minorticks_off()
    axes.set_ylim(0.0, 1.04)
    axes.set(xlabel="samples N of each problem", ylabel="problems answered right")
    legend_below(figure, axes, columns=3)
    return figure


@styled
def costs_figure(result: ScaleResult) -> Figure | None:
    """Against time, and against energy where it is known; numbers are budgets, the line is the front."""
    rows = here(result)
    if not rows:
        return None
    figure = new_figure("Accuracy against cost", _subtitle(result), height_inches=4.4)
    parts = _costs(rows)
    panels = figure.subplots(1, len(parts), squeeze=False, sharey=True)[0]
    for axes, part in zip(panels, parts):
        _draw(axes, result, rows, *part)
    legend_below(figure, panels[0], columns=3)
    return figure


@styled
def plot(returned: tuple[Sequence[ScaleResult], Any]) -> Figure:
    """What `jaxspec scale --plot` draws: a row for each device."""
    results = returned[0]
    figure = ShownFigure(figsize=(WIDTH_INCHES, 4.6 * len(results)), layout="constrained")
    for part, result in zip(figure.subfigures(len(results), 1, squeeze=False)[:, 0], results):
        rows = here(result)
        panels = _costs(rows)
        part.suptitle(_subtitle(result), fontsize=9, wrap=True)
        for axes, panel in zip(part.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels):
            _draw(axes, result, rows, *panel)
            axes.legend(fontsize=7.5, loc="lower right")
    return figure


def _subtitle(result: ScaleResult) -> str:
    return (
        f"{architecture_title(result)} on {device_title(result)}, batch {result.workload.batch.value}, prompt of "
        f"{result.workload.context_tokens.value} tokens; accuracy measured on {result.model.name} with 95 % intervals, cost "
        "predicted; numbers: samples"
    )


Cost = tuple[str, Callable[[PlanRow], Quantity[float]], float, Callable[[PlanRow], Quantity[bool]]]


def _costs(rows: Sequence[PlanRow]) -> list[Cost]:
    """What a panel shows: its label, the cost, its unit, and whether a plan is on the front."""
    longest = max(row.total_s.known for row in rows)
    unit, name = (1.0, "s") if longest >= 1 else (MILLI, "ms")
    costs: list[Cost] = [
        (f"time of an answer ({name})", lambda row: row.total_s, unit, lambda row: row.fastest_of_its_accuracy)
    ]
    if all(row.energy_j.number is not None for row in rows):
        costs.append(
            ("energy of an answer (J)", lambda row: row.energy_j, 1.0, lambda row: row.cheapest_of_its_accuracy)
        )
    return costs


def _draw(
    axes: Axes,
    result: ScaleResult,
    rows: Sequence[PlanRow],
    label: str,
    cost: Callable[[PlanRow], Quantity[float]],
    unit: float,
    on_front: Callable[[PlanRow], Quantity[bool]],
) -> None:
    axes.grid(True)
    names = [network.name for network in result.networks]
    methods = dict.fromkeys(row.method for row in result.plans)
    for i, name in enumerate(names):
        one = next(row for row in rows if (row.model, row.samples) == (name, 1))
        for method in methods:
            mine = [one, *(row for row in rows if (row.model, row.method) == (name, method) and row.samples > 1)]
            mean = [row.accuracy.known for row in mine]
            axes.errorbar(
                [cost(row).known / unit for row in mine],
                mean,
                yerr=_spread(mine),
                **_style(method, mine[-1].attainable),
                linestyle=LINES[i % len(LINES)],
                linewidth=1.0,
                elinewidth=0.7,
                alpha=0.9,
                label=named(method, name, result),
            )
    # Once for each place, although several methods may stand there.
    for x, y, text in dict.fromkeys((cost(row).known / unit, row.accuracy.known, row.samples) for row in rows):
        axes.annotate(str(text), (x, y), (4, -10), textcoords="offset points", fontsize=7.5)
    front = sorted((cost(row).known / unit, row.accuracy.known) for row in rows if on_front(row).value)
    if front:
        axes.step(*zip(*front), where="post", color=INK, linewidth=7, alpha=0.18, zorder=0, label="no plan beats these")
    costs = [cost(row).known for row in rows]
    if max(costs) > 8 * min(costs):
        axes.set_xscale("log")
    axes.set_ylim(0.0, 1.04)
    axes.set(xlabel=f"{label} (predicted)", ylabel="problems answered right (measured)")


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
    panels = figure.subplots(1, len(batches), squeeze=False, sharey=True)[0]
    for axes, batch in zip(panels, batches):
        here = [row for row in rows if row.batch == batch]
        axes.grid(True)
        axes.plot(1.0, here[0].accuracy_one.known, "o", color=INK, markersize=7, zorder=4, label="one sample")
        sooner = [1.0, *(1.0 / row.speedup.known for row in here)]
        alone = [row.accuracy_one.known for row in (here[0], *here)]
        axes.plot(sooner, alone, "s-", color=BLUE, markersize=5, label="drafted tokens")
        later = [1.0, *(row.slowdown.known for row in here)]
        together = [here[0].accuracy_one.known, *(row.accuracy.known for row in here)]
        axes.plot(later, together, "D-", color=VERMILLION, markersize=5, label="samples")
        for row in here:
            place = row.slowdown.known, row.accuracy.known
            axes.annotate(str(row.rows), place, (5, -9), textcoords="offset points", fontsize=8)
        last = here[-1]
        place = 1.0 / last.speedup.known, last.accuracy_one.known
        axes.annotate(str(last.rows), place, (-4, 7), textcoords="offset points", ha="right", fontsize=8)
        axes.set_xlim(limits_from_zero(later, room=1.12))
        axes.set_ylim(0.0, 1.04)
        axes.set(title=f"batch {batch}", xlabel="time of an answer, over one sample's")
    panels[0].set_ylabel("problems answered right")
    legend_below(figure, panels[0], columns=3)
    return figure


#: The report's figures of one device by name.
figures = figures_of(accuracy=accuracy_figure, costs=costs_figure, exchange=exchange_figure)


def scale_section(result: ScaleResult) -> Section:
    """What the page shows of one device: plans across, numbers down."""
    rows, best, exchanges = here(result), result.most_accurate, result.speculation.rows
    title = scale_headline(result)
    # What speculation makes of one sample, with the most rows and at the batch asked for.
    mine = [row for row in exchanges if row.batch == result.workload.batch.number]
    one = None if best is None else next(row for row in rows if (row.model, row.samples) == (best.model, 1))
    ratio = None if best is None or one is None else best.total_s.known / one.total_s.known
    drafted = {
        f"accepted by position, {name}": f"{', '.join(fixed(chance, 3) for chance in chances.known)} ({chances.status})"
        for name, chances in accepted_by_network(result).items()
    }
    tables: list[Grid[Any]] = [
        Grid([(plan_name(row, result), row) for row in rows], shown_plan_columns(rows), corner="plan")
    ]
    if exchanges:
        title_of_rows = "The same matrix rows, for drafted tokens or for samples (batch x rows)"
        tables.append(Grid(_exchange_rows(result), EXCHANGE_COLUMNS, title_of_rows, corner="batch x rows"))
    target = target_in_words(result)
    return network_section(
        result,
        title=title.partition(":")[0],
        headlines=[title],
        provenance=result.statement or NOT_KNOWN,
        tables=tables,
        choice=NOT_KNOWN if best is None else plan_name(best, result),
        proof=Proof("unknown", _samples_in_words(result)),
        figures=figures(result),
        settings=[
            *network_settings(result, **_task(result)),
            ("draft", str(result.speculation.draft)),
            *drafted.items(),
            *([("target", target)] if target else []),
            *(("intervals", words) for words in intervals_in_words(result)),
        ],
        summary=[
            (NOT_KNOWN if one is None else seconds(one.total_s.known), ""),
            (times(ratio), ""),
            (times(mine[-1].speedup.number) if mine else NOT_KNOWN, ""),
        ],
    )


def _task(result: ScaleResult) -> dict[str, str | None]:
    task = result.task
    return {
        "task": f"{task.name}, {task.check}" if task.check else task.name,
        "score": task.score if task.judge is None else f"{task.score}, {task.judge}",
    }


def _samples_in_words(result: ScaleResult) -> str:
    ends = ", ".join(
        f"{100 * network.ended.known:.0f} %{f' of {network.name}' if len(result.networks) > 1 else ''}"
        for network in result.networks
    )
    return (
        f"{result.task.samples.value} samples of each of {result.task.problems.value} problems; {ends} have an end within "
        f"{result.task.output_tokens.value} tokens (measured). A sample without an end is not right. Sample i is the same to "
        "the last bit whatever number of samples is asked for."
    )


def shown(run: tuple[Sequence[ScaleResult], RunDirectory]) -> Shown:
    """Tables of plans for the terminal, from what `scale` returned."""
    return shown_run(run, [table for result in run[0] for table in (_plans(result), _exchanges(result))])


write_scale_report = page_writer(__file__, scale_section)
