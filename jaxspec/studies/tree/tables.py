"""The tables of `jaxspec tree`: what to verify at every context, on each device."""

from __future__ import annotations

from collections.abc import Sequence

from jaxspec.report.draft_columns import LARGEST_GAP
from jaxspec.report.formatting import NOT_KNOWN, fixed, times
from jaxspec.report.intervals import BRACKETS, statements
from jaxspec.report.terminal import Table
from jaxspec.report.titles import architecture_title, device_title, provenance
from jaxspec.results import Quantity
from jaxspec.studies.tree.columns import CONTEXT_COLUMNS
from jaxspec.studies.tree.result import ContextChoice, TreeResult

__all__ = [
    "chain_in_words",
    "choice_here",
    "intervals_in_words",
    "law_in_words",
    "proof_in_words",
    "schedule_in_words",
    "tree_headline",
    "tree_provenance",
    "tree_tables",
]


def tree_tables(results: Sequence[TreeResult]) -> list[Table]:
    """One table per device, a row per context, with the schedule, the law and the proof below."""
    return [_table(result) for result in results]


def _table(result: TreeResult) -> Table:
    table = Table(tree_headline(result), "\n".join(_caption(result)))
    table.add_column("context", justify="right")
    for column in CONTEXT_COLUMNS:
        table.add_column(column.heading, justify="right")
    here = result.workload.context_tokens.number
    for row in result.contexts:
        fits = row.fits.value
        table.add_row(
            f"{row.context_tokens:,}" + ("" if fits else " (does not fit)"),
            *(column.text(row) for column in CONTEXT_COLUMNS),
            style=None if not fits else "bold" if row.context_tokens == here else None,
        )
    return table


def choice_here(result: TreeResult) -> ContextChoice | None:
    """What is fastest at the workload's own context; None where nothing was decided there."""
    here = result.workload.context_tokens.number
    return next((row.decision for row in result.contexts if row.context_tokens == here), None)


def tree_headline(result: TreeResult) -> str:
    """The device's answer at the workload's context in a sentence."""
    where = f"{architecture_title(result)} on {device_title(result)}"
    decision, draft = choice_here(result), result.draft.name
    if decision is None:
        return f"{where}: nothing was decided."
    at = f"{where}, context {result.workload.context_tokens.value:,.0f}"
    if not decision.speculate.value:
        best = decision.best_tree
        return (
            f"{at}: do not speculate. The best tree of draft {draft} verifies {best.verification_length.value} tokens and "
            f"reaches {times(best.speedup_vs_stored_ar.number)} of plain decoding of what is stored."
        )
    return (
        f"{at}: verify {decision.verification_length.value} tokens of draft {draft}. That is predicted to decode "
        f"{times(decision.speedup_vs_bf16_ar.number)} as fast as 16-bit autoregressive decoding and "
        f"{times(decision.speedup_vs_stored_ar.number)} as fast as that of what is stored."
    )


def _caption(result: TreeResult) -> list[str]:
    draft, search = result.draft, result.search
    return [
        f"AR: do not speculate. {result.curve[0].tokens_per_cycle.status if result.curve else 'measured'}: tokens per cycle; "
        "predicted: verify tokens, tokens/s, speedups",
        f"draft {draft.name}, priced as {draft.priced_draft.statement}; "
        f"trees of up to {search.nodes.value} nodes, depth {search.depth.value}, search {search.name}",
        *_more_nodes(result),
        *(f"{BRACKETS}{words}" for words in intervals_in_words(result)),
        *(words for words in [chain_in_words(result)] if words),
        schedule_in_words(result),
        law_in_words(result),
        proof_in_words(result),
        tree_provenance(result),
    ]


def tree_provenance(result: TreeResult) -> str:
    """Where acceptance comes from and what was priced."""
    return provenance(result) if result.proof.tree else str(result.statement)


def _more_nodes(result: TreeResult) -> list[str]:
    """A hint where the search ended before its trees did."""
    largest = (result.search.nodes.value or 0) + 1
    at_end = [
        f"{row.context_tokens:,}"
        for row in result.contexts
        if row.decision.speculate.value and row.decision.verification_length.value == largest
    ]
    return [f"the largest tree is the best one at context {', '.join(at_end)}: more --nodes may pay"] if at_end else []


def chain_in_words(result: TreeResult) -> str:
    """Whether the best tree beats the best chain at the workload's context; empty where either is not known."""
    decision = choice_here(result)
    if decision is None:
        return ""
    tree, chain = decision.best_tree, decision.best_chain
    ours, theirs = tree.tokens_per_s.number, chain.tokens_per_s.number
    if ours is None or theirs is None:
        return ""
    what = f"a tree of {(tree.verification_length.value or 1) - 1} nodes"
    other = f"a chain of {(chain.verification_length.value or 1) - 1}"
    if ours <= theirs:
        return f"no tree beats a chain: {what} decodes {times(ours / theirs, 3)} as fast as {other} (predicted)"
    return f"{what} decodes {times(ours / theirs, 3)} as fast as {other} (predicted)"


def intervals_in_words(result: TreeResult) -> list[str]:
    """What the intervals hold; nothing where there are none."""
    return statements(row.decision.best_tree.intervals for row in result.contexts)


def schedule_in_words(result: TreeResult) -> str:
    """What to use as the context grows."""
    said = [
        (f"from {step.from_context_tokens.value:,.0f} " if i else "")
        + ("AR" if step.verification_length.value == 1 else f"{step.verification_length.value} tokens")
        for i, step in enumerate(result.schedule.entries)
    ]
    text = f"as the context grows (predicted): {', '.join(said)}"
    generation = result.schedule.generation
    if generation is None or (gain := generation.speedup_vs_best_fixed.number) is None:
        return text
    return f"{text}; {times(gain, 3)} the speed of the best single choice over all of it"


def law_in_words(result: TreeResult) -> str:
    """The law of tokens per cycle with its quality."""
    law = result.law
    if law is None:
        return "law of tokens per cycle: the curve has too few different points"
    fitted = ", ".join(map(str, law.fitted_lengths))
    bound = "; C lies on its bound, the points prefer another form" if law.shift_at_bound else ""
    return (
        f"tokens per cycle of x verified tokens (calibrated on x = {fitted}): {fixed(law.intercept.number, 3)} + "
        f"{fixed(law.log_slope.number, 3)} ln(x − {fixed(law.shift.number, 2)}), R² {fixed(law.r_squared.number, 4)} on all "
        f"x{bound}"
    )


def proof_in_words(result: TreeResult) -> str:
    """Counted tokens per cycle beside the predicted ones, and whether decoding was lossless."""
    proof, lossless = result.proof, result.lossless
    if proof.tree is None:
        return "proof: none, since nothing was decoded"
    gap = proof.tokens_per_cycle_gap_in_standard_errors.number
    alarm = "" if gap is None or abs(gap) <= LARGEST_GAP else f" DEFECT: {abs(gap):.1f} standard errors apart"
    counted = proof.tokens_per_cycle_counted
    same = ", every cycle as predicted" if proof.same_cycles.value else ""
    return (
        f"proof: {fixed(proof.verification_length.number, 0)} tokens ({proof.tree or NOT_KNOWN}) decoded "
        f"{fixed(lossless.prompts.number, 0)} held-out prompts: {fixed(counted.number, 3)} ± "
        f"{fixed(Quantity(counted.standard_error).number, 3)} tokens per cycle (measured), "
        f"{fixed(proof.tokens_per_cycle_predicted.number, 3)} predicted{same}{alarm}; "
        f"{fixed(lossless.mismatches.number, 0)} of {fixed(lossless.tokens.number, 0)} tokens differ from autoregressive "
        "greedy output"
    )
