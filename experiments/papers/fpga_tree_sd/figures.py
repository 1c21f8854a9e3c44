"""Figures 2 and 4 from the fitted model, with the paper's printed cells on them. Matplotlib figures, not yet saved."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.papers.fpga_tree_sd.calibration import PLATFORM_CONTEXTS, board_table, fit, naive_lengths
from experiments.papers.fpga_tree_sd.model import (
    BOARDS,
    CONTEXTS,
    LENGTHS,
    SETS,
    at_lengths,
    board_times,
    cells,
    cycle,
    table_one,
)
from experiments.reproduce.paper import paper_figure
from hwmodels.speculation.verification_length import acceptance_rate, discounted_performance, primary_performance
from jaxspec.report.figure_style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION, styled

__all__ = ["model_figure", "speedup_figure"]

#: Contexts of Fig. 2, which the paper does not name.
_THREE = {128: BLUE, 4096: GREEN, 16384: VERMILLION}

_SET_COLOURS = dict(zip(SETS, (SKY, ORANGE, BLUE), strict=True))
_SET_NAMES = dict(zip(SETS, ("original set", "naive set", "best set"), strict=True))
_BOARD_COLOURS = dict(zip(BOARDS, (ORANGE, GREEN, BLUE, PURPLE), strict=True))


def _letter(axes: Axes, letter: str, title: str) -> None:
    axes.set_title(f"({letter}) {title}", loc="left", fontsize=10)
    axes.grid(True)


_figure = functools.partial(paper_figure, Path(__file__).parent)


@styled
def model_figure() -> Figure:
    """Fig. 2 for Llama-3.1-8B on V80: primary and discounted roofline, AAT and AR, effective performance."""
    figure = _figure("model")
    ((primary, discounted), (tokens, combined)) = figure.subplots(2, 2, sharex=True)
    contexts = tuple(_THREE)
    run, printed = cycle(board_times("V80", contexts), fit().fitted), table_one()
    rate = tokens.twinx()
    rate.spines["right"].set_visible(True)
    for row, (context, colour) in enumerate(_THREE.items()):
        verify, draft, accepted = run.verify_s[row], run.draft_s[row], run.accepted[row]
        step = run.autoregressive_s[row]
        grid = np.concatenate([[1.0], LENGTHS])
        primary.plot(grid, np.asarray(primary_performance(grid, np.concatenate([[step], verify]))), color=colour)
        discounted.plot(LENGTHS, np.asarray(discounted_performance(LENGTHS, verify, draft)), color=colour)
        tokens.plot(LENGTHS, accepted, color=colour)
        rate.plot(LENGTHS, np.asarray(acceptance_rate(LENGTHS, accepted)), color=colour, linestyle="--", linewidth=1)
        combined.plot(LENGTHS, run.performance[row], color=colour, label=f"{context} tokens of context")
        combined.axhline(1 / step, color=colour, linestyle=":", linewidth=1)
        best = int(np.argmax(run.performance[row]))
        combined.plot(LENGTHS[best], run.performance[row][best], "*", color=colour, markersize=12)
        place = CONTEXTS.index(context)
        combined.plot(printed.lengths[place], printed.performance[place], "o", color=colour, markerfacecolor="none")
    _letter(primary, "a", "primary roofline")
    _letter(discounted, "b", "discounted by drafting")
    _letter(tokens, "c", "AAT (solid) and acceptance rate (dashed)")
    _letter(combined, "d", "effective performance")
    primary.set_ylabel("processed tokens per second")
    discounted.set_ylabel("processed tokens per second")
    discounted.sharey(primary)
    primary.set_ylim(0, None)
    tokens.set(ylabel="tokens per cycle", xlabel="verification length x", ylim=(0, 5.2))
    rate.set(ylabel="acceptance rate", ylim=(0, 1.04))
    combined.set(ylabel="accepted tokens per second", xlabel="verification length x", ylim=(0, None))
    handles, labels = combined.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


@styled
def speedup_figure() -> Figure:
    """Fig. 4 for the cells that are printed: speedups of the three sets by context, and best lengths of the four boards."""
    figure = _figure("speedup")
    speedups, lengths = figure.subplots(1, 2, width_ratios=(1.15, 1.0))
    printed, model = table_one(), board_table("V80", CONTEXTS)
    ours = at_lengths(model.performance, printed.lengths) / model.autoregressive[:, None]
    place = np.arange(len(CONTEXTS))
    for column, (name, colour) in enumerate(_SET_COLOURS.items()):
        at = place + 0.27 * (column - 1)
        speedups.bar(at, ours[:, column], 0.25, color=colour, label=_SET_NAMES[name])
        speedups.plot(at, printed.performance[:, column] / printed.autoregressive, "o", color=INK, markersize=4)
    speedups.axhline(1.0, color=INK, linewidth=0.8)
    speedups.set_xticks(place, [str(context) for context in CONTEXTS])
    speedups.set(xlabel="context length", ylabel="speedup", ylim=(0, 3.2))
    speedups.legend(loc="upper center", ncols=3, columnspacing=1.0, handlelength=1.2)

    for board, colour in _BOARD_COLOURS.items():
        _board_lengths(lengths, board, colour)
    lengths.set(xscale="log", yscale="log", xlabel="context length", ylabel="best verification length")
    lengths.set_xticks([128, 512, 2048, 8192], ["128", "512", "2048", "8192"])
    lengths.set_yticks([4, 8, 16, 32, 64], ["4", "8", "16", "32", "64"])
    lengths.minorticks_off()
    lengths.grid(True)
    handles = [Line2D([], [], color=colour, marker="o", label=board) for board, colour in _BOARD_COLOURS.items()]
    lengths.legend(handles=handles, loc="upper center", ncols=4, columnspacing=1.0, handlelength=1.4)
    lengths.set_ylim(3, 160)
    ours, naive = (", ".join(f"{x:.0f}" for x in lengths) for lengths in (naive_lengths(), printed.lengths[:, 1]))
    figure.supxlabel(f"naive lengths by the law's slope: {ours}; printed: {naive}", fontsize=8.5)
    return figure


def _board_lengths(axes: Axes, board: str, colour: str) -> None:
    contexts = np.geomspace(128, 16384, 57)
    performance = cycle(board_times(board, tuple(contexts)), fit().fitted).performance
    good = performance >= 0.97 * performance.max(axis=1, keepdims=True)
    low = LENGTHS[good.argmax(axis=1)]
    high = LENGTHS[len(LENGTHS) - 1 - good[:, ::-1].argmax(axis=1)]
    axes.fill_between(contexts, low, high, color=colour, alpha=0.13, linewidth=0)
    axes.plot(contexts, LENGTHS[performance.argmax(axis=1)], color=colour, linewidth=1.5)
    points = {
        int(cell["context_length"]): cell.value
        for cell in cells("table4_platforms")
        if (cell["board"], cell.metric) == (board, "best_verification_length")
    }
    if board == "V80":
        points |= dict(zip(CONTEXTS, table_one().lengths[:, 2], strict=True))
    assert set(PLATFORM_CONTEXTS) <= set(points)
    (line,) = axes.plot(list(points), list(points.values()), "o", color=colour, markersize=5)
    if board == "U250":  # rings, since it shares a point with V80
        line.set(markersize=9, markerfacecolor="none", markeredgewidth=1.6)
