"""Tables for the terminal: one per device, and one over all devices where there are several."""

from __future__ import annotations

from collections.abc import Sequence

from jaxspec.report.columns import Column, column_statuses, shown_columns
from jaxspec.report.draft_columns import LARGEST_GAP, TERMINAL_COLUMNS, gap_in_standard_errors
from jaxspec.report.formatting import NOT_KNOWN, fixed, times
from jaxspec.report.intervals import BRACKETS, statements
from jaxspec.report.terminal import Table
from jaxspec.report.titles import architecture_title, configurations, device_title, provenance
from jaxspec.report.verdict import ratio, verdict
from jaxspec.results.network_results import CategoryCycles, Configuration, ConfigurationsResult

#: Columns of the table by category.
_BY_CATEGORY = tuple(
    Column[CategoryCycles](heading.replace("\n", " "), heading, "", read, write)
    for heading, read, write in (
        ("prompts", lambda found: found.prompts, lambda value: fixed(value, 0)),
        ("alpha\ntoken", lambda found: found.alpha_token, lambda value: fixed(value, 3)),
        ("tokens\nper cycle\npredicted", lambda found: found.tokens_per_cycle_predicted, lambda value: fixed(value, 2)),
        ("tokens\nper cycle\ncounted", lambda found: found.tokens_per_cycle_counted, lambda value: fixed(value, 2)),
        ("speedup\nvs\nbf16\nAR", lambda found: found.speedup_vs_bf16_ar, times),
    )
)


def tables(results: Sequence[ConfigurationsResult]) -> list[Table]:
    """The terminal's tables for all devices, in order, each with its table by category where prompts have categories; a summary
    comes last where there are several devices."""
    of_devices = [table for result in results for table in (device_table(result), category_table(result)) if table]
    return of_devices + ([summary_table(results)] if len(results) > 1 else [])


def device_table(result: ConfigurationsResult) -> Table:
    """The configurations of one device, a row each; the fastest one is bold where a draft pays.

    The caption gives each column's status, what was measured and priced, and any gap between the two counts of tokens
    per cycle that is too large.
    """
    answer = verdict(result)
    remark = "" if answer.pays or answer.speedup is None else ": no draft pays here"
    table = Table(f"{architecture_title(result)} on {device_title(result)}{remark}", _caption(result))
    table.add_column("draft")
    columns = shown_columns(TERMINAL_COLUMNS, configurations(result).values())
    for column in columns:
        table.add_column(column.heading, justify="right")
    for name, configuration in configurations(result).items():
        cells = [column.text(configuration).replace(" ± ", "±") for column in columns]
        table.add_row(name, *cells, style="bold" if answer.pays and name == answer.best else None)
    return table


def category_table(result: ConfigurationsResult) -> Table | None:
    """A row for each category of the held-out prompts and each configuration; None where prompts have no categories."""
    found = configurations(result)
    categories = dict.fromkeys(name for each in found.values() for name in each.by_category)
    if not categories:
        return None
    table = Table(
        f"By category of the prompts, on {device_title(result)}",
        "measured: alpha token, tokens per cycle counted; predicted: tokens per cycle predicted, speedup",
    )
    for heading in ("category", "draft"):
        table.add_column(heading)
    for column in _BY_CATEGORY:
        table.add_column(column.heading, justify="right")
    for category in categories:
        for name, configuration in found.items():
            cells = [column.text(configuration.by_category[category]).replace(" ± ", "±") for column in _BY_CATEGORY]
            table.add_row(category, name, *cells)
    return table


def summary_table(results: Sequence[ConfigurationsResult]) -> Table:
    """One row per device: what tuning gains there."""
    table = Table("All devices", "predicted: all numbers; each ratio's interval stands under it")
    table.add_column("device")
    for heading in ("tuned vs\nbf16 AR", "tuned vs\nstored AR", "tuned vs\ngrid", "tuned vs\ndefault"):
        table.add_column(heading, justify="right")
    table.add_column("draft\nthat pays")
    for result in results:
        answer, tuned = verdict(result), result.configurations.get("tuned", Configuration())
        ratios = [ratio(result, other) for other in ("grid", "default")]
        table.add_row(
            device_title(result),
            times(tuned.speedup_vs_bf16_ar.number),
            times(tuned.speedup_vs_stored_ar.number),
            *(f"{times(found.value)}\n{found.interval}".rstrip() if found else NOT_KNOWN for found in ratios),
            answer.choice,
        )
    return table


def _caption(result: ConfigurationsResult) -> str:
    found = configurations(result)
    by_status: dict[str, list[str]] = {}
    for column in TERMINAL_COLUMNS:
        if statuses := column_statuses(column, found.values()):
            by_status.setdefault(statuses, []).append(column.heading.replace("\n", " "))
    lines = [f"{status}: {', '.join(columns)}" for status, columns in by_status.items()]
    gaps = {name: gap_in_standard_errors(configuration) for name, configuration in found.items()}
    large = [f"{name} {gap:.1f}" for name, gap in gaps.items() if gap is not None and gap > LARGEST_GAP]
    if large:
        lines.append(
            f"DEFECT: tokens per cycle predicted and counted differ by more than {LARGEST_GAP:.0f} standard errors: "
            + ", ".join(large)
        )
    held = statements(each.intervals for each in found.values())
    return "\n".join([*lines, *(f"{BRACKETS}{words}" for words in held), provenance(result)])
