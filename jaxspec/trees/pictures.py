"""Draft trees as a person sees them in a session: one short line, and a small drawing for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

__all__ = ["tree_line", "tree_svg"]

_STEP, _LEVEL, _RADIUS = 26, 40, 9


def tree_line(name: str, parent: Any, num_nodes: Any = None) -> str:
    """ "<Tree: 5 nodes, 2 deep, 3 leaves>"; of several trees and traced ones, their shape.

    Args:
        parent: of each node, an earlier one or negative for the root.
        num_nodes: the first so many are nodes; None: all.
    """
    parents = _on_host(parent, num_nodes)
    if parents is None:
        return f"<{name}: parents of shape {getattr(parent, 'shape', parent)}>"
    leaves = len(set(range(len(parents))) - set(parents))
    return f"<{name}: {len(parents)} nodes, {max(_depths(parents), default=0)} deep, {leaves} leaves>"


def tree_svg(parent: Any, rank: Any, num_nodes: Any = None) -> str | None:
    """The tree from its root downwards, each node with its rank: 0 is the draft's first choice.

    Args:
        parent, rank, num_nodes: as in `tree_line`.
    Returns:
        None for several trees and traced ones.
    """
    parents, ranks = _on_host(parent, num_nodes), _on_host(rank, num_nodes)
    return None if parents is None or ranks is None else _drawn(parents, ranks)


def _on_host(values: Any, count: Any) -> list[int] | None:
    known = isinstance(values, np.ndarray | jax.Array) and not isinstance(values, Tracer)
    if not known or np.ndim(values) != 1:
        return None
    return np.asarray(values)[: None if count is None else int(count)].tolist()


def _drawn(parent: Sequence[int], rank: Sequence[int]) -> str:
    depths, places = _depths(parent), _places(parent)
    root = (min(places, default=0.0) + max(places, default=0.0)) / 2
    spot = lambda node: (
        (places[node] if node >= 0 else root) * _STEP + _STEP,
        ((depths[node] if node >= 0 else 0) + 0.5) * _LEVEL,
    )
    lines, nodes = [], []
    for node in range(-1, len(parent)):
        x, y = spot(node)
        if node >= 0:
            above_x, above_y = spot(parent[node])
            lines.append(f'<line x1="{above_x:g}" y1="{above_y:g}" x2="{x:g}" y2="{y:g}" stroke="currentColor"/>')
        fill = "currentColor" if node < 0 else "white"
        nodes.append(f'<circle cx="{x:g}" cy="{y:g}" r="{_RADIUS}" fill="{fill}" stroke="currentColor"/>')
        if node >= 0:
            nodes.append(
                f'<text x="{x:g}" y="{y + 4:g}" text-anchor="middle" font-size="11" fill="#24292f">{rank[node]}</text>'
            )
    width = (max(places, default=0.0) + 2) * _STEP
    height = (max(depths, default=0) + 1) * _LEVEL
    head = f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" style="max-width: 100%" role="img"'
    return f'{head} aria-label="{len(parent)} drafted tokens">{"".join([*lines, *nodes])}</svg>'


def _depths(parent: Sequence[int]) -> list[int]:
    depths: list[int] = []
    for above in parent:
        depths.append(1 + (depths[above] if above >= 0 else 0))
    return depths


def _places(parent: Sequence[int]) -> list[float]:
    """Horizontal place of each node: leaves side by side in the order of a walk, others above the middle of theirs."""
    children: list[list[int]] = [[] for _ in range(len(parent) + 1)]
    for node, above in enumerate(parent):
        children[max(above, -1)].append(node)  # the last list is the root's
    order, stack = [], list(reversed(children[-1]))
    while stack:
        node = stack.pop()
        order.append(node)
        stack += reversed(children[node])
    places, next_leaf = [0.0] * len(parent), 0
    for node in order:
        if not children[node]:
            places[node] = float(next_leaf)
            next_leaf += 1
    for node in reversed(order):
        if children[node]:
            places[node] = (places[children[node][0]] + places[children[node][-1]]) / 2
    return places
