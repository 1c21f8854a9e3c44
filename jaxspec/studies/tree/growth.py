"""The order in which a tree grows, from how a draft ranked calibration text: one order holds the tree of every size."""

from __future__ import annotations

import numpy as np

from jaxspec.errors import InputError
from jaxspec.studies.tree.config import Search
from jaxspec.trees.rank_traces import RankTraces, prior_scores_from_traces
from jaxspec.trees.ranked_tree import RankedTree
from jaxspec.trees.searches import (
    depth_first_growth,
    greedy_growth,
    maximal_tree,
    prior_score_growth,
    width_first_growth,
)
from jaxspec.trees.trace_statistics import acceptance_table

__all__ = ["candidate_shape", "grow"]

#: Nodes that a search by prior score chooses from, for each that it takes: ranks cost nothing once they are recorded.
_CHOICE = 8


def candidate_shape(search: Search, *, nodes: int, depth: int, vocabulary: int) -> RankedTree | None:
    """The shape that a search takes its nodes from; None for the one that makes up its own.

    Raises:
        InputError: more levels than nodes, or more nodes than a tree of so many levels and tokens has.
    """
    if search == "greedy":
        return None
    try:
        return maximal_tree(nodes * (_CHOICE if search == "prior" else 1), depth=depth, max_branching=vocabulary)
    except ValueError as error:
        raise InputError(f"{error} (nodes {nodes}, depth {depth}, search {search})") from error


def grow(
    search: Search,
    shape: RankedTree | None,
    traces: RankTraces,
    *,
    nodes: int,
    depth: int,
    vocabulary: int,
    num_tokens: int | None = None,
) -> RankedTree:
    """The first `nodes` nodes in the order of the search.

    Args:
        shape: from `candidate_shape`.
        traces: of calibration text; the trees are judged on another.
        num_tokens: count prior scores while so many tokens of each text are decoded; None: at every root.
    Raises:
        InputError: there are not so many nodes.
    Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-C and IV-E.
    """
    if shape is None:
        chances = acceptance_table(traces, depth=depth, ranks=min(nodes, vocabulary)).table
        try:
            return greedy_growth(np.asarray(chances), nodes)
        except ValueError as error:
            raise InputError(f"{error} (nodes {nodes}, depth {depth}, search {search})") from error
    growth = {
        "prior": lambda: prior_score_growth(shape, prior_scores_from_traces(shape, traces, num_tokens=num_tokens)),
        "width": lambda: width_first_growth(shape),
        "depth": lambda: depth_first_growth(shape),
    }[search]()
    return growth.first(nodes)
