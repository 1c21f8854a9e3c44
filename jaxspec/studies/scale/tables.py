"""The tables of `jaxspec scale`: plans, and the same rows for samples or for drafted tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxspec.report.columns import Column
from jaxspec.report.formatting import NOT_KNOWN, fixed, times
from jaxspec.report.intervals import BRACKETS
from jaxspec.report.terminal import Table
from jaxspec.report.titles import architecture_title, device_title, in_order
from jaxspec.results.quantity import Quantity
from jaxspec.studies.scale.columns import EXCHANGE_COLUMNS, PLAN_COLUMNS, interval, seconds
from jaxspec.studies.scale.result import Exchange, PlanRow, ScaleResult

__all__ = [
    "accepted_by_network",
    "here",
    "intervals_in_words",
    "named",
    "plan_name",
    "scale_headline",
    "scale_tables",
    "shown_columns",
    "target_in_words",
]


def scale_tables(results: Sequence[ScaleResult]) -> list[Table]:
    """For each device: its plans at the batch asked for, then the exchange at every batch."""
    return [table for result in results for table in (_plans(result), _exchanges(result))]


def here(result: ScaleResult) -> list[PlanRow]:
    """The plans at the batch asked for; of one sample, which all methods share, one."""
    rows = [row for row in result.plans if row.batch == result.workload.batch.number]
    found: dict[tuple[str, str, int], PlanRow] = {}
    for row in rows:
        found.setdefault((row.model, "" if row.samples == 1 else row.method, row.samples), row)
    return list(found.values())


def accepted_by_network(result: ScaleResult) -> dict[str, Quantity[list]]:
    """Acceptance of drafted tokens by position, in the order of the networks."""
    found = result.speculation.conditional
    return {name: found[name] for name in in_order(found, [str(network.name) for network in result.networks])}


def plan_name(row: PlanRow, result: ScaleResult) -> str:
    """What a plan is called; with its network where there are several."""
    return named("one sample" if row.samples == 1 else f"{row.method} {row.samples}", row.model, result)


def named(what: str, model: str, result: ScaleResult) -> str:
    """Something of a network: with its name, of a directory the last part, where there are several networks."""
    names = [network.name for network in result.networks]
    last = Path(model).name
    short = last if [Path(name).name for name in names].count(last) == 1 else model
    return f"{short}: {what}" if len(names) > 1 else what


def shown_columns(rows: Sequence[PlanRow]) -> list[Column[PlanRow]]:
    """Columns of plans that have something to say: no judge's time without a judge, no energy where none is known."""
    return [column for column in PLAN_COLUMNS if not column.optional or any(column.read(row).number for row in rows)]


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
    table.add_column("plan")
    columns = shown_columns(rows)
    for column in columns:
        table.add_column(column.heading, justify="right")
    best = result.most_accurate
    for row in rows:
        style = "bold" if row == best else None if row.fits.value else "dim"
        table.add_row(plan_name(row, result), *(column.text(row) for column in columns), style=style)
    return table


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
    table.add_column("batch, rows")
    for column in EXCHANGE_COLUMNS:
        table.add_column(column.heading, justify="right")
    for row in result.speculation.rows:
        table.add_row(
            named(f"{row.batch} x {row.rows}", row.model, result), *(column.text(row) for column in EXCHANGE_COLUMNS)
        )
    return table
