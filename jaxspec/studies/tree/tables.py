"""The tables of `jaxspec tree`: what to verify at every context, on each device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxspec.report.entries import (
    LARGEST_GAP,
    Entry,
    architecture_title,
    device_title,
    gap_in_standard_errors,
    lookup,
    number,
    provenance,
)
from jaxspec.report.formatting import NOT_KNOWN, fixed, times
from jaxspec.report.terminal import Table

__all__ = ["law_in_words", "proof_in_words", "schedule_in_words", "tree_headline", "tree_tables"]


def tree_tables(entries: Sequence[Entry]) -> list[Table]:
    """One table per device, a row per context, with the schedule, the law and the proof below."""
    return [_table(entry) for entry in entries]


def _table(entry: Entry) -> Table:
    table = Table(tree_headline(entry), "\n".join(_caption(entry)))
    headings = ("context", "verify\ntokens", "tokens\nper cycle", "tokens/s\none sequence", "speedup vs\nbf16 AR")
    for heading in (*headings, "speedup vs\nstored AR", "best tree\nvs stored AR"):
        table.add_column(heading, justify="right")
    here = number(entry, "workload", "context_tokens")
    for row in lookup(entry, "contexts") or []:
        found = row["decision"]
        table.add_row(
            f"{row['context_tokens']:,}" + ("" if row["fits"] else " (does not fit)"),
            length_in_words(found),
            fixed(number(found, "tokens_per_cycle"), 2),
            fixed(number(found, "tokens_per_s"), 1),
            *(times(number(found, f"speedup_vs_{baseline}_ar")) for baseline in ("bf16", "stored")),
            times(number(found, "best_tree", "speedup_vs_stored_ar")),
            style=None if not row["fits"] else "bold" if row["context_tokens"] == here else None,
        )
    return table


def length_in_words(decision: Any) -> str:
    """How many tokens to verify, or that plain decoding is faster."""
    return str(decision["verification_length"]) if decision["speculate"] else "AR"


def tree_headline(entry: Entry) -> str:
    """The device's answer at the workload's context in a sentence."""
    where = f"{architecture_title(entry)} on {device_title(entry)}"
    here = number(entry, "workload", "context_tokens")
    found = next((row for row in lookup(entry, "contexts") or [] if row["context_tokens"] == here), None)
    if found is None:
        return f"{where}: nothing was decided."
    decision, draft = found["decision"], lookup(entry, "draft", "name")
    at = f"{where}, context {here:,.0f}"
    if not decision["speculate"]:
        best = decision["best_tree"]
        return (
            f"{at}: do not speculate. The best tree of draft {draft} verifies {best['verification_length']} tokens and "
            f"reaches {times(best['speedup_vs_stored_ar'])} of plain decoding of what is stored."
        )
    return (
        f"{at}: verify {decision['verification_length']} tokens of draft {draft}. That is predicted to decode "
        f"{times(decision['speedup_vs_bf16_ar'])} as fast as 16-bit autoregressive decoding and "
        f"{times(decision['speedup_vs_stored_ar'])} as fast as that of what is stored."
    )


def _caption(entry: Entry) -> list[str]:
    search = lookup(entry, "search") or {}
    return [
        "AR: do not speculate. measured: tokens per cycle; predicted: verify tokens, tokens/s, speedups",
        f"draft {lookup(entry, 'draft', 'name')}, priced as {lookup(entry, 'draft', 'priced_draft', 'statement')}; "
        f"trees of up to {search.get('nodes')} nodes, depth {search.get('depth')}, search {search.get('name')}",
        *_more_nodes(entry),
        schedule_in_words(entry),
        law_in_words(entry),
        proof_in_words(entry),
        provenance(entry),
    ]


def _more_nodes(entry: Entry) -> list[str]:
    """A hint where the search ended before its trees did."""
    largest = (number(entry, "search", "nodes") or 0) + 1
    at_end = [
        f"{row['context_tokens']:,}"
        for row in lookup(entry, "contexts") or []
        if row["decision"]["speculate"] and row["decision"]["verification_length"] == largest
    ]
    return [f"the largest tree is the best one at context {', '.join(at_end)}: more --nodes may pay"] if at_end else []


def schedule_in_words(entry: Entry) -> str:
    """What to use as the context grows."""
    found = lookup(entry, "schedule", "entries") or []
    said = [
        (f"from {row['from_context_tokens']:,.0f} " if i else "")
        + ("AR" if row["verification_length"] == 1 else f"{row['verification_length']} tokens")
        for i, row in enumerate(found)
    ]
    text = f"as the context grows (predicted): {', '.join(said)}"
    gain = number(entry, "schedule", "generation", "speedup_vs_best_fixed")
    return text if gain is None else f"{text}; {times(gain, 3)} the speed of the best single choice over all of it"


def law_in_words(entry: Entry) -> str:
    """The law of tokens per cycle with its quality."""
    law = lookup(entry, "law")
    if not law:
        return "law of tokens per cycle: the curve has too few different points"
    a, b, c = (number(law, name) for name in ("intercept", "log_slope", "shift"))
    fitted = ", ".join(map(str, law["fitted_lengths"]))
    bound = "; C lies on its bound, the points prefer another form" if law["shift_at_bound"] else ""
    return (
        f"tokens per cycle of x verified tokens (calibrated on x = {fitted}): {fixed(a, 3)} + {fixed(b, 3)} "
        f"ln(x − {fixed(c, 2)}), R² {fixed(number(law, 'r_squared'), 4)} on all x{bound}"
    )


def proof_in_words(entry: Entry) -> str:
    """Counted tokens per cycle beside the predicted ones, and whether decoding was lossless."""
    proof, lossless = lookup(entry, "proof") or {}, lookup(entry, "lossless") or {}
    gap = gap_in_standard_errors(proof)
    alarm = "" if gap is None or gap <= LARGEST_GAP else f" DEFECT: {gap:.1f} standard errors apart"
    error = number(proof, "tokens_per_cycle_standard_error")
    same = ", every cycle as foretold" if proof.get("same_cycles") else ""
    mismatches = number(lossless, "mismatches")
    return (
        f"proof: {fixed(number(proof, 'verification_length'), 0)} tokens ({proof.get('tree', NOT_KNOWN)}) decoded "
        f"{fixed(number(lossless, 'prompts'), 0)} held-out prompts: {fixed(number(proof, 'tokens_per_cycle_counted'), 3)} ± "
        f"{fixed(error, 3)} tokens per cycle (measured), {fixed(number(proof, 'tokens_per_cycle_predicted'), 3)} predicted"
        f"{same}{alarm}; {fixed(mismatches, 0)} of {fixed(number(lossless, 'tokens'), 0)} tokens differ from autoregressive "
        "greedy output"
    )
