"""What test_rules and test_rules_samples share."""

from typing import Any, NamedTuple

import jax.numpy as jnp

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


# Rules broken on purpose: the checks must notice.
BROKEN_RULES = {
    "refused tokens redrawn from the target": {"residual": lambda p, q: p},
    "everything accepted": {"accept": lambda p, q: jnp.ones_like(p)},
    "ratio upside down": {"accept": lambda p, q: jnp.minimum(q / p, 1.0)},
    "accepted with p": {"accept": lambda p, q: p},
    "residual the wrong way round": {"residual": lambda p, q: residual_distribution(q, p)},
}
