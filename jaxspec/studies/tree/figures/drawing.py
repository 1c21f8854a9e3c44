"""The chosen draft tree, drawn as a tree."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from jaxspec.report.figures.style import INK, PAPER, new_figure, styled, text_colour_on
from jaxspec.studies.tree.result import TreeResult

__all__ = ["drawing_figure", "node_places"]

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
    drawn = axes.scatter(
        place[:nodes, 0],
        place[:nodes, 1],
        c=[share or 0.0 for share in shares],
        cmap="cividis",
        norm=_SCALE,
        s=diameter**2,
        edgecolors=INK,
        linewidths=0.6,
        zorder=2,
    )
    root_at = place[nodes]
    axes.scatter(*root_at, s=diameter**2, color=PAPER, edgecolors=INK, linewidths=1.2, zorder=2)
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
