"""What tests of the rules of acceptance share."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxspec.speculate.tree_rules import residual_distribution, verify_tree
from jaxspec.trees import chain_tree


class Verdict(NamedTuple):
    accepted: Any
    next_token: Any


def verify_chain(target, draft, drafted, draft_length, uniforms, next_key):
    """The verification of trees on a chain: "width vocab", "width vocab", " width", length, " width"."""
    width = target.shape[0]
    # The last place is that of the bonus token: nothing is drafted there.
    tree, uniforms = chain_tree(draft_length, width), uniforms[: width - 1, None]
    found = verify_tree(tree, target, draft, drafted[:, None], uniforms, next_key)
    return Verdict(found.accepted, found.next_token)


def dirichlet(rng, vocab, *, zeros=0.0):
    """Draws distributions over a vocabulary for axes of what came before."""

    def draw(lead):
        weight = rng.exponential(size=(*lead, vocab)) * (rng.random((*lead, vocab)) >= zeros)
        weight[..., 0] += weight.sum(axis=-1) == 0
        return weight / weight.sum(axis=-1, keepdims=True)

    return draw


def table_pairs(rng, vocab, zeros):
    """Draws of a target and of its draft, by kind; `zeros`: share of the draft's where it alone has some."""
    some, few, one = dirichlet(rng, vocab), dirichlet(rng, vocab, zeros=0.5), one_hot(rng, vocab)
    return {
        "random": (some, some),
        "zeros in the draft": (some, dirichlet(rng, vocab, zeros=zeros)),
        "zeros in the target": (few, some),
        "both greedy": (one, one),
        "a greedy draft": (some, one),
    }


def one_hot(rng, vocab):
    """The same of one token with all of the chance."""
    return lambda lead: np.eye(vocab)[rng.integers(vocab, size=lead)]


# Rules broken on purpose: the checks must notice.
BROKEN_RULES = {
    "refused tokens redrawn from the target": {"residual": lambda p, q: p},
    "everything accepted": {"accept": lambda p, q: jnp.ones_like(p)},
    "ratio upside down": {"accept": lambda p, q: jnp.minimum(q / p, 1.0)},
    "accepted with p": {"accept": lambda p, q: p},
    "residual the wrong way round": {"residual": lambda p, q: residual_distribution(q, p)},
}
