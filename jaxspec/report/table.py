"""Tables for the terminal: one per device, and one over all devices where there are several."""

from __future__ import annotations

from collections.abc import Sequence

from jaxspec.report.entries import (
    LARGEST_GAP,
    Entry,
    architecture_title,
    configurations,
    device_title,
    gap_in_standard_errors,
    lookup,
    number,
    provenance,
)
from jaxspec.report.formatting import NOT_KNOWN, times
from jaxspec.report.metrics_shown import METRICS, Metric
from jaxspec.report.terminal import Table
from jaxspec.report.verdict import ratio, verdict

#: Metric -> heading, broken so that all columns fit into 80 characters. The page shows more.
_COLUMNS = {
    "alpha_token": "alpha\ntoken",
    "alpha_fraction": "alpha\nfraction",
    "bits_per_weight": "bits\nper\nweight",
    "draft_length": "draft\nlength",
    "tokens_per_cycle_predicted": "tokens\nper cycle\npredicted",
    "tokens_per_cycle_counted": "tokens\nper cycle\ncounted",
    "speedup_vs_bf16_ar": "speedup\nvs\nbf16\nAR",
    "speedup_vs_stored_ar": "speedup\nvs\nstored\nAR",
}
_SHOWN = {metric.path[-1]: metric for metric in METRICS}


def tables(entries: Sequence[Entry]) -> list[Table]:
    """The terminal's tables for all devices, in order; a summary comes last where there are several."""
    return [device_table(entry) for entry in entries] + ([summary_table(entries)] if len(entries) > 1 else [])


def device_table(entry: Entry) -> Table:
    """The configurations of one device, a row each; the fastest one is bold where a draft pays.

    The caption gives each column's status, what was measured and priced, and any gap between the two counts of tokens
    per cycle that is too large.
    """
    answer = verdict(entry)
    remark = "" if answer.pays or answer.speedup is None else ": no draft pays here"
    table = Table(f"{architecture_title(entry)} on {device_title(entry)}{remark}", _caption(entry))
    table.add_column("draft")
    for heading in _COLUMNS.values():
        table.add_column(heading, justify="right")
    for name, configuration in configurations(entry).items():
        cells = [_SHOWN[key].text(configuration).replace(" ± ", "±") for key in _COLUMNS]
        table.add_row(name, *cells, style="bold" if answer.pays and name == answer.best else None)
    return table


def summary_table(entries: Sequence[Entry]) -> Table:
    """One row per device: what tuning gains there."""
    table = Table("All devices", "predicted: all numbers; each ratio's interval stands under it")
    table.add_column("device")
    for heading in ("tuned vs\nbf16 AR", "tuned vs\nstored AR", "tuned vs\ngrid", "tuned vs\ndefault"):
        table.add_column(heading, justify="right")
    table.add_column("draft\nthat pays")
    for entry in entries:
        answer, tuned = verdict(entry), lookup(entry, "configurations", "tuned")
        ratios = [ratio(entry, other) for other in ("grid", "default")]
        table.add_row(
            device_title(entry),
            *(times(number(tuned, f"speedup_vs_{baseline}_ar")) for baseline in ("bf16", "stored")),
            *(f"{times(found.value)}\n{found.interval}".rstrip() if found else NOT_KNOWN for found in ratios),
            answer.choice,
        )
    return table


def _caption(entry: Entry) -> str:
    found = configurations(entry)
    by_status: dict[str, list[str]] = {}
    for key, heading in _COLUMNS.items():
        if statuses := _statuses(_SHOWN[key], entry):
            by_status.setdefault(statuses, []).append(heading.replace("\n", " "))
    lines = [f"{status}: {', '.join(columns)}" for status, columns in by_status.items()]
    gaps = {name: gap_in_standard_errors(configuration) for name, configuration in found.items()}
    large = [f"{name} {gap:.1f}" for name, gap in gaps.items() if gap is not None and gap > LARGEST_GAP]
    if large:
        lines.append(
            f"DEFECT: tokens per cycle predicted and counted differ by more than {LARGEST_GAP:.0f} standard errors: "
            + ", ".join(large)
        )
    return "\n".join([*lines, provenance(entry)])


def _statuses(metric: Metric, entry: Entry) -> str:
    """The metric's status; where configurations differ, all of them."""
    found = [metric.status(configuration) for configuration in configurations(entry).values()]
    return " or ".join(dict.fromkeys(status for status in found if status))
