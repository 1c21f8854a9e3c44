"""A draft tree in the order in which it grows: on the host, one numbering holds the tree of every size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxspec.trees.pictures import tree_line, tree_svg
from jaxspec.trees.topology import Tree, tree_from_parents

__all__ = ["RankedTree"]


class RankedTree(NamedTuple):
    """A draft tree on the host: whose child each node is, and of which rank. It may have no node.

    Attributes:
        parent: "node", −1 for children of the root, else an earlier node.
        rank: "node", 0 for the draft's first choice after the parent; siblings differ in rank.
    """

    parent: Int[np.ndarray, " node"]
    rank: Int[np.ndarray, " node"]

    def __repr__(self) -> str:
        return tree_line("RankedTree", self.parent)

    def _repr_html_(self) -> str | None:
        return tree_svg(self.parent, self.rank)

    def first(self, nodes: int) -> RankedTree:
        """The tree of the first so many nodes."""
        return RankedTree(self.parent[:nodes], self.rank[:nodes])

    def tree(self, *, size: int | None = None) -> Tree:
        """The same tree as padded arrays, which programs take.

        Raises:
            ValueError: see `tree_from_parents`.
        """
        return tree_from_parents(self.parent, rank=self.rank, size=size)
