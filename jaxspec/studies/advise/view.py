"""What `jaxspec advise` shows: a sentence, a row per batch, figures, and how engines are started."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hwmodels.numerics.units import MILLI
from jaxspec.report.columns import Column, fill, interval_in_words, read_columns
from jaxspec.report.figure_style import (
    BLACK,
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PAPER,
    PURPLE,
    SKY,
    VERMILLION,
    WIDTH_INCHES,
    YELLOW,
    ShownFigure,
    limits_from_zero,
    styled,
)
from jaxspec.report.formatting import NOT_KNOWN, fixed, times
from jaxspec.report.page import Drawings, Page, Section, write_page
from jaxspec.report.terminal import Shown, Table, note_lines, shown_run
from jaxspec.results import given
from jaxspec.runs.directory import RunDirectory
from jaxspec.studies.advise.result import AdvisedBatch, AdviseResult, ScheduleRange
from jaxspec.studies.engine_flags import SERVED_DRAFTS
from jaxspec.studies.given_acceptance import acceptance_line
from jaxspec.studies.predict.view import by_device


def limits_in_words(row: AdvisedBatch, most: int = 2) -> str:
    """What the time goes to, the largest shares first."""
    causes = row.time_by_cause.value or {}
    total, largest = sum(causes.values()), sorted(causes, key=lambda name: -causes[name])
    return ", ".join(f"{name} {100 * causes[name] / total:.0f} %" for name in largest[:most])


def _chance(row: AdvisedBatch) -> str:
    chance = row.probability_pays.number
    if chance is None:
        return NOT_KNOWN
    return "> 99 %" if chance > 0.995 else "< 1 %" if chance < 0.005 else f"{100 * chance:.0f} %"


def _tree(row: AdvisedBatch) -> str:
    if row.tree is None:
        return NOT_KNOWN
    speedup, ends = row.tree.speedup_vs_stored_ar.number, interval_in_words(row.tree.interval, times)
    return f"{times(speedup)}{ends} at {row.tree.nodes.value} tokens"


def _rate(row: AdvisedBatch) -> str:
    text = fixed(row.tokens_per_s.number, 0)
    low, high = row.tokens_per_s_interval.low.number, row.tokens_per_s_interval.high.number
    text += "" if low is None or high is None else f" [{low:.0f}, {high:.0f}]"
    return text + ("" if row.fits.value else " (does not fit)")


def _best(row: AdvisedBatch) -> str:
    return f"{times(row.best_draft_speedup.number)} at {row.best_draft_length.value}"


#: Numbers of a batch, in order.
BATCH_COLUMNS: tuple[Column[AdvisedBatch], ...] = read_columns(
    Path(__file__).with_name("columns.csv"),
    words={
        "best_draft_speedup": _best,
        "tree.speedup_vs_stored_ar": _tree,
        "probability_pays": _chance,
        "tokens_per_s": _rate,
        "cycle_s": limits_in_words,
    },
)

#: Behind the context, where there are several.
_BATCH = Column[AdvisedBatch]("batch", "sequences", lambda row: given(row.batch), 0)


#: Engine whose command is shown where none was asked for, and titles of those that can be.
_TITLES = {
    "vllm": "vLLM",
    "vllm-2025": "vLLM",
    "sglang": "SGLang",
    "llama.cpp": "llama.cpp",
    "llama.cpp-metal": "llama.cpp",
    "mlx": "MLX",
    "mlx-cuda": "MLX",
}


_SHOWN = "vLLM"


def _at_contexts(results: Sequence[AdviseResult]) -> list[tuple[AdviseResult, str]]:
    """Each result with " at 8,192 cached tokens", or with nothing where all are of one context."""
    contexts = [result.workload.context_tokens.value for result in results]
    words = (
        [f" at {context:,} cached tokens" for context in contexts] if len(set(contexts)) > 1 else [""] * len(results)
    )
    return list(zip(results, words, strict=True))


def title_in_words(result: AdviseResult, at: str = "") -> str:
    """What a table or a figure of the advice shows. Args: at: which context, as of `_at_contexts`."""
    return f"{result.architecture} on {result.device}: speculation with {result.draft.name}, by batch{at}"


def acceptance_in_words(result: AdviseResult) -> str:
    """Which acceptance, and of what it is."""
    return acceptance_line(result.draft.conditional, result.draft.acceptance_source)


def advice_in_words(result: AdviseResult, at: str = "") -> str:
    """Whether to speculate on this device, up to which batch, and what that gains at most."""
    where = f"{result.architecture} on {result.device}{at}" + (f" ({result.release})" if result.release else "")
    paying = [row for row in result.by_batch if row.draft_length.value]
    absent = [str(row.batch) for row in result.by_batch if row.fits.value is False]
    room = f" There is no memory for batch {', '.join(absent)}." if absent else ""
    in_memory = lambda rows: [row for row in rows if row.fits.value is not False] or rows
    if not paying:
        best = max(in_memory(result.by_batch), key=lambda row: row.best_draft_speedup.number or 0.0)
        return (
            f"{where}: do not speculate with {result.draft.name}. Its best is {times(best.best_draft_speedup.number)}"
            f"{interval_in_words(best.best_draft_interval, times)} at batch {best.batch}.{room}"
        )
    best = max(in_memory(paying), key=lambda row: row.speedup_vs_stored_ar.known)
    gain = f"{times(best.speedup_vs_stored_ar.number)}{interval_in_words(best.interval, times)}"
    said = f"{where}: speculate with {result.draft.name}: {schedule_in_words(result.schedule)}"
    return f"{said}. At batch {best.batch} it decodes {gain} as fast as without a draft.{room}"


def schedule_in_words(schedule: list[ScheduleRange]) -> str:
    """Draft length by batch; the notes of a result say what a draft that is loaded and does not draft takes."""
    loaded = any(each.draft_length.known for each in schedule)
    words, none = [], "no draft, which is not free while one is loaded" if loaded else "no draft"
    for each in schedule:
        first, last, length = each.first.known, each.last.known, each.draft_length.known
        at = f"batch {first}" if first == last else f"batch {first} to {last}"
        words.append(f"{at}: {(f'{length} token' + 's' * (length != 1)) if length else none}")
    return "; ".join(words)


def caption(result: AdviseResult, at: str = "") -> list[str]:
    """What the table's numbers rest on, a line per remark."""
    chances = result.draft.conditional
    few = ", ".join(fixed(chance, 2) for chance in (chances.value or [])[:4])
    more = ", ..." if len(chances.value or []) > 4 else ""
    single = result.single_draft_length.value
    fit = " that fit" if len({row.fits.value for row in result.by_batch}) > 1 else ""
    lines = [
        f"draft {result.draft.name}, priced as {result.draft.priced_as}; accepted by position {few}{more} ({chances.status}); "
        "the rest: predicted",
        f"one draft length for all these batches{fit}{at}: {single or 'none pays on average'}",
    ]
    if any(row.tree for row in result.by_batch):
        branches = ", ".join(fixed(chance, 2) for chance in result.draft.branch_acceptance.known)
        better = [f"{row.batch}" for row in result.by_batch if row.tree and row.tree.pays.value]
        where = f"faster than any chain at batch {', '.join(better)}" if better else "faster than a chain at no batch"
        lines.append(f"trees, further tokens accepted with probabilities {branches} (input){at}: {where}")
    lines.append(
        f"in brackets: {result.interval_statement}"
        if result.interval_statement
        else "no intervals: no errors of the device's times are known, and acceptance was given without --acceptance-cycles"
    )
    return lines


def command_lines(result: AdviseResult, at: str = "") -> list[str]:
    """How the engine that was asked for is started, or vLLM where none was, to copy; nothing where there is no command."""
    title = _shown_title(result)
    shown = result.commands.get(title)
    return [] if shown is None else [f"{title}, for {result.device}{at}:", *shown.splitlines()]


def without_command(result: AdviseResult) -> list[str]:
    """Why there is no command; nothing where there is one."""
    title, kind = _shown_title(result), result.draft.kind
    if not result.speculate.value:
        return [f"{result.device}: start the engine without a draft"]
    if title in result.commands:
        return []
    if not result.commands and kind not in SERVED_DRAFTS:
        return [
            f"{result.device}: no engine supports the draft {result.draft.name} by itself; jaxspec export writes one from a "
            "run whose scheme keeps the target as it is"
        ]
    others = f"; engines/ has the settings of {', '.join(result.commands)}" if result.commands else ""
    if title not in _TITLES.values():
        return [f"{result.device}: no command of {title} is known here{others}"]
    # vLLM takes every kind of draft, so that without it the target is a GGUF file.
    if "vLLM" not in result.commands and title != "llama.cpp":
        return [f"{result.device}: no command of {title} for GGUF files is known here{others}"]
    return [f"{result.device}: {title} has no draft of kind {kind}{others}"]


def _shown_title(result: AdviseResult) -> str:
    """The engine that was asked for, by its title where commands of it are known; vLLM where none was."""
    asked = None if result.engine is None else result.engine.name
    return _SHOWN if asked is None else _TITLES.get(asked, asked)


#: What operators wait for -> colour; a draft's are hatched.
_COLOURS = {
    "arithmetic": BLUE,
    "memory": ORANGE,
    "decoding of weights": PURPLE,
    "exchange": YELLOW,
    "launches": SKY,
    "engine": VERMILLION,
    "other devices": GREEN,
}


def _batches(axes: Axes, result: AdviseResult) -> None:
    batches = [row.batch for row in result.by_batch]
    if min(batches) < max(batches):
        axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.minorticks_off()
    axes.set_xlabel("sequences decoded together")


@styled
def gain_figure(result: AdviseResult, at: str = "") -> Figure:
    """Speedup of the best draft at every batch, with its interval and its length; 1 is decoding without a draft."""
    figure = ShownFigure(figsize=(WIDTH_INCHES, 4.4), layout="constrained")
    axes = figure.subplots()
    rows = result.by_batch
    batches = [row.batch for row in rows]
    best = [row.best_draft_speedup.known for row in rows]
    ends = [(row.best_draft_interval.low.number, row.best_draft_interval.high.number) for row in rows]
    lows = [value if low is None else low for value, (low, _) in zip(best, ends, strict=True)]
    highs = [value if high is None else high for value, (_, high) in zip(best, ends, strict=True)]
    if result.interval_covers:
        axes.fill_between(batches, lows, highs, color=GREEN, alpha=0.25, linewidth=0, label="90 % interval")
    axes.plot(batches, best, marker="o", color=GREEN, label="best draft length")
    single = result.single_draft_length.value
    if single:
        fixed = [row.speedups.known[single - 1] for row in rows]
        axes.plot(batches, fixed, color=BLUE, linestyle="--", label=f"{single} tokens at every batch")
    axes.axhline(1.0, color=INK, linewidth=0.9, linestyle=":")
    for row, high in zip(rows, highs, strict=True):
        text = str(row.draft_length.value or "no draft")
        axes.annotate(text, (row.batch, high), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=9)
    _batches(axes, result)
    axes.set_ylim(limits_from_zero([1.0, *highs], room=1.15))
    axes.set_ylabel("speedup over decoding without a draft")
    axes.set_title(title_in_words(result, at), fontsize=10, loc="left")
    axes.grid(True)
    axes.legend(loc="lower left")
    return figure


@styled
def limits_figure(result: AdviseResult) -> Figure:
    """Share of a cycle's time by what its operators wait for, at every batch with the chosen draft length."""
    figure = ShownFigure(figsize=(WIDTH_INCHES, 4.0), layout="constrained")
    axes = figure.subplots()
    rows, places = result.by_batch, list(range(len(result.by_batch)))
    by_row = [row.time_by_cause.known for row in rows]
    names = sorted(
        {name for one in by_row for name in one}, key=lambda name: -max(one.get(name, 0.0) for one in by_row)
    )
    bottoms = [0.0] * len(rows)
    for name in names:
        part, _, cause = name.rpartition(": ")
        totals = [sum(one.values()) for one in by_row]
        heights = [one.get(name, 0.0) / total for one, total in zip(by_row, totals, strict=True)]
        if max(heights) < 0.005:
            continue
        hatch = "//" if part == "draft" else None
        axes.bar(
            places, heights, bottom=bottoms, color=_COLOURS.get(cause, BLACK), edgecolor=PAPER, hatch=hatch, label=name
        )
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    for place, row in zip(places, rows, strict=True):
        text = f"{row.cycle_s.known / MILLI:.3g} ms"
        axes.annotate(text, (place, 1.0), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=8)
    axes.set_xticks(places, [f"{row.batch}\n({row.draft_length.value or 'no draft'})" for row in rows])
    axes.set(xlabel="sequences decoded together (draft length)", ylabel="share of a cycle", ylim=(0, 1.1))
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def advice_table(results: Sequence[AdviseResult], title: str | None = None) -> Table:
    """A row per batch, and per context where there are several; those that do not fit the device are dim.

    Args:
        results: of one device.
        title: in place of the advice in words.
    """
    each = _at_contexts(results)
    lines = dict.fromkeys(line for alike in zip(*(caption(*one) for one in each), strict=True) for line in alike)
    table = Table("\n".join(advice_in_words(*one) for one in each) if title is None else title, "\n".join(lines))
    rows = [row for result in results for row in result.by_batch]
    dim = lambda row: None if row.fits.value else "dim"
    if len(results) == 1:
        return fill(table, BATCH_COLUMNS, ((str(row.batch), row) for row in rows), dim, corner="batch", side="right")
    named = ((f"{row.context_tokens:,}", row) for row in rows)
    return fill(table, (_BATCH, *BATCH_COLUMNS), named, dim, corner="context", side="right")


#: Numbers of a batch that a frame has, beside those of its own columns.
_FRAME = ("draft_length", "tokens_per_cycle", "speedup_vs_bf16_ar", "speedup_vs_stored_ar", "tokens_per_s")


def points(result: AdviseResult) -> dict[str, list[Any]]:
    """Columns of `StudyResults.to_frame`: main numbers of a batch, in SI."""
    rows = result.by_batch
    columns: dict[str, list[Any]] = {"device": [result.device] * len(rows), "batch": [row.batch for row in rows]}
    columns["context_tokens"] = [row.context_tokens for row in rows]
    columns |= {name: [getattr(row, name).value for row in rows] for name in _FRAME}
    columns["token_s"] = [row.batch / row.tokens_per_s.known for row in rows]
    chances = [row.probability_pays.number for row in rows]
    columns["probability_pays"] = [math.nan if chance is None else chance for chance in chances]
    return columns | {"fits": [row.fits.value for row in rows], "bound": [_bound(row) for row in rows]}


def _bound(row: AdvisedBatch) -> str:
    """The cause that most of a cycle's time goes to, in draft and target together."""
    causes: dict[str, float] = {}
    for name, seconds in (row.time_by_cause.value or {}).items():
        cause = name.rpartition(": ")[2]
        causes[cause] = causes.get(cause, 0.0) + seconds
    return max(causes, key=lambda cause: causes[cause], default=NOT_KNOWN)


def figures(result: AdviseResult, directory: Path | None = None) -> Drawings:
    """The page's figures of one device by name."""
    return _figures(result)


def _figures(result: AdviseResult, at: str = "") -> Drawings:
    return {"gain": lambda: gain_figure(result, at), "limits": lambda: limits_figure(result)}


def shown(run: tuple[Sequence[AdviseResult], RunDirectory]) -> Shown:
    """Tables for the terminal, from what `advise` returned."""
    results, directory = run
    lines = dict.fromkeys(line for result in results for line in without_command(result))
    tables = [advice_table(same) for same in by_device(results)]
    return dataclasses.replace(
        shown_run(run, tables, [*lines, *note_lines(results)]),
        files=f"page: {directory.path / 'report.html'}; engines' settings: {directory.path / 'engines'}",
        commands=[line for same in by_device(results) for one in _at_contexts(same) for line in command_lines(*one)],
        first=list(dict.fromkeys(map(acceptance_in_words, results))),
    )


_PAGE = Page.read(__file__)


def write_advice(results: Sequence[AdviseResult], directory: Path) -> Path:
    """Write the page and its figures into a run directory; see `write_page`."""
    return write_page(_PAGE, [_section(same) for same in by_device(results)], directory)


def _section(results: Sequence[AdviseResult]) -> Section:
    """A device at all its contexts."""
    each = _at_contexts(results)
    last = lambda result: f"-{result.workload.context_tokens.value}" if len(results) > 1 else ""
    drawings = {f"{name}{last(result)}": draw for result, at in each for name, draw in _figures(result, at).items()}
    remarks = (line for result in results for line in (acceptance_in_words(result), *result.notes))
    return Section(
        result=results[0],
        title=title_in_words(results[0]) + (" and context" if len(results) > 1 else ""),
        headlines=[advice_in_words(*one) for one in each],
        pays=any(result.speculate.value for result in results),
        tables=[advice_table(results, title="")],
        figures=drawings,
        blocks={f"{title}{at}": text for result, at in each for title, text in result.commands.items()},
        remarks=list(dict.fromkeys(remarks)),
    )
