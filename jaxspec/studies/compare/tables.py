"""The tables of `jaxspec compare`: a row for each way to decode, the fastest first."""

from __future__ import annotations

from collections.abc import Sequence

from jaxspec.report.columns import shown_columns
from jaxspec.report.draft_columns import LARGEST_GAP
from jaxspec.report.formatting import times
from jaxspec.report.intervals import BRACKETS, statements
from jaxspec.report.terminal import Table
from jaxspec.report.titles import architecture_title, device_title, provenance
from jaxspec.settings.rounded_inputs import UNROUNDED_BITS
from jaxspec.studies.compare.columns import TERMINAL_COLUMNS, interval
from jaxspec.studies.compare.result import AUTOREGRESSIVE, COMPRESSION, CompareResult, Contestant

__all__ = [
    "activations_in_words",
    "by_speed",
    "compare_headline",
    "compare_tables",
    "gaps_in_words",
    "intervals_in_words",
    "task_in_words",
]

# Task -> its problems, with their number.
_TASKS = {
    "python": "{:.0f} functions of the held-out text whose bodies are written, right where the whole parses",
    "arithmetic": "{:.0f} sums worked out in steps, right where the last step is the value",
}


def by_speed(result: CompareResult) -> dict[str, Contestant]:
    """Contestants, the fastest first; those whose speed is not known come last."""
    order = lambda name: -(result.contestants[name].speedup_vs_bf16_ar.number or 0.0)
    return {name: result.contestants[name] for name in sorted(result.contestants, key=order)}


def compare_tables(results: Sequence[CompareResult]) -> list[Table]:
    """One table per device."""
    return [_table(result) for result in results]


def _table(result: CompareResult) -> Table:
    table = Table(compare_headline(result), "\n".join(_caption(result)))
    table.add_column("way to decode")
    columns = shown_columns(TERMINAL_COLUMNS, result.contestants.values())
    for column in columns:
        table.add_column(column.heading, justify="right")
    for name, each in by_speed(result).items():
        cells = [column.text(each).replace(" ± ", "±") for column in columns]
        table.add_row(name, *cells, style="bold" if name == result.best else None)
    return table


def compare_headline(result: CompareResult) -> str:
    """The device's answer in a sentence."""
    where = f"{architecture_title(result)} on {device_title(result)}"
    best = result.contestants.get(result.best or "")
    if best is None:
        return f"{where}: nothing was compared."
    if result.best == AUTOREGRESSIVE:
        return f"{where}: no draft pays that leaves the output as it is."
    return (
        f"{where}: {result.best} with {best.draft_length.value} drafted tokens is the fastest that leaves the output as it is, "
        f"{times(best.speedup_vs_bf16_ar.number)} 16-bit autoregressive decoding ({interval(best)})."
    )


def _caption(result: CompareResult) -> list[str]:
    return [
        "measured: tokens counted, output, bits per byte, agreement, accuracy; predicted: all other numbers",
        "exact: output of the 16-bit network; changed: of another one, whose bits per byte and agreement stand beside it",
        *task_in_words(result),
        *(f"{BRACKETS}{words}" for words in intervals_in_words(result)),
        *gaps_in_words(result),
        *activations_in_words(result),
        *(f"left out: {name}: {reason}" for name, reason in result.left_out.items()),
        provenance(result),
    ]


def intervals_in_words(result: CompareResult) -> list[str]:
    """What intervals hold; nothing where there are none."""
    return statements(each.intervals for each in result.contestants.values())


def task_in_words(result: CompareResult) -> list[str]:
    """What accuracy is about; nothing where no problems were answered."""
    if result.task is None or result.problems.number is None:
        return []
    return [
        f"accuracy: {_TASKS[result.task].format(result.problems.number)}, decoded greedily (measured, 95 % over problems)"
    ]


def activations_in_words(result: CompareResult) -> list[str]:
    """Which networks round activations, keys and values; nothing where none does."""
    bits = {name: each.activation_bits.number for name, each in result.contestants.items()}
    rounded = {name: number for name, number in bits.items() if number is not None and number < UNROUNDED_BITS}
    narrow = [f"{name} to {number:.0f} bits" for name, number in rounded.items()]
    kv = {name: each.bits_per_kv_verify.number for name, each in result.contestants.items() if each.kind == COMPRESSION}
    stored = [f"{name} in {bits:.2f} bits" for name, bits in kv.items() if bits is not None and bits < UNROUNDED_BITS]
    return [
        *([f"activations rounded: {', '.join(narrow)}; the report tells what their times assume"] * bool(narrow)),
        *([f"keys and values rounded: {', '.join(stored)} per element, scales included"] * bool(stored)),
    ]


def gaps_in_words(result: CompareResult) -> list[str]:
    """Drafts whose counted tokens per cycle are too far from the predicted ones."""
    gaps = {name: each.tokens_per_cycle_gap_in_standard_errors.number for name, each in result.contestants.items()}
    large = [f"{name} {gap:.1f}" for name, gap in gaps.items() if gap is not None and gap > LARGEST_GAP]
    if not large:
        return []
    return [
        f"DEFECT: tokens per cycle predicted and counted differ by more than {LARGEST_GAP:.0f} standard errors: "
        + ", ".join(large)
    ]
