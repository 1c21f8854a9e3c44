"""What `jaxspec tree` shows: what to verify at every context, on a terminal and on a page with figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxspec.report.columns import BRACKETS, Column, Grid, fill, read_columns, statements
from jaxspec.report.configurations import LARGEST_GAP
from jaxspec.report.figure_style import (
    BLUE,
    GREEN,
    INK,
    PAPER,
    PURPLE,
    VERMILLION,
    legend_below,
    new_axes,
    new_figure,
    styled,
    text_colour_on,
)
from jaxspec.report.formatting import NOT_KNOWN, architecture_title, device_title, fixed, model_title, provenance, times
from jaxspec.report.page import Section, figures_of, network_section, network_settings, page_writer
from jaxspec.report.stopwatch import stopwatch_figure, stopwatch_tables
from jaxspec.report.terminal import Shown, Table, shown_run
from jaxspec.results import Quantity, predicted
from jaxspec.results.network_results import NO_ENDS, Ends, HeadlineIntervals
from jaxspec.runs.directory import RunDirectory
from jaxspec.studies.tree.result import ContextChoice, ContextRow, TreeResult


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


#: Numbers of a context, in order.
CONTEXT_COLUMNS: tuple[Column[ContextRow], ...] = read_columns(
    Path(__file__).with_name("columns.csv"),
    words={"decision.verification_length": lambda row: length_in_words(row.decision)},
    interval={
        "decision.tokens_per_s": _rate,
        "decision.speedup_vs_bf16_ar": lambda row: _held(row).speedup_vs_bf16_ar,
        "decision.speedup_vs_stored_ar": lambda row: _held(row).speedup_vs_stored_ar,
    },
)


def tree_tables(results: Sequence[TreeResult]) -> list[Table]:
    """One table per device, a row per context, with the schedule, the law and the proof below."""
    return [_table(result) for result in results]


def _table(result: TreeResult) -> Table:
    table = Table(tree_headline(result), "\n".join(_caption(result)))
    here = result.workload.context_tokens.number
    fits = lambda row: "" if row.fits.value else " (does not fit)"
    bold = lambda row: "bold" if row.fits.value and row.context_tokens == here else None
    rows = {f"{row.context_tokens:,}{fits(row)}": row for row in result.contexts}
    return fill(table, CONTEXT_COLUMNS, rows, bold, corner="context", side="right")


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
        provenance(result) if result.proof.tree else str(result.statement),
    ]


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
    vs_bf16 = [decision.speedup_vs_bf16_ar.known for decision in decisions]
    vs_stored = [decision.speedup_vs_stored_ar.known for decision in decisions]
    speed.plot(contexts, vs_bf16, color=BLUE, marker="o", label="decision over 16-bit AR")
    speed.plot(contexts, vs_stored, color=GREEN, marker="s", label="decision over stored AR")
    trees = [decision.best_tree.speedup_vs_stored_ar.known for decision in decisions]
    speed.plot(contexts, trees, "x:", color=VERMILLION, label="best tree over stored AR, whether it pays or not")
    chains = [decision.best_chain.speedup_vs_stored_ar.number for decision in decisions]
    if None not in chains:
        speed.plot(contexts, chains, "+--", color=PURPLE, label="best chain over stored AR, whether it pays or not")
    speed.axhline(1.0, color=INK, linewidth=0.9)
    speed.set_ylabel("speedup (predicted)")
    speed.set_ylim(bottom=0.0)
    verified = [decision.verification_length.known for decision in decisions]
    length.step(contexts, verified, where="mid", color=BLUE, alpha=0.5)
    for context, decision, tokens in zip(contexts, decisions, verified):
        length.plot(context, tokens, marker="o", color=BLUE)
        said = str(tokens) if decision.speculate.value else "AR"
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


@styled
def curve_figure(result: TreeResult) -> Figure | None:
    """The curve with one standard error up and down, the law with its interval, and the point that decoding counted."""
    rows = [row for row in result.curve if row.tokens_per_cycle.number is not None]
    if not rows:
        return None
    figure, axes = new_axes(
        "Tokens per cycle of growing trees",
        f"draft {result.draft.name} for {model_title(result)}, search {result.search.name}, "
        f"depth {result.search.depth.value}",
        height_inches=4.4,
    )
    lengths = [row.verification_length for row in rows]
    tokens = [row.tokens_per_cycle.known for row in rows]
    errors = [row.tokens_per_cycle.standard_error or 0.0 for row in rows]
    label = "held-out prompts ± one standard error (measured)"
    bars = {"elinewidth": 1.0, "capsize": 2.5, "zorder": 2}
    axes.errorbar(lengths, tokens, yerr=errors, fmt="o", markersize=4.5, color=BLUE, label=label, **bars)
    law = result.law
    if law is not None:
        low, high = law.lower.value or [], law.upper.value or []
        known = None not in (*low, *high)
        if known:
            axes.fill_between(lengths, low, high, color=VERMILLION, alpha=0.15, linewidth=0)
        interval = f", band: {100 * (law.confidence or 0):.0f} % interval" if known else ""
        label = f"A + B ln(x − C), R² {fixed(law.r_squared.number, 4)} (calibrated{interval})"
        axes.plot(lengths, law.tokens_per_cycle.known, color=VERMILLION, linewidth=1.6, zorder=3, label=label)
        by_length = dict(zip(lengths, tokens, strict=True))
        fitted = [x for x in law.fitted_lengths if x in by_length]
        ring = {"markersize": 9, "markerfacecolor": "none", "markeredgecolor": VERMILLION, "zorder": 4}
        axes.plot(fitted, [by_length[x] for x in fitted], "o", label="lengths that the law is fitted to", **ring)
    length, counted = result.proof.verification_length.number, result.proof.tokens_per_cycle_counted.number
    if length is not None and counted is not None:
        cross = {"markersize": 10, "markeredgewidth": 2.2, "color": INK, "zorder": 5}
        axes.plot(length, counted, "x", label="counted in decoding with this tree (measured)", **cross)
    axes.set(xlabel="verified tokens x, root included (tokens)", ylabel="tokens per cycle (tokens)")
    legend_below(figure, axes, columns=2)
    return figure


#: Most nodes on a level whose ranks can still be read.
_READABLE = 28


#: Most tokens of a tree are accepted seldom: by the square root they still differ.
_SCALE = PowerNorm(0.5, vmin=0.0, vmax=1.0)


def node_places(parent: list[int], rank: list[int]) -> np.ndarray:
    """A place for each node and, last, for the root: across, with parents over the middle of their children, and depth.

    Args:
        parent: of each node, −1 for the root, earlier nodes otherwise.
        rank: of each; siblings stand in this order from left to right.
    Returns:
        "node+1 2".
    """
    children: list[list[int]] = [[] for _ in range(len(parent) + 1)]
    for node, above in enumerate(parent):
        children[above].append(node)
    for siblings in children:
        siblings.sort(key=rank.__getitem__)
    place = np.zeros((len(parent) + 1, 2))
    for node, above in enumerate(parent):
        place[node, 1] = place[above, 1] + 1 if above >= 0 else 1
    order, stack = [], [len(parent)]
    while stack:  # root first, so that reversed, children come before their parents
        node = stack.pop()
        order.append(node)
        stack.extend(reversed(children[node]))
    leaves = [node for node in order if not children[node]]
    for i, node in enumerate(leaves):
        place[node, 0] = i
    for node in reversed(order):
        if children[node]:
            place[node, 0] = (place[children[node][0], 0] + place[children[node][-1], 0]) / 2
    return place


@styled
def drawing_figure(result: TreeResult) -> Figure | None:
    """The tree that decoded for proof, nodes coloured by how often they are accepted on held-out text."""
    length, growth = result.proof.verification_length.number, result.growth
    if length is None or growth is None or not growth.parent:
        return None
    nodes = int(length) - 1
    ranks, shares = growth.rank[:nodes], (growth.acceptance.value or [])[:nodes]
    parent = growth.parent[:nodes]
    place = node_places(parent, ranks)
    depth = int(place[:, 1].max())
    figure = new_figure(
        f"The tree: {nodes} drafted tokens, {nodes + 1} verified",
        f"draft {result.draft.name}, search {result.search.name}; {result.proof.tree}",
        height_inches=1.2 + 0.62 * depth,
    )
    axes = figure.add_subplot()
    edges = [(place[node], place[above]) for node, above in enumerate(parent)]
    axes.add_collection(LineCollection(edges, colors=INK, linewidths=0.8, alpha=0.5, zorder=1))
    across = place[:, 0].max() + 1
    diameter = float(np.clip(520 / across, 4.0, 21.0))
    circle: dict[str, Any] = {"s": diameter**2, "edgecolors": INK, "zorder": 2}
    accepted = [share or 0.0 for share in shares]
    drawn = axes.scatter(*place[:nodes].T, c=accepted, cmap="cividis", norm=_SCALE, linewidths=0.6, **circle)
    root_at = place[nodes]
    axes.scatter(*root_at, color=PAPER, linewidths=1.2, **circle)
    axes.annotate("root", root_at, (0, diameter / 2 + 3), textcoords="offset points", ha="center", va="bottom")
    if across <= _READABLE:
        for node, rank in enumerate(ranks):
            colour = text_colour_on(matplotlib.colormaps["cividis"](_SCALE(shares[node] or 0.0))[:3])
            axes.annotate(str(rank), place[node], ha="center", va="center", fontsize=8, color=colour, zorder=3)
    axes.set_ylim(depth + 0.5, -0.75)
    axes.set_xlim(-0.8, across - 0.2)
    axes.set_yticks(range(1, depth + 1))
    axes.set_ylabel("depth")
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    bar = figure.colorbar(drawn, ax=axes, pad=0.01, aspect=30, ticks=(0.0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0))
    bar.set_label("accepted, share of roots (measured)")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return figure


@styled
def performance_figure(result: TreeResult) -> Figure | None:
    """Tokens per second of one sequence, a curve per context with its best length and the line of plain decoding."""
    rows, curve = result.contexts, result.curve
    if not rows or not curve:
        return None
    figure, axes = new_axes("Effective performance by verification length", provenance(result), height_inches=5.0)
    lengths = [row.verification_length for row in curve]
    # The palest end of the map is hard to see on paper.
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, len(rows)))
    handles = []
    for row, colour in zip(rows, colours):
        plain = 1.0 / min(row.ar_bf16_s.known, row.ar_stored_s.known)
        axes.plot(lengths, row.effective_performance.known, color=colour, linewidth=1.6)
        axes.axhline(plain, color=colour, linewidth=1.0, linestyle=(0, (5, 3)))
        best, pays = row.decision.best_tree, row.decision.speculate.value
        star = {"marker": "*", "markersize": 14, "color": colour, "markeredgecolor": INK}
        circle = {"marker": "o", "markersize": 7, "color": "none", "markeredgecolor": colour}
        place = best.verification_length.known, best.tokens_per_s.known
        axes.plot(*place, **(star if pays else circle), zorder=3)
        handles.append(Line2D([], [], color=colour, label=f"context {row.context_tokens:,}"))
    mark: dict[str, Any] = {"linestyle": "none", "markeredgecolor": INK, "markerfacecolor": "none"}
    handles += [
        Line2D([], [], marker="*", markersize=12, label="best length, pays", **mark),
        Line2D([], [], marker="o", markersize=7, label="best length, does not pay", **mark),
        Line2D([], [], color=INK, linestyle=(0, (5, 3)), linewidth=1.0, label="plain decoding at that context"),
    ]
    axes.set(xlabel="verified tokens x, root included (tokens)", ylabel="tokens per second of one sequence (predicted)")
    axes.set_ylim(bottom=0.0)
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


#: The report's figures of one device by name.
figures = figures_of(
    contexts=contexts_figure,
    performance=performance_figure,
    curve=curve_figure,
    drawing=drawing_figure,
    stopwatch=stopwatch_figure,
)


def tree_section(result: TreeResult) -> Section:
    """What the page shows of one device: contexts across, numbers down."""
    own = choice_here(result)
    decided, title = own or ContextChoice(), tree_headline(result)
    search = {name: value for name, value in result.search.plain().items() if value is not None}
    alarm = lambda row, column: "" if row.fits.value or column.title != "tokens/s" else "does not fit"
    contexts = {f"{row.context_tokens:,}": row for row in result.contexts}
    return network_section(
        result,
        title=title.partition(",")[0],
        headlines=[title],
        tables=[Grid(contexts, CONTEXT_COLUMNS, corner="context", alarm=alarm)],
        choice=length_in_words(own) if own else "none",
        figures=figures(result),
        settings=[
            *network_settings(result),
            ("draft", str(result.draft.name)),
            ("draft steps priced as", str(result.draft.priced_draft.statement)),
            ("search", ", ".join(f"{name} {value}" for name, value in search.items())),
            *(("tree or chain", words) for words in [chain_in_words(result)] if words),
            ("schedule", schedule_in_words(result)),
            ("law", law_in_words(result)),
            *(("intervals", words) for words in intervals_in_words(result)),
            ("proof", proof_in_words(result).partition(": ")[2]),
        ],
        summary=[
            (times(decided.speedup_vs_bf16_ar.number), ""),
            (times(decided.speedup_vs_stored_ar.number), ""),
            (fixed(decided.tokens_per_s.number, 1), ""),
        ],
    )


def shown(run: tuple[Sequence[TreeResult], RunDirectory]) -> Shown:
    """Tables of a tree search for the terminal, from what `search_tree` returned."""
    return shown_run(run, [*tree_tables(run[0]), *stopwatch_tables(run[0])])


write_tree_report = page_writer(__file__, tree_section)
