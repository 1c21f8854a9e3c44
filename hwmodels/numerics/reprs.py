"""Trees of numbers as a person sees them in a session: one short line, and a table for a notebook."""

from __future__ import annotations

from html import escape
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from hwmodels.numerics.units import engineering

__all__ = ["leaf_text", "short_line", "tree_html"]


def leaf_text(leaf: Any) -> str:
    """A number with five digits; of an array its shape and range, of a traced value its shape."""
    if isinstance(leaf, Tracer):
        return f"traced {leaf.shape}"
    if getattr(leaf, "ndim", 0) and leaf.size:
        return f"{leaf.shape}, {engineering(float(jnp.min(leaf)), 5)} to {engineering(float(jnp.max(leaf)), 5)}"
    try:
        return engineering(float(leaf), 5)
    except (TypeError, ValueError):  # axes of a `vmap`, shardings, an empty array
        return str(leaf)


def short_line(tree: Any, *names: str) -> str:
    """ "Chip(static_power_w=12, area_m2=0.0006, ...)": some fields of a tree.

    Args:
        names: dotted names of the fields that are shown.
    """
    leaves = dict(_leaves(tree))
    shown = [f"{name}={leaves[name]}" for name in names if name in leaves]
    return f"{type(tree).__name__}({', '.join([*shown, '...'])})"


def tree_html(tree: Any) -> str:
    """Every leaf of a tree in a table, by its dotted name."""
    rows = "".join(
        f'<tr><td style="text-align: left">{escape(name)}</td><td>{escape(text)}</td></tr>'
        for name, text in _leaves(tree)
    )
    return f"<div><p><b>{escape(type(tree).__name__)}</b> (SI units)</p><table><tbody>{rows}</tbody></table></div>"


def _leaves(tree: Any) -> list[tuple[str, str]]:
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf_text(leaf)) for path, leaf in pairs]
