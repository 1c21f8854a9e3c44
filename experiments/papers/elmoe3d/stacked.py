"""Sizes of all networks of Table 3 as arrays, so that one program prices every cell."""

from __future__ import annotations

import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from experiments.papers.elmoe3d.networks import draft_bits, eagle_head, expert_bits, small_model, target, target_bits
from experiments.papers.elmoe3d.printed import MODELS
from hwmodels.network.architecture import Architecture

__all__ = ["OWN_DRAFTS", "OwnDrafts", "Targets", "own_drafts", "pick", "stack", "targets"]

#: Methods that draft with a network of their own, in the order of "draft".
OWN_DRAFTS = ("EAGLE3", "SLM-SD")


@flax.struct.dataclass
class Targets:
    """Leaves "model", or single numbers of one target."""

    architecture: Architecture
    bits: dict[str, Any]  # as stored
    low_bits: dict[str, Any]  # as a draft reads it
    expert_bits: Any


@flax.struct.dataclass
class OwnDrafts:
    """Leaves "model draft", or "draft"."""

    architecture: Architecture
    stored_embedding: Any  # elements that take room in HB memory


def stack(trees: list[Any]) -> Any:
    """Trees of one structure as one, leaves with an axis in front."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf, jnp.float32) for leaf in leaves]), *trees)


def pick(tree: Any, place: int) -> Any:
    """One of a stack."""
    return jax.tree.map(lambda leaf: leaf[place], tree)


@functools.cache
def targets() -> Targets:
    """The four targets."""
    return stack([Targets(target(m), target_bits(m), draft_bits(m), expert_bits(m)) for m in MODELS])


@functools.cache
def own_drafts() -> OwnDrafts:
    """An EAGLE head and the small model for each target."""
    drafts = [[eagle_head(m), small_model()] for m in MODELS]
    return stack([stack([OwnDrafts(d.architecture, d.stored_embedding) for d in row]) for row in drafts])
