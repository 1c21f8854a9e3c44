"""Speedup and best verification length along the context."""

from __future__ import annotations

from matplotlib.figure import Figure

from jaxspec.report.figures.style import BLUE, GREEN, INK, PURPLE, VERMILLION, legend_below, new_figure, styled
from jaxspec.report.titles import provenance
from jaxspec.studies.tree.result import TreeResult

__all__ = ["contexts_figure"]

#: Ratio of two contexts whose labels would touch.
_NEAR = 1.3


@styled
def contexts_figure(result: TreeResult) -> Figure | None:
    """Above: predicted speedups of what was decided; below: how many tokens to verify."""
    rows = result.contexts
    if not rows:
        return None
    figure = new_figure("What pays as the context grows", provenance(result), height_inches=5.4)
    speed, length = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    contexts = [row.context_tokens for row in rows]
    decisions = [row.decision for row in rows]
    for axes in (speed, length):
        axes.grid(True)
    vs_bf16 = [found.speedup_vs_bf16_ar.known for found in decisions]
    vs_stored = [found.speedup_vs_stored_ar.known for found in decisions]
    speed.plot(contexts, vs_bf16, color=BLUE, marker="o", label="decision over 16-bit AR")
    speed.plot(contexts, vs_stored, color=GREEN, marker="s", label="decision over stored AR")
    speed.plot(
        contexts,
        [found.best_tree.speedup_vs_stored_ar.known for found in decisions],
        color=VERMILLION,
        marker="x",
        linestyle=":",
        label="best tree over stored AR, whether it pays or not",
    )
    chains = [found.best_chain.speedup_vs_stored_ar.number for found in decisions]
    if None not in chains:
        label = "best chain over stored AR, whether it pays or not"
        speed.plot(contexts, chains, color=PURPLE, marker="+", linestyle="--", label=label)
    speed.axhline(1.0, color=INK, linewidth=0.9)
    speed.set_ylabel("speedup (predicted)")
    speed.set_ylim(bottom=0.0)
    verified = [found.verification_length.known for found in decisions]
    length.step(contexts, verified, where="mid", color=BLUE, alpha=0.5)
    for context, found, tokens in zip(contexts, decisions, verified):
        length.plot(context, tokens, marker="o", color=BLUE)
        said = str(tokens) if found.speculate.value else "AR"
        length.annotate(said, (context, tokens), (0, 7), textcoords="offset points", ha="center")
    length.set_ylabel("verified tokens")
    length.set_xlabel("context (cached tokens)")
    length.set_ylim(0, max(verified) * 1.25 + 2)
    if contexts[0] > 0:
        length.set_xscale("log", base=2)
    else:  # which has no logarithm
        length.set_xscale("symlog", base=2, linthresh=min([c for c in contexts if c > 0], default=1))
    length.margins(x=0.06)
    length.set_xticks(contexts, _apart(contexts))
    length.minorticks_off()
    legend_below(figure, speed, columns=2)
    return figure


def _apart(contexts: list[int]) -> list[str]:
    """Labels; none where the one before is too near to be told apart."""
    labels, last = [], None
    for context in contexts:
        free = last is None or context >= _NEAR * last
        labels.append(f"{context:,}" if free else "")
        last = context if free else last
    return labels
