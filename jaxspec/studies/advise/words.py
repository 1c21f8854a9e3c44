"""The advice in sentences."""

from __future__ import annotations

from jaxspec.report.columns import interval_in_words
from jaxspec.report.formatting import NOT_KNOWN, fixed, times
from jaxspec.studies.advise.result import AdviseResult, ScheduleRange
from jaxspec.studies.known_acceptance import acceptance_line

__all__ = [
    "acceptance_in_words",
    "advice_in_words",
    "caption",
    "command_lines",
    "schedule_in_words",
    "title_in_words",
    "without_command",
]

#: Engine whose command is shown where none was asked for, and titles of those that can be.
_TITLES = {"vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp"}
_SHOWN = "vLLM"


def title_in_words(result: AdviseResult) -> str:
    """What a table or a figure of the advice shows."""
    return f"{result.architecture} on {result.device}: speculation with {result.draft.name}, by batch"


def acceptance_in_words(result: AdviseResult) -> str:
    """Which acceptance, and of what it is."""
    return acceptance_line(result.draft.conditional, result.draft.acceptance_source)


def advice_in_words(result: AdviseResult) -> str:
    """Whether to speculate on this device, up to which batch, and what that gains at most."""
    where = f"{result.architecture} on {result.device}" + (f" ({result.release})" if result.release else "")
    paying = [row for row in result.by_batch if row.draft_length.value]
    absent = [str(row.batch) for row in result.by_batch if row.fits.value is False]
    room = f" There is no memory for batch {', '.join(absent)}." if absent else ""
    if not paying:
        best = max(result.by_batch, key=lambda row: row.best_draft_speedup.number or 0.0)
        return (
            f"{where}: do not speculate with {result.draft.name}. Its best is {times(best.best_draft_speedup.number)}"
            f"{interval_in_words(best.best_draft_interval, times)} at batch {best.batch}.{room}"
        )
    best = max(
        [row for row in paying if row.fits.value is not False] or paying, key=lambda row: row.speedup_vs_stored_ar.known
    )
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


def caption(result: AdviseResult) -> list[str]:
    """What the table's numbers rest on, a line per remark."""
    chances = result.draft.conditional
    few = ", ".join(fixed(chance, 2) for chance in (chances.value or [])[:4])
    more = ", ..." if len(chances.value or []) > 4 else ""
    single = result.single_draft_length.value
    lines = [
        f"draft {result.draft.name}, priced as {result.draft.priced_as}; accepted by position {few}{more} ({chances.status}); "
        "the rest: predicted",
        f"one draft length for all these batches: {single or 'none pays on average'}",
    ]
    if any(row.tree for row in result.by_batch):
        branches = ", ".join(fixed(chance, 2) for chance in result.draft.branch_acceptance.known)
        better = [f"{row.batch}" for row in result.by_batch if row.tree and row.tree.pays.value]
        where = f"faster than any chain at batch {', '.join(better)}" if better else "faster than a chain at no batch"
        lines.append(f"trees, further tokens accepted with probabilities {branches} (input): {where}")
    lines.append(
        f"in brackets: {result.interval_statement}"
        if result.interval_statement
        else "no intervals: no errors of the device's times are known, and acceptance was given without --acceptance-cycles"
    )
    return lines


def command_lines(result: AdviseResult) -> list[str]:
    """How the engine that was asked for is started, or vLLM, to copy; nothing where there is no command."""
    title = _shown_title(result)
    return [f"{title}, for {result.device}:", *result.commands[title].splitlines()] if title in result.commands else []


def without_command(result: AdviseResult) -> list[str]:
    """Why there is no command; nothing where there is one."""
    if result.speculate.value and not result.commands:
        return [
            f"{result.device}: no engine supports the draft {result.draft.name} by itself; jaxspec export writes one from a "
            "run whose scheme keeps the target as it is"
        ]
    if not result.commands:
        return [f"{result.device}: start the engine without a draft"]
    if (title := _shown_title(result)) not in result.commands:
        return [f"{result.device}: {title} has no draft of kind {result.draft.kind or NOT_KNOWN}"]
    return []


def _shown_title(result: AdviseResult) -> str:
    asked = None if result.engine is None else result.engine.name
    return _TITLES.get(asked or "", _SHOWN)
