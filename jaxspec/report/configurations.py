"""Numbers of a configuration that are shown, on a page and in a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jaxspec.report.columns import BRACKETS, Column, column_statuses, fill, statements, terminal_columns
from jaxspec.report.formatting import NOT_KNOWN, times
from jaxspec.report.terminal import Table
from jaxspec.report.titles import architecture_title, configurations, device_title, provenance
from jaxspec.results.network_results import CategoryCycles, Configuration, ConfigurationsResult

__all__ = [
    "LARGEST_GAP",
    "PAGE_COLUMNS",
    "SpeedRatio",
    "category_table",
    "gap_in_standard_errors",
    "headline",
    "ratio",
    "tables",
    "verdict",
]

#: A gap between predicted and counted tokens per cycle beyond this many standard errors is a defect.
LARGEST_GAP = 3.0


#: Rows of the page's table.
PAGE_COLUMNS = (
    Column[Configuration](
        "speedup vs bf16 AR",
        "speedup\nvs\nbf16\nAR",
        "over autoregressive decoding of the uncompressed 16-bit model",
        "speedup_vs_bf16_ar",
        times,
        interval="intervals.speedup_vs_bf16_ar",
        terminal=8,
    ),
    Column[Configuration](
        "speedup vs stored AR",
        "speedup\nvs\nstored\nAR",
        "over autoregressive decoding of the same stored form",
        "speedup_vs_stored_ar",
        times,
        interval="intervals.speedup_vs_stored_ar",
        terminal=9,
    ),
    Column[Configuration](
        "alpha_token",
        "alpha\ntoken",
        "probability that one draft token is accepted, given that all before it were",
        "acceptance.alpha_token",
        3,
        terminal=1,
    ),
    Column[Configuration](
        "alpha_fraction",
        "alpha\nfraction",
        "accepted draft tokens over drafted ones",
        "acceptance.alpha_fraction",
        3,
        terminal=2,
    ),
    Column[Configuration](
        "KL to the target",
        "KL",
        "nats per token, from the target's distribution to the draft's",
        "kl",
        4,
        optional=True,
    ),
    Column[Configuration](
        "bits per weight, draft",
        "bits\nper\nweight",
        "read per stored weight in one draft step",
        "bits_per_weight",
        2,
        terminal=3,
    ),
    Column[Configuration](
        "bits per weight, verification",
        "bits\nper weight\nverify",
        "read per stored weight in one verification",
        "bits_per_weight_verify",
        2,
    ),
    Column[Configuration](
        "bits per KV element, draft",
        "bits\nper KV\nelement",
        "read per cached element in one draft step",
        "bits_per_kv",
        2,
    ),
    Column[Configuration](
        "bits per KV element, verification",
        "bits\nper KV\nverify",
        "read per cached element in one verification",
        "bits_per_kv_verify",
        2,
        optional=True,
    ),
    Column[Configuration](
        "bits per weight of the LM head, draft",
        "bits\nper head\nweight",
        "read per weight of the LM head in one draft step",
        "bits_per_head_weight",
        2,
        optional=True,
        terminal=4,
    ),
    Column[Configuration](
        "bits per weight of the LM head, verification",
        "bits per\nhead weight\nverify",
        "read per weight of the LM head in one verification",
        "bits_per_head_weight_verify",
        2,
        optional=True,
    ),
    Column[Configuration](
        "draft length", "draft\nlength", "tokens drafted per cycle", "draft_length", 0, choice=True, terminal=5
    ),
    Column[Configuration](
        "tokens per cycle, predicted",
        "tokens\nper cycle\npredicted",
        "expected from the measured acceptance, including the verification's own token",
        "tokens_per_cycle_predicted",
        2,
        terminal=6,
    ),
    Column[Configuration](
        "tokens per cycle, counted",
        "tokens\nper cycle\ncounted",
        "in decoding of the same prompts, ± one standard error",
        "tokens_per_cycle_counted",
        2,
        terminal=7,
    ),
)


#: Columns of the terminal's table, which fit into 80 characters.
TERMINAL_COLUMNS = terminal_columns(PAGE_COLUMNS)


def gap_in_standard_errors(found: Configuration) -> float | None:
    """How far the counted tokens per cycle lie from the predicted ones, in standard errors."""
    given = found.tokens_per_cycle_gap_in_standard_errors.number
    if given is not None:
        return abs(given)
    expected, counted = found.tokens_per_cycle_predicted.number, found.tokens_per_cycle_counted.number
    error = found.tokens_per_cycle_counted.standard_error
    if expected is None or counted is None or not error:
        return None
    return abs(counted - expected) / error


#: Speedups come from float32; two that differ by less are equal.
_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class SpeedRatio:
    """How much faster one configuration is than another, with its interval where one was computed."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def clear(self) -> bool:
        """Whether the interval, where there is one, leaves out 1."""
        return self.low is None or self.high is None or not self.low <= 1.0 <= self.high

    @property
    def interval(self) -> str:
        """The interval in words; empty where there is none."""
        return "" if self.low is None or self.high is None else f"{self.low:.2f} to {self.high:.2f}"

    def __str__(self) -> str:
        return times(self.value) + (f" ({self.interval})" if self.interval else "")


def ratio(result: ConfigurationsResult, other: str) -> SpeedRatio | None:
    """Predicted speed of the tuned configuration over another's; from the speedups where the entry holds no ratio."""
    given = result.ratios.get(f"tuned_vs_{other}")
    if given is not None and given.ratio.number is not None:
        return SpeedRatio(given.ratio.number, given.low.number, given.high.number)
    tuned, others = (
        result.configurations.get(name, Configuration()).speedup_vs_bf16_ar.number for name in ("tuned", other)
    )
    return SpeedRatio(tuned / others) if tuned is not None and others else None


@dataclasses.dataclass(frozen=True)
class Answer:
    """Whether to speculate at all.

    Attributes:
        best: the fastest configuration; None where no speedup is known.
        speedup: its speedup over 16-bit autoregressive decoding.
        stored_speedup: the same of autoregressive decoding, in the fastest of the configurations' stored formats.
        pays: whether the fastest configuration beats that, and 16-bit decoding.
    """

    best: str | None
    speedup: float | None
    stored_speedup: float | None
    pays: bool

    @property
    def choice(self) -> str:
        """The draft that pays, in a word."""
        if self.best is None:
            return NOT_KNOWN
        return self.best if self.pays else "none"


def verdict(result: ConfigurationsResult) -> Answer:
    """Compare the fastest draft with plain decoding of what is stored."""
    speedups, stored = {}, []
    for name, configuration in configurations(result).items():
        speedup = configuration.speedup_vs_bf16_ar.number
        if speedup is None:
            continue
        speedups[name] = speedup
        relative = configuration.speedup_vs_stored_ar.number
        bf16_s, stored_s = configuration.cycle.ar_bf16_s.number, configuration.cycle.ar_stored_s.number
        if bf16_s and stored_s:
            stored.append(bf16_s / stored_s)
        elif relative:
            stored.append(speedup / relative)
    if not speedups:
        return Answer(best=None, speedup=None, stored_speedup=None, pays=False)
    best = max(speedups, key=lambda name: (speedups[name], name == "tuned"))
    bar = max([1.0, *stored]) * (1.0 + _TOLERANCE)
    return Answer(best, speedups[best], max(stored, default=None), pays=speedups[best] > bar)


def headline(result: ConfigurationsResult) -> str:
    """The device's answer in one or two plain sentences."""
    where, answer = f"{architecture_title(result)} on {device_title(result)}", verdict(result)
    if answer.speedup is None:
        return f"{where}: no speedup is known."
    if not answer.pays:
        sentence = (
            f"{where}: no draft pays here. The best one ({answer.best}) is predicted to decode "
            f"{times(answer.speedup)} as fast as 16-bit autoregressive decoding"
        )
        if answer.stored_speedup is None:
            return sentence + "."
        return f"{sentence}; plain decoding of a stored format reaches {times(answer.stored_speedup)}."
    tuned = result.configurations.get("tuned", Configuration())
    told = "tuned" if tuned.speedup_vs_bf16_ar.number is not None else str(answer.best)
    speedup = result.configurations[told].speedup_vs_bf16_ar.number
    stored = result.configurations[told].speedup_vs_stored_ar.number
    sentence = (
        f"{where}: the {told} draft is predicted to decode {times(speedup)} as fast as 16-bit autoregressive decoding"
    )
    if stored is not None:
        sentence += f" and {times(stored)} as fast as decoding of its own stored format"
    if told != "tuned":
        return sentence + "."
    named = {"grid": "the best grid point", "default": "the default"}
    compared = {name: found for name in named if (found := ratio(result, name)) is not None}
    parts = [
        f"{found} the speed of {named[name]}{'' if found.clear else ' (no clear difference)'}"
        for name, found in compared.items()
    ]
    return f"{sentence}; that is {' and '.join(parts)}." if parts else f"{sentence}."


#: Columns of the table by category.
_BY_CATEGORY = tuple(
    Column[CategoryCycles](heading.replace("\n", " "), heading, "", field, write)
    for heading, field, write in (
        ("prompts", "prompts", 0),
        ("alpha\ntoken", "alpha_token", 3),
        ("tokens\nper cycle\npredicted", "tokens_per_cycle_predicted", 2),
        ("tokens\nper cycle\ncounted", "tokens_per_cycle_counted", 2),
        ("speedup\nvs\nbf16\nAR", "speedup_vs_bf16_ar", times),
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
    found = configurations(result)
    bold = lambda configuration: "bold" if answer.pays and configuration is found[answer.best or ""] else None
    return fill(table, TERMINAL_COLUMNS, found, bold, corner="draft")


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
