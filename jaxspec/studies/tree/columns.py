"""Numbers of a context that are shown, on the page and in the terminal."""

from __future__ import annotations

from jaxspec.report.columns import Column
from jaxspec.report.formatting import fixed, times
from jaxspec.results import predicted
from jaxspec.results.intervals import NO_ENDS, Ends, HeadlineIntervals
from jaxspec.studies.tree.result import ContextChoice, ContextRow

__all__ = ["CONTEXT_COLUMNS", "TOKENS_PER_S", "length_in_words"]


def length_in_words(decision: ContextChoice) -> str:
    """How many tokens to verify, or that plain decoding is faster."""
    return str(decision.verification_length.value) if decision.speculate.value else "AR"


def _held(row: ContextRow) -> HeadlineIntervals:
    """Intervals of the tree, where it is what pays; empty ones elsewhere."""
    held = row.decision.best_tree.intervals
    return held if held is not None and row.decision.speculate.value else HeadlineIntervals()


def _rate(row: ContextRow) -> Ends:
    """Interval of the speed: of the tree where it pays, of plain decoding elsewhere."""
    held = row.decision.best_tree.intervals
    if held is None or row.decision.speculate.value:
        return _held(row).tokens_per_s
    plain = held.ar_bf16_s if row.ar_bf16_s.known < row.ar_stored_s.known else held.ar_stored_s
    if plain.low.number is None or plain.high.number is None:
        return NO_ENDS
    return Ends(low=predicted(1.0 / plain.high.known), high=predicted(1.0 / plain.low.known))


#: Speed, with which a page says that a context does not fit.
TOKENS_PER_S = Column[ContextRow](
    "tokens/s",
    "tokens/s\none sequence",
    "of one sequence",
    lambda row: row.decision.tokens_per_s,
    lambda value: fixed(value, 1),
    interval=_rate,
)

#: All of them, in order.
CONTEXT_COLUMNS = (
    Column[ContextRow](
        "verified tokens",
        "verify\ntokens",
        "per cycle, the root included; AR: do not speculate",
        lambda row: row.decision.verification_length,
        lambda value: fixed(value, 0),
        words=lambda row: length_in_words(row.decision),
    ),
    Column[ContextRow](
        "tokens per cycle",
        "tokens\nper cycle",
        "on held-out prompts",
        lambda row: row.decision.tokens_per_cycle,
        lambda value: fixed(value, 2),
    ),
    TOKENS_PER_S,
    Column[ContextRow](
        "speedup vs bf16 AR",
        "speedup vs\nbf16 AR",
        "over autoregressive decoding of the uncompressed 16-bit model",
        lambda row: row.decision.speedup_vs_bf16_ar,
        times,
        interval=lambda row: _held(row).speedup_vs_bf16_ar,
    ),
    Column[ContextRow](
        "speedup vs stored AR",
        "speedup vs\nstored AR",
        "over autoregressive decoding of the stored format",
        lambda row: row.decision.speedup_vs_stored_ar,
        times,
        interval=lambda row: _held(row).speedup_vs_stored_ar,
    ),
    Column[ContextRow](
        "best tree vs stored AR",
        "best tree\nvs stored AR",
        "whether or not it pays",
        lambda row: row.decision.best_tree.speedup_vs_stored_ar,
        times,
        interval=lambda row: row.decision.best_tree.intervals and row.decision.best_tree.intervals.speedup_vs_stored_ar,
    ),
    Column[ContextRow](
        "best chain vs stored AR",
        "best chain\nvs stored AR",
        "the draft's likeliest tokens in a row, whether or not it pays",
        lambda row: row.decision.best_chain.speedup_vs_stored_ar,
        times,
        interval=lambda row: (
            row.decision.best_chain.intervals and row.decision.best_chain.intervals.speedup_vs_stored_ar
        ),
    ),
)
