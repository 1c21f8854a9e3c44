"""Trees on a network's text: how a draft ranks it, and decoding with a tree, over any number of prompts."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.checks import check_temperature, check_tokens
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.speculate.chunks import gather, prompt_chunks
from jaxspec.speculate.expansion import TreeLimits
from jaxspec.speculate.growing_tree import GrowingTree
from jaxspec.speculate.measured_ranks import measure_ranks
from jaxspec.speculate.tree import decode_tree
from jaxspec.studies.tree.drafts import NamedDraft
from jaxspec.trees.rank_traces import RankTraces
from jaxspec.trees.topology import Tree
from jaxspec.tune.hard import Decoding

__all__ = ["decode_prompts_with_tree", "record_ranks"]


def record_ranks(
    target: Params,
    config: DecoderConfig,
    draft: NamedDraft,
    texts: np.ndarray,
    *,
    prompt_tokens: int,
    depth: int,
    advance: Callable[[], None] = lambda: None,
) -> RankTraces:
    """`measure_ranks` over all texts, of which there is one or more, chunk by chunk."""
    check_tokens("texts", texts, vocab_size=config.vocab_size)
    parts = []
    for chunk, _, count in prompt_chunks(texts):
        traces = measure_ranks(
            target, draft.params, chunk, draft=draft.draft, config=config, prompt_tokens=prompt_tokens, depth=depth
        )
        parts.append(jax.tree.map(lambda x, count=count: np.asarray(x)[:count], traces))
        advance()
    return jax.tree.map(lambda *x: jnp.asarray(np.concatenate(x)), *parts)


def decode_prompts_with_tree(
    target: Params,
    config: DecoderConfig,
    draft: NamedDraft,
    prompts: np.ndarray,
    tree: Tree | GrowingTree,
    *,
    num_tokens: int,
    decoding: Decoding,
    seed: int,
    limits: TreeLimits | None = None,
    room: int | None = None,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, np.ndarray]:
    """`decode_tree` over all prompts, of which there is one or more, chunk by chunk.

    Returns:
        The fields of `DecodedTrees`, over all prompts.
    """
    check_tokens("prompts", prompts, vocab_size=config.vocab_size)
    check_temperature(decoding.temperature, decoding.greedy)
    key = jax.random.key(seed)
    temperature = jnp.asarray(max(decoding.temperature, 1e-6), jnp.float32)
    parts = []
    for chunk, ids, count in prompt_chunks(prompts):
        result = decode_tree(
            target,
            draft.params,
            chunk,
            ids,
            tree,
            key,
            temperature,
            draft=draft.draft,
            config=config,
            num_tokens=num_tokens,
            greedy=decoding.greedy,
            limits=limits,
            room=room,
        )
        parts.append((jax.block_until_ready(result), count))
        advance()
    return gather(parts)
