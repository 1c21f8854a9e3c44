"""Drafts step by step: cycles of windows, roots and ragged levels, and what the same networks give for each branch alone."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import causal_mask, forward
from jaxspec.models.draft_head import head_forward, head_logits
from jaxspec.models.kv_cache import KVCache
from jaxspec.speculate.drafts.head_draft import HeadDraft
from jaxspec.speculate.drafts.interface import Committed, Level, Root
from jaxspec.speculate.drafts.network_draft import NetworkDraft

TARGET = DecoderConfig(
    vocab_size=11, hidden_size=16, intermediate_size=12, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4
)
SMALL = dataclasses.replace(TARGET, hidden_size=10, num_heads=3, num_kv_heads=1, head_dim=6)
HEAD = dataclasses.replace(TARGET, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=6)

BATCH, LENGTH, NUMBERS = 3, 40, 12
# Cycles: places of the window, how many of them each sequence commits. The prompts differ in length too: one window holds
# them all, padded.
WINDOWS = ((7, (6, 3, 7)), (4, (1, 4, 2)), (4, (3, 1, 1)))


def padded_to_length(x):
    return np.concatenate([x, np.zeros((LENGTH - len(x), *x.shape[1:]), x.dtype)])


@jax.jit
def head_over_all(params, tokens, states):
    out = head_forward(
        params.head,
        HEAD,
        ends=params.ends,
        tokens=tokens[None],
        hidden=states[None],
        positions=jnp.arange(LENGTH)[None],
        mask=causal_mask(1, LENGTH),
    ).hidden[0]
    return out, head_logits(out, params.ends, HEAD)


def head_on_branch(params, text, hidden, root, branch):
    """Logits after the last token of a branch below a root.

    All places in one causal pass without a cache, repeated for each drafted token: a place before the root's last one has
    the true hidden state, a later one what its predecessor put out in the pass before.
    """
    tokens = padded_to_length(np.concatenate([text[1 : root + 1], branch]))
    states = hidden[:root]
    for _ in branch:
        out, _ = head_over_all(params, tokens, padded_to_length(states))
        states = np.concatenate([states, np.asarray(out)[None, len(states) - 1]])
    return np.asarray(head_over_all(params, tokens, padded_to_length(states))[1])[len(states) - 1]


@jax.jit
def network_over_all(params, tokens):
    positions = jnp.arange(LENGTH)[None]
    return forward(params, SMALL, tokens[None], StepInput(positions, causal_mask(1, LENGTH))).logits[0]


def network_on_branch(params, text, hidden, root, branch):
    """The same of another network: plain text."""
    tokens = np.concatenate([text[: root + 1], branch])
    return np.asarray(network_over_all(params, padded_to_length(tokens)))[len(tokens) - 1]


WITNESS = {HeadDraft: head_on_branch, NetworkDraft: network_on_branch}


def random_tree(rng, *, pad):
    """Three levels (first number, tokens, parents, depth, width), parents anywhere in the level above.

    Args:
        pad: whether each level ends with a padded token, whose number the next level takes.
    """
    levels, first, previous = [], 1, np.zeros((BATCH, 1), np.int64)
    for depth, width in ((1, 2), (2, 3), (3, 2)):
        tokens = rng.integers(11, size=(BATCH, width + pad))
        parent = np.take_along_axis(previous, rng.integers(previous.shape[1], size=(BATCH, width + pad)), axis=1)
        levels.append((first, tokens.astype(np.int32), parent, depth, width))
        previous = np.broadcast_to(first + np.arange(width), (BATCH, width))
        first += width
    return levels


def ancestors_of(levels, upto):
    """[sequence][number] -> set of numbers above."""
    above = [{0: set()} for _ in range(BATCH)]
    for first, _, parent, _, width in levels[:upto]:
        for b in range(BATCH):
            for i in range(width):
                above[b][first + i] = above[b][parent[b, i]] | {int(parent[b, i])}
    return above


def level_inputs(levels, index, rng):
    first, tokens, parent, depth, width = levels[index]
    above = ancestors_of(levels, index + 1)
    mask = np.zeros((BATCH, tokens.shape[1], NUMBERS), bool)
    for b in range(BATCH):
        for i in range(width):
            mask[b, i, list(above[b][first + i])] = True
    # Of padding anything may be asked: some earlier token's child, at any depth, with any token.
    depths = np.full(tokens.shape, depth, np.int32)
    depths[:, width:] = rng.integers(1, 4, size=depths[:, width:].shape)
    parent = parent.copy()
    parent[:, width:] = 0
    return Level(tokens, jnp.asarray(first), depths, parent.astype(np.int32), mask)


def branch_of(levels, b, number):
    """Tokens from depth 1 down to a number."""
    above = ancestors_of(levels, len(levels))[b]
    token = {first + i: tokens[b, i] for first, tokens, _, _, width in levels for i in range(width)}
    return np.array([token[n] for n in sorted(above[number] - {0})] + [token[number]], np.int32)


def window_of(rng, text, hidden, start, places, valid, *, junk):
    """A commitment, with padding that is no part of the text."""
    place = start[:, None] + np.arange(places)
    padded = np.arange(places) >= np.asarray(valid)[:, None]
    tokens = np.where(padded, rng.integers(11, size=place.shape), np.take_along_axis(text, place + 1, axis=1))
    states = np.take_along_axis(hidden, place[..., None], axis=1)
    states = np.where(padded[..., None], junk(states.shape), states)
    empty = KVCache(key=(), value=())  # the target's KV, which neither draft reads
    before = np.take_along_axis(text, start[:, None], axis=1)[:, 0].astype(np.int32)
    valid = np.asarray(valid, np.int32)
    return Committed(tokens.astype(np.int32), states.astype(np.float32), empty, start, before, valid)


# One compilation per draft and shape; tests count how often these are traced.
@partial(jax.jit, static_argnums=0)
def commit(draft, params, memory, committed):
    TRACED["commit"] += 1
    return draft.commit(params, memory, committed)


@partial(jax.jit, static_argnums=0)
def extend(draft, params, memory, root, level):
    TRACED["extend"] += 1
    return draft.extend(params, memory, root, level)


TRACED = {"commit": 0, "extend": 0}


def noise(shape):
    return 50 * np.random.default_rng(9).standard_normal(shape)


def play(drafting, text, hidden, *, junk=noise, pad=1, seed=4, rows=slice(None), change=None):
    """Several cycles: all logits that the draft gives, and what a node's were given for.

    Args:
        rows: sequences to play, of the batch that the draws are made for.
        change: what is done to every level before the draft sees it.
    Yields:
        (root, levels, after the root, after the nodes of each level).
    """
    draft, params = drafting
    rng = np.random.default_rng(seed)
    cut = lambda tree: jax.tree.map(lambda leaf: leaf[rows] if np.ndim(leaf) else leaf, tree)
    batch = len(range(BATCH)[rows])
    memory = draft.empty(params, batch, LENGTH, NUMBERS)
    start = np.zeros(BATCH, np.int32)
    for places, valid in WINDOWS:
        window = window_of(rng, text, hidden, start, places, valid, junk=junk)
        memory = commit(draft, params, memory, cut(window))
        start = start + np.asarray(valid, np.int32)
        root = Root(np.take_along_axis(text, start[:, None], axis=1)[:, 0], start)
        at_root, memory = draft.open(params, memory, cut(root))
        levels = random_tree(rng, pad=pad)
        given = []
        for index in range(len(levels)):
            level = level_inputs(levels, index, rng)
            level = change(level) if change else level
            logits, memory = extend(draft, params, memory, cut(root), cut(level))
            given.append(np.asarray(logits))
        yield root, levels, np.asarray(at_root), given


def largest_error(drafting, text, hidden, **options):
    """Largest difference of any logit from the witness's, and how many nodes were compared."""
    draft, params = drafting
    worst, nodes = 0.0, 0
    for root, levels, at_root, given in play(drafting, text, hidden, **options):
        for b in range(BATCH):
            on = partial(WITNESS[type(draft)], params, text[b], hidden[b], int(root.position[b]))
            worst = max(worst, np.max(np.abs(at_root[b] - on(np.zeros(0, np.int32)))))
            for (first, _, _, _, width), logits in zip(levels, given):
                for i in range(width):
                    wanted = on(branch_of(levels, b, first + i))
                    worst, nodes = max(worst, np.max(np.abs(logits[b, i] - wanted))), nodes + 1
    return worst, nodes
