"""Speculative decoding of a real network, with a tree of drafted tokens or a chain of them, or with none.

A chain is a tree in which nothing branches, and autoregressive decoding a tree without nodes. Trees of the same static sizes
share one compilation, so that all of these can run the very same step (`jaxspec.speculate.loop`).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxspec.checks import (
    check_draft_vocabulary,
    check_key,
    check_lengths,
    check_network,
    check_prompt_ids,
    check_sampling,
    check_sizes,
    check_stop,
    check_tokens,
    known_value,
)
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.speculate.drafts.interface import Draft
from jaxspec.speculate.dynamic_tree import DynamicTree
from jaxspec.speculate.expansion import CandidateLaw, TreeLimits, tree_limits
from jaxspec.speculate.loop import Decoded, LoopForm, Request, decoding_loop
from jaxspec.speculate.sampling import Decoding
from jaxspec.trees.public_trees import chain_tree
from jaxspec.trees.topology import Tree, check_tree, one_tree

__all__ = ["Decoded", "autoregressive_tree", "decode", "decode_autoregressively"]


def autoregressive_tree(limits: TreeLimits) -> Tree:
    """A tree without nodes: decoding then drafts nothing, at the same static width."""
    return chain_tree(0, limits.nodes + 1)


def decode(
    target_params: Params,
    draft_params: Any,
    request: Request,
    tree: Tree | DynamicTree,
    decoding: Decoding,
    *,
    draft: Draft | None,
    config: DecoderConfig,
    law: CandidateLaw = "top",
    limits: TreeLimits | None = None,
    room: int | None = None,
) -> Decoded:
    """Decode every prompt to at least as many new tokens as are asked for, or to a stop token before that.

    Values are checked on the host, unless they are traced (see `jaxspec.checks`): traced tokens outside the vocabulary and a
    traced temperature that is not above 0 give meaningless text.

    Args:
        draft_params: of `draft`.
        request: its `num_tokens` is an int.
        tree: one tree for all prompts (`chain_tree` makes a chain), or how trees grow. Given `limits`, a tree may be traced.
        decoding: how tokens are chosen; `greedy` is static, the numbers may be traced.
        draft: static; it has the target's vocabulary. None where the limits have no nodes: there is nothing to ask.
        law: how candidates are chosen; greedy decoding and dynamic trees take the draft's likeliest ("top").
        limits: static sizes, those of the tree unless given; trees of one size within the same limits share one compilation. A
            dynamic tree has its own.
        room: static number of new tokens that the caches have slots for, those of the request unless given. Calls that share
            it share one compilation, however many tokens they ask for.
    Raises:
        ValueError: an argument out of its range, of another shape or type, more tokens than room, a malformed tree, one beyond
            the limits, or sampled candidates where only the likeliest are possible.
    Source: Leviathan et al. 2023, arXiv:2211.17192, Algorithm 1 (chains); SpecInfer, Miao et al. 2024, Algorithm 2 (trees).
    """
    slots: Any = request.num_tokens if room is None else room
    check_sizes(num_tokens=request.num_tokens, room=slots)
    batch, places = check_tokens("prompts", request.prompts, vocab_size=config.vocab_size)
    check_prompt_ids(request.ids, batch)
    check_lengths(request.lengths, batch, places)
    check_stop(request.stop)
    check_sampling(decoding)
    check_key(request.seed)
    check_network(target_params, vocab_size=config.vocab_size, hidden_size=config.hidden_size)
    if law not in ("top", "sampled"):
        raise ValueError(f"candidates are {law!r}; they are chosen as 'top' or 'sampled'")
    dynamic = tree if isinstance(tree, DynamicTree) else None
    if law == "sampled" and (decoding.greedy or dynamic is not None):
        what = "greedy decoding" if decoding.greedy else "a dynamic tree"
        raise ValueError(f"sampled candidates with {what}: use law='top'")
    fixed = None if isinstance(tree, DynamicTree) else tree
    if isinstance(tree, DynamicTree):
        if limits is not None:
            raise ValueError(f"limits {limits} came with a dynamic tree, which has its own; leave them out")
        limits = tree.limits
    else:
        limits = _checked_limits(tree, limits)
    if limits.nodes == 0:
        draft, draft_params = None, None
    elif draft is None:
        raise ValueError(f"no draft came for a tree of {limits.nodes} nodes; give one, or a tree of size 0")
    else:
        check_draft_vocabulary(draft.vocab_size, config.vocab_size)
    return decoding_loop(
        target_params,
        draft_params,
        request._replace(num_tokens=jnp.asarray(request.num_tokens)),
        fixed,
        decoding.for_program(),
        form=LoopForm(draft, config, slots, law, limits, dynamic),
    )


def decode_autoregressively(
    target_params: Params,
    draft_params: Any,
    request: Request,
    decoding: Decoding,
    *,
    limits: TreeLimits,
    **options: Any,
) -> Decoded:
    """Autoregressive decoding through the same compiled step at the same static width: nothing is drafted.

    Args:
        draft_params, limits: those of the decoding that this is compared with, so that both share a compilation. Nothing
            reads what the draft does; with limits without nodes, neither draft nor parameters are needed.
        others: as for `decode`.
    Raises:
        ValueError: see `decode`.
    """
    tree = autoregressive_tree(limits)
    return decode(target_params, draft_params, request, tree, decoding, limits=limits, **options)


def _checked_limits(tree: Tree, limits: TreeLimits | None) -> TreeLimits:
    if known_value(one_tree(tree).num_nodes) is None:
        if limits is None or limits.nodes != tree.size:
            raise ValueError(
                f"a traced tree of size {tree.size} came with limits {limits}; give the limits that it keeps to"
            )
        return limits
    if int(tree.num_nodes) > 0:
        check_tree(tree)
    own = tree_limits(tree)
    if limits is None:
        return own
    sizes = ("nodes", "depth", "ranks", "width")
    beyond = [f"{name} {getattr(own, name)}" for name in sizes if getattr(own, name) > getattr(limits, name)]
    # A tree without nodes has no depth, whatever its size.
    if (int(tree.num_nodes) > 0 and beyond) or own.nodes != limits.nodes:
        raise ValueError(
            f"the tree has {', '.join(beyond) or f'nodes {own.nodes}'}; the limits are {limits}: pad it or raise them"
        )
    return limits
