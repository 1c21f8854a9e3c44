"""Whole texts of a network on a vocabulary so small that every text can be listed, and how samples of them are judged."""

import itertools

import jax.numpy as jnp
import numpy as np
from scipy import stats

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models.config import DecoderConfig
from jaxspec.speculate.drafts import SelfDraft
from jaxspec.speculate.engine import decode
from jaxspec.speculate.loop import Request
from jaxspec.speculate.sampling import Decoding

VOCAB, NEW = 4, 3
SMALL = DecoderConfig(
    vocab_size=VOCAB, hidden_size=8, intermediate_size=10, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=4
)
START = np.array([2, 0, 3], np.int32)


def sampling(temperature):
    return Decoding(greedy=False, temperature=jnp.asarray(temperature, jnp.float32))


def draft_knobs():
    return uniform_knobs(CASSANDRA1, SMALL, kv_prune=0.3, kv_cut_bits=5.0)


def all_texts(new):
    """Every text of so many new tokens, after the same start."""
    tokens = np.array(list(itertools.product(range(VOCAB), repeat=new)), np.int32)
    return np.concatenate([np.broadcast_to(START, (len(tokens), START.size)), tokens], axis=1)


def decode_sampled(target, params, asked, tree, decoding, **static):
    """Args: asked: prompts, ids and seed; static: limits and room of `decode`."""
    static |= {"draft": SelfDraft(SMALL), "config": SMALL, "law": "sampled"}
    return decode(target, params, Request(*asked, NEW), tree, decoding, **static)


def prompts_and_ids(samples):
    return np.broadcast_to(START, (samples, START.size)), np.arange(samples, dtype=np.int32)


def chi_square(tokens, probability, *, cells):
    """p-value of the first new tokens of samples against the probability of each text; 0 where one came that cannot.

    Args:
        cells: more than so many are compared; texts expected less than ten times share one.
    """
    new = np.asarray(tokens)[:, START.size : START.size + NEW]
    counts = np.bincount(np.ravel_multi_index(tuple(new.T), (VOCAB,) * NEW), minlength=VOCAB**NEW)
    expected = probability * len(new)
    if np.any(counts[expected == 0]):
        return 0.0
    rare = expected < 10
    counts, expected = (np.append(x[~rare], x[rare].sum()) for x in (counts, expected))
    counts, expected = counts[expected > 0], expected[expected > 0]
    assert len(expected) > cells
    return stats.chi2.sf(np.sum((counts - expected) ** 2 / expected), len(expected) - 1)
