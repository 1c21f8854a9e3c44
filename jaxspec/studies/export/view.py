"""What `jaxspec export` shows."""

from __future__ import annotations

from jaxspec.report.formatting import fixed, quantity, times
from jaxspec.report.terminal import Shown, Table
from jaxspec.studies.export.forms import where_priced
from jaxspec.studies.export.result import DecodedDraft, ExportResult


def shown(result: ExportResult) -> Shown:
    """The acceptance that carries over, and where the flags are."""
    size = quantity("_bytes", sum(result.files.values()))
    title, about = (
        (
            f"{result.directory}: draft of {result.target}, {size}",
            f"configuration {result.configuration} for {result.device}",
        )
        if result.format is None
        else (
            f"{result.directory}: {result.checkpoint} as {result.format}, {size}",
            f"target in {result.target_dtype}, draft in {result.draft_dtype}",
        )
    )
    table = Table(title, f"{about}; draft {result.draft_length.value} tokens per cycle")
    table.add_columns("decoding", "prompts", "alpha\ntoken", "tokens/cycle\ncounted")
    for name, draft in (("in the run", result.in_run), ("with a KV cache of its own, as engines do it", result.alone)):
        if draft.tokens_per_cycle.number is not None:
            table.add_row(name, str(draft.prompts.value), *_numbers(draft))
    if result.format is not None:
        commands = [content.rstrip() for name, content in result.engines.items() if name == "llama.cpp"]
        files = f"flags for {', '.join(result.engines)}: {result.directory}/README.md"
        return Shown(result.plain(), [table], _of_model(result), files, commands)
    notes = ["Engines read every weight whole: acceptance carries over to them, the predicted speed does not."]
    if result.checkpoint is not None:
        notes.append(
            f"Scheme {result.scheme} rounds the target: serve {result.target} ({result.target_dtype}), not {result.checkpoint}."
        )
    return Shown(
        result.plain(),
        [table],
        notes,
        f"flags for transformers, vLLM, SGLang and llama.cpp: {result.directory}/README.md",
    )


def _numbers(draft: DecodedDraft) -> tuple[str, str]:
    alpha, tokens = draft.acceptance.alpha_token.number, draft.tokens_per_cycle
    error = "" if tokens.standard_error is None else f" ± {fixed(tokens.standard_error, 3)}"
    return "" if alpha is None else fixed(alpha, 3), f"{fixed(tokens.number, 3)}{error}"


def _of_model(result: ExportResult) -> list[str]:
    """What is said of a model and its low-bit copy."""
    speedup = result.speedup_vs_stored_ar.number
    if speedup is None:
        return []
    on = where_priced(result)
    return [f"Predicted on {on}: {times(speedup)} the speed of the target in {result.target_dtype} without a draft."]
