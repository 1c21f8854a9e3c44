"""What `jaxspec compare` shows: a row for each way to decode, the fastest first, and a page with figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxspec.report.columns import BRACKETS, Column, Grid, fill, read_columns, statements, terminal_columns
from jaxspec.report.configurations import defects
from jaxspec.report.figure_style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    legend_below,
    limits_from_zero,
    new_axes,
    styled,
)
from jaxspec.report.formatting import (
    NOT_KNOWN,
    architecture_title,
    device_title,
    fixed,
    provenance,
    times,
)
from jaxspec.report.page import Section, figures_of, network_section, network_settings, page_writer
from jaxspec.report.stopwatch import stopwatch_figure, stopwatch_tables
from jaxspec.report.terminal import Shown, Table, note_lines, shown_run
from jaxspec.runs.directory import RunDirectory
from jaxspec.settings.compressions import UNROUNDED_BITS
from jaxspec.studies.compare.result import AUTOREGRESSIVE, COMPRESSION, DRAFT, SELF_DRAFT, CompareResult, Contestant


def interval(contestant: Contestant) -> str:
    """The interval of the speedup."""
    if contestant.speedup_low.number is None:
        return NOT_KNOWN
    return f"{fixed(contestant.speedup_low.number, 2)} to {fixed(contestant.speedup_high.number, 2)}"


def output_in_words(contestant: Contestant) -> str:
    """Whose output is decoded, and whether speculation changed it."""
    mismatches = contestant.lossless.mismatches.number
    if mismatches:
        return f"NOT lossless: {mismatches:.0f} tokens"
    return "changed" if contestant.changes_output else "exact"


def _change(contestant: Contestant) -> str:
    task = contestant.quality.task
    if task is None or task.change.number is None:
        return NOT_KNOWN
    return f"{task.change.number:+.3f} ± {fixed(task.change.standard_error, 3)}"


#: Rows of the page's table.
PAGE_COLUMNS: tuple[Column[Contestant], ...] = read_columns(
    Path(__file__).with_name("columns.csv"),
    words={"speedup_low": interval, "lossless.mismatches": output_in_words, "quality.task.change": _change},
    write={"energy_j_per_token": lambda value: f"{value:.3g}"},
)


#: Columns of the terminal's table.
TERMINAL_COLUMNS = terminal_columns(PAGE_COLUMNS)


# Task -> its problems, with their number.
_TASKS = {
    "python": "{:.0f} functions of the held-out text whose bodies are written, right where the whole parses",
    "arithmetic": "{:.0f} sums worked out in steps, right where the last step is the value",
    "word-problems": "{:.0f} sums asked in words, right where the answer's last number is the value",
}


def by_speed(result: CompareResult) -> dict[str, Contestant]:
    """Contestants, the fastest first; those whose speed is not known come last."""
    order = lambda name: -(result.contestants[name].speedup_vs_bf16_ar.number or 0.0)
    return {name: result.contestants[name] for name in sorted(result.contestants, key=order)}


def _table(result: CompareResult) -> Table:
    table = Table(compare_headline(result), "\n".join(_caption(result)))
    bold = lambda contestant: "bold" if contestant is result.contestants.get(result.best or "") else None
    return fill(table, TERMINAL_COLUMNS, by_speed(result), bold, corner="way to decode")


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


def _stored(result: CompareResult) -> str:
    """The form in which the target runs: 16 bits, or that of a quantized release."""
    plain = result.contestants.get(AUTOREGRESSIVE)
    return (plain and plain.statement) or "16 bits"


def rows_in_words(result: CompareResult) -> list[str]:
    """What the rows of the table are, kind by kind; drafts that are no compressed copy one by one."""
    names: dict[str, list[str]] = {}
    for name, each in result.contestants.items():
        names.setdefault(str(each.kind), []).append(f"{name} ({each.statement})" if each.kind == DRAFT else name)
    about = {key: f" ({words.format(_stored(result))})" for key, words in _KINDS.items()}
    return [f"{kind}: {', '.join(names[key])}{about.get(key, '')}" for key, kind in KIND_TITLES.items() if key in names]


def reason_in_words(result: CompareResult) -> str:
    """Why drafts pay or do not: what a cycle gains, and how long it is; "" without drafts."""
    parts = []
    for name, each in by_speed(result).items():
        tokens, speedup = each.tokens_per_cycle_counted.number, each.speedup_vs_stored_ar.number
        if tokens is not None and speedup:
            parts.append(f"{name} {tokens:.2f} in {tokens / speedup:.2f}")
    if not parts:
        return ""
    return (
        f"why, on {result.device}: a draft pays where a cycle gains more tokens (counted) than it takes steps of plain "
        f"decoding of the same stored form (predicted): {', '.join(parts)}"
    )


def next_in_words(result: CompareResult) -> str:
    """What to do with the answer."""
    best = result.contestants.get(result.best or "")
    given = f"--model {result.model.name}"
    own_text = "acceptance is that of this text: give yours with --text and --prompts"
    if best is None or best.kind == AUTOREGRESSIVE:
        return f"next: another --device, --context or --batch may pay; {own_text}"
    if best.kind == SELF_DRAFT:
        return f"next: jaxspec tune {given} --scheme {best.scheme} fits its knobs to text; {own_text}"
    return f"next: jaxspec tree {given} --draft {result.best} tries trees in place of chains; {own_text}"


def _caption(result: CompareResult) -> list[str]:
    prompts = result.lossless.prompts.number
    on_prompts = "" if prompts is None else f" on {prompts:.0f} held-out prompts"
    return [
        f"measured{on_prompts}: tokens counted, output, bits per byte, agreement, accuracy; predicted: all other numbers",
        f"exact: output of the network in {_stored(result)}; changed: of another one, whose bits per byte and agreement stand "
        "beside it",
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
    contestants = result.contestants.items()
    return defects({name: each.tokens_per_cycle_gap_in_standard_errors.number for name, each in contestants})


#: Colour of each kind of contestant.
KIND_COLOURS = {AUTOREGRESSIVE: PURPLE, SELF_DRAFT: BLUE, DRAFT: GREEN, COMPRESSION: ORANGE}


# What a way of each kind is; other drafts say it themselves.
_KINDS = {
    AUTOREGRESSIVE: "a token at a time, in {}",
    SELF_DRAFT: "the target's own compressed copy drafts",
    COMPRESSION: "changes what is decoded",
}


#: What a person calls each kind.
KIND_TITLES = {
    AUTOREGRESSIVE: "plain decoding",
    SELF_DRAFT: "self-drafts",
    DRAFT: "other drafts",
    COMPRESSION: "compression without a draft",
}


@styled
def speedups_figure(result: CompareResult) -> Figure | None:
    """A bar for each, the fastest on top."""
    rows = {name: each for name, each in by_speed(result).items() if each.speedup_vs_bf16_ar.number is not None}
    if not rows:
        return None
    figure, axes = new_axes(
        "Speed of every way to decode",
        f"{provenance(result)}; tokens per cycle counted, times predicted; 95 % intervals over prompts",
        height_inches=1.1 + 0.27 * len(rows),
        grid="x",
    )
    ends = []
    labelled: set[str] = set()
    for place, each in enumerate(rows.values()):
        kind, speed = str(each.kind), each.speedup_vs_bf16_ar.known
        label = None if kind in labelled else KIND_TITLES.get(kind, kind)
        labelled.add(kind)
        strength = 0.45 if each.changes_output else 0.95
        axes.barh(place, speed, color=KIND_COLOURS.get(kind, INK), alpha=strength, label=label, height=0.74)
        low, high = each.speedup_low.number, each.speedup_high.number
        ends.append(speed if high is None else max(high, speed))
        if low is not None and high is not None:
            span = np.array([[max(speed - low, 0.0)], [max(high - speed, 0.0)]])
            axes.errorbar([speed], [place], xerr=span, fmt="none", ecolor=INK, elinewidth=1.1, capsize=2.5)
        axes.annotate(f"{speed:.2f}x", (ends[-1], place), (5, -3), textcoords="offset points", fontsize=8)
    axes.axvline(1.0, color=INK, linewidth=1.0, linestyle="--")
    axes.set_yticks(np.arange(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xlim(limits_from_zero([1.0, *ends], room=1.12))
    axes.set_xlabel("speed over 16-bit autoregressive decoding")
    legend_below(figure, axes, columns=4)
    return figure


_MARKERS = {"self-draft": "o", "draft": "s", "compression": "D", AUTOREGRESSIVE: "*"}


#: Names of points that stand no nearer than this are written; share of the figure.
_APART = 0.035


@styled
def quality_figure(result: CompareResult) -> Figure | None:
    """A point for each way to decode, named where there is room."""
    rows = {
        name: (each, each.speedup_vs_bf16_ar.known, each.quality.bits_per_byte.known)
        for name, each in result.contestants.items()
        if each.speedup_vs_bf16_ar.number is not None and each.quality.bits_per_byte.number is not None
    }
    if not rows:
        return None
    figure, axes = new_axes(
        "Quality against speed",
        f"{provenance(result)}; bits per byte measured on held-out prompts (less is better), ± one standard error of the mean",
        height_inches=4.8,
    )
    plain = rows.get(AUTOREGRESSIVE)
    if plain is not None:
        axes.axhline(plain[2], color=INK, linewidth=1.0, linestyle="--", zorder=1)
    labelled: set[str] = set()
    for each, speed, bits in rows.values():
        kind = str(each.kind)
        label = None if kind in labelled else KIND_TITLES.get(kind, kind)
        labelled.add(kind)
        filled = {"color": KIND_COLOURS.get(kind, INK), "markersize": 7, "alpha": 0.85, "zorder": 3}
        axes.plot(speed, bits, _MARKERS.get(kind, "v"), label=label, **filled)
    bits_all = [bits for _, _, bits in rows.values()]
    low, high = min(bits_all), max(bits_all)
    room = 0.08 * (high - low) or 0.05
    axes.set_ylim(low - room, high + 1.6 * room)
    right = limits_from_zero([1.0, *(speed for _, speed, _ in rows.values())], room=1.18)
    axes.set_xlim(right)
    places = {
        name: (speed, bits, speed / right[1], (bits - low) / (high - low or 1.0))
        for name, (_, speed, bits) in rows.items()
    }
    _name_points(axes, places)
    axes.set(xlabel="speed over 16-bit autoregressive decoding", ylabel="bits per byte")
    legend_below(figure, axes, columns=4)
    return figure


def _name_points(axes: Axes, places: Mapping[str, tuple[float, float, float, float]]) -> None:
    """Names beside points, but where another name stands already.

    Args:
        places: of each point, in its units and as shares of the figure.
    """
    written: list[tuple[float, float]] = []
    for name, (speed, bits, x, y) in places.items():
        if any(abs(x - a) < 4.5 * _APART and abs(y - b) < _APART for a, b in written):
            continue
        written.append((x, y))
        axes.annotate(name, (speed, bits), (6, 4), textcoords="offset points", fontsize=7.5)


#: The report's figures of one device by name.
figures = figures_of(speedups=speedups_figure, quality=quality_figure, stopwatch=stopwatch_figure)


def compare_section(result: CompareResult) -> Section:
    """What the page shows of one device: ways to decode across, numbers down."""
    contestants = by_speed(result)
    best = result.contestants.get(result.best or "", Contestant())
    low, high = best.speedup_low.number, best.speedup_high.number
    statements = {name: each.statement for name, each in contestants.items() if each.statement}
    return network_section(
        result,
        title=compare_headline(result).partition(":")[0],
        headlines=[line for line in (compare_headline(result), reason_in_words(result)) if line],
        tables=[Grid(contestants, PAGE_COLUMNS, corner="way to decode")],
        best=result.best,
        choice=result.best or NOT_KNOWN,
        figures=figures(result),
        settings=[
            *network_settings(result),
            *((f"{name} is", str(statement)) for name, statement in statements.items()),
            *((f"{name} is left out", reason) for name, reason in result.left_out.items()),
            *(("intervals", line) for line in intervals_in_words(result)),
            *(("problems", line) for line in task_in_words(result)),
            *(("defect", line) for line in gaps_in_words(result)),
        ],
        summary=[
            (times(best.speedup_vs_bf16_ar.number), ""),
            (NOT_KNOWN if low is None else f"{fixed(low, 2)} to {fixed(high, 2)}", ""),
            (fixed(best.tokens_per_cycle_counted.number, 2), ""),
        ],
    )


def shown(run: tuple[Sequence[CompareResult], RunDirectory]) -> Shown:
    """Tables of a comparison for the terminal, from what `compare` returned, and what they say."""
    results = run[0]
    lines = [
        *rows_in_words(results[0]),
        *map(reason_in_words, results),
        *note_lines(results),
        next_in_words(results[0]),
    ]
    return shown_run(run, [*map(_table, results), *stopwatch_tables(results)], [line for line in lines if line])


write_compare_report = page_writer(__file__, compare_section)
