"""The numbers that are fitted, three per target and four that all targets share, and what else a reader might have chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from experiments.papers.elmoe3d.printed import MODELS
from hwmodels.tables import read_table

__all__ = [
    "BOUNDS",
    "COMMITTED",
    "EMBEDDING_INSIDE",
    "MODEL",
    "ONE_RULE",
    "PER_MODEL",
    "SLICES_ALWAYS",
    "STARTS",
    "Fitted",
    "Variant",
    "from_names",
    "names_of",
]


@flax.struct.dataclass
class Fitted:
    """What the paper does not print. Tokens count as independent ones: so many tokens on their own touch as many experts.

    Autoregressive decoding: a cache of the share f of all experts hits f ^ locality. Speculation of b requests:
    f ^ (1 - (1 - speculative_locality) b ^ -fading), so that the cache of one request hits well and that of many by its size
    alone.
    """

    locality: Float[Array, "*model"]  # exponent of hits, autoregressive decoding
    independence: Float[Array, "*model"]  # b requests choose as b ^ independence on their own, autoregressive decoding
    verified_tokens: Float[Array, "*model"]  # independent tokens in the verification of one request
    draft_share: Float[Array, "*row"]  # independent tokens of a draft step over those of a verification
    speculative_independence: Float[Array, "*row"]  # as independence, in speculation
    speculative_locality: Float[Array, "*row"]  # exponent of one request's hits in speculation
    fading: Float[Array, "*row"]  # of locality, by the number of requests


_SEARCH = read_table(__package__, "data", "search.toml")

#: By field: where the search starts, its ends, and the numbers as they were fitted first.
STARTS, BOUNDS, COMMITTED = (
    {field: row[key] for field, row in _SEARCH.items()} for key in ("start", "bounds", "committed")
)

PER_MODEL = ("locality", "independence", "verified_tokens")


@dataclasses.dataclass(frozen=True)
class Variant:
    """What else a reader of the paper might have chosen; the model itself by default.

    Attributes:
        draft_depth: d, draft steps of a cycle.
        alpha_by_token: acceptance is the probability of each token in turn, not the fraction of d tokens.
        one_rule: the hits of autoregressive decoding hold in speculation too.
        lru: hits and touched experts of popularities by which the most popular experts f have the share f ^ locality of all
            choices, an LRU cache by its characteristic time; in place of power laws.
        embedding_inside: the embedding table takes room in HB memory as other weights do.
        slices_always: leading bits of experts alone are cached, while decoding autoregressively too.
        steepening: of the hits of autoregressive decoding, see `SteepeningHits`; 0: a power law.
    """

    draft_depth: int = 10
    alpha_by_token: bool = False
    one_rule: bool = False
    lru: bool = False
    embedding_inside: bool = False
    slices_always: bool = False
    steepening: float = 0.0


#: The model itself, and what the paper prints where the model has something else.
MODEL = Variant()
ONE_RULE, EMBEDDING_INSIDE, SLICES_ALWAYS = (
    Variant(one_rule=True),
    Variant(embedding_inside=True),
    Variant(slices_always=True),
)


def names_of() -> list[str]:
    """Names of the fitted numbers, in the order of the search."""
    shared = [field for field in BOUNDS if field not in PER_MODEL]
    return [f"{field} {model}" for field in PER_MODEL for model in MODELS] + shared


def from_names(values: Mapping[str, float]) -> Fitted:
    """The numbers by name as arrays."""
    per_model = {field: jnp.asarray([values[f"{field} {model}"] for model in MODELS]) for field in PER_MODEL}
    return Fitted(**per_model, **{field: jnp.asarray(values[field]) for field in BOUNDS if field not in PER_MODEL})
