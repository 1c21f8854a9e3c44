"""What is predicted and timed: chains of three drafts, trees of one, alone and in a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxspec.models.embedded import HEAD_NAME, SMALL_NAME
from jaxspec.models.hf_load import LoadedModel
from jaxspec.settings.draft_kinds import DraftKind
from jaxspec.speculate import GREEDY
from jaxspec.speculate.drafts import ReadyDraft, make_draft
from jaxspec.speculate.drafts.making import kind_of
from jaxspec.speculate.timing import Way, chain_way, tree_way
from jaxspec.trees import PUBLIC_TREES, chain_like_paths, k_ary_paths, star_paths, tree_from_paths

__all__ = ["BATCHES", "LENGTHS", "TREES", "Group", "groups"]

#: Drafts of chains.
DRAFTS = ("ngram", HEAD_NAME, SMALL_NAME)

#: Draft lengths.
LENGTHS = tuple(range(1, 9))

#: Sequences decoded together.
BATCHES = (1, 16)

#: Name -> paths of a tree that the head drafts: wide, bushy, deep, and one that was released.
TREES = {
    "star of 4": star_paths(4),
    "binary of 6": k_ary_paths(2, depth=2),
    "chain-like of 8": chain_like_paths(8),
    "chain-like of 16": chain_like_paths(16),
    "EAGLE's of 25": PUBLIC_TREES["eagle_25"].paths,
}


@dataclasses.dataclass(frozen=True)
class Group:
    """Ways of one draft that are timed together, each against the same decoding without speculation.

    Attributes:
        name: of its files.
        draft: name.
        shapes: of what is drafted: "chain of 4", or a tree's name.
    """

    name: str
    draft: str
    batch: int
    shapes: tuple[str, ...]

    @property
    def kind(self) -> DraftKind:
        """Of the draft."""
        return kind_of(self.draft)

    def row_ids(self) -> list[str]:
        """A name for each way that no other has."""
        return [f"{self.draft}, {shape}, batch {self.batch}" for shape in self.shapes]

    def ways(self, target: LoadedModel) -> tuple[ReadyDraft, dict[str, Way]]:
        """The draft and its ways by row."""
        ready = make_draft(self.draft, target)
        return ready, {name: _way(ready, shape) for name, shape in zip(self.row_ids(), self.shapes, strict=True)}

    def parents(self) -> list[np.ndarray]:
        """Of each way's nodes, -1 for the root."""
        return [np.arange(_length(shape)) - 1 if _length(shape) else _parents(shape) for shape in self.shapes]


def groups(batches: Sequence[int] = BATCHES, lengths: Sequence[int] = LENGTHS, *, trees: bool = True) -> list[Group]:
    """All of them, batch by batch."""
    chains, found = tuple(f"chain of {length}" for length in lengths), []
    for batch in batches:
        found += [Group(f"{draft}-chains-{batch}", draft, batch, chains) for draft in DRAFTS]
        found += [Group(f"{HEAD_NAME}-trees-{batch}", HEAD_NAME, batch, tuple(TREES))] if trees else []
    return found


def _length(shape: str) -> int:
    """Of a chain; 0 of a tree."""
    before, _, after = shape.partition("chain of ")
    return 0 if before else int(after)


def _parents(shape: str) -> np.ndarray:
    return np.asarray(tree_from_paths(TREES[shape]).parent)


def _way(ready: ReadyDraft, shape: str) -> Way:
    if length := _length(shape):
        return chain_way(ready, length, GREEDY)
    return tree_way(ready, tree_from_paths(TREES[shape]))
