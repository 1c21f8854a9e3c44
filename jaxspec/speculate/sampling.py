"""Choice of a token from logits: greedily, or at a temperature from all tokens, the likeliest k, or those of mass p.

The same settings hold for the target and for its draft, so that the rules of verification compare what was really drawn with
what would have been: they stay exact for any values.
"""

from __future__ import annotations

import dataclasses
import enum

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Key

from jaxspec.checks import check_sampling, known_value

__all__ = ["GREEDY", "SAMPLING", "Decoding", "Purpose", "draw_keys", "token_distribution"]

# Random keys of decoding: a function of (seed, purpose, prompt, position), never of a batch, a shard or a device.


class Purpose(enum.IntEnum):
    """Everything that draws random numbers; the values are part of what a seed means and are never reused."""

    ACCEPT = 0  # the uniform that a draft token must pass
    DRAFT = 1  # the draft's own sampling
    NEXT = 2  # the target's token after the accepted ones
    AUTOREGRESSIVE = 3  # autoregressive sampling
    BOOTSTRAP = 4  # resampling of prompts
    BRANCH = 5  # the draft's sampling after the further tokens of a level
    SAMPLE = 6  # one of several continuations of a prompt
    FOLLOW = 7  # what a draft does along a known text


def draw_keys(
    seed: Key[Array, ""], purpose: Purpose, prompt: Int[Array, " batch"], position: Int[Array, " batch"]
) -> Key[Array, " batch"]:
    """One key per sequence."""
    base = jax.random.fold_in(seed, int(purpose))
    return jax.vmap(lambda p, t: jax.random.fold_in(jax.random.fold_in(base, p), t))(prompt, position)


@struct.dataclass
class Decoding:
    """Settings of decoding, a pytree: new numbers compile nothing.

    Attributes:
        greedy: static; take the largest logit, the first on a tie. Nothing else is read then.
        temperature: divides the logits; above 0.
        top_k: sample from the likeliest k tokens; 0 for all. Of tokens that tie for place k, those with smaller ids stay.
        top_p: of these, sample from the likeliest whose mass together reaches p, in (0, 1]; 1 for all. A token stays if the
            mass before it is below p: the one that crosses p stays, and where p is met exactly, none follows.
            None of either: known to leave out nothing (see `for_program`).
    """

    greedy: bool = struct.field(pytree_node=False)
    temperature: Float[Array, ""] | float
    top_k: Int[Array, ""] | int | None = 0
    top_p: Float[Array, ""] | float | None = 1.0

    @property
    def filters(self) -> bool:
        """Whether tokens may be left out: True where the numbers are traced."""
        if self.greedy or self.top_k is None or self.top_p is None:
            return False
        top_k, top_p = known_value(self.top_k), known_value(self.top_p)
        return top_k is None or top_p is None or bool(top_k > 0) or bool(top_p < 1)

    def for_program(self) -> Decoding:
        """The same settings as an argument of a compiled program, which sorts no tokens where none are left out."""
        return self if self.filters else dataclasses.replace(self, top_k=None, top_p=None)


#: What losslessness is proven with, however a run decodes.
GREEDY = Decoding(greedy=True, temperature=0.0)

#: Samples of the network's own distribution.
SAMPLING = Decoding(greedy=False, temperature=1.0)


def token_distribution(logits: Float[Array, "*b vocab"], decoding: Decoding) -> Float[Array, "*b vocab"]:
    """Probabilities to decode with: softmax(logits / temperature) over the tokens that stay, or one-hot at the largest logit.

    Raises:
        ValueError: a number out of its range; a traced one is not checked, and gives meaningless probabilities.
    Source: top-k: Fan et al. 2018, arXiv:1805.04833; top-p (nucleus): Holtzman et al. 2020, arXiv:1904.09751. The order
        temperature, top-k, top-p is that of common engines.
    """
    check_sampling(decoding)
    if decoding.greedy:
        return jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1], dtype=logits.dtype)
    probability = jax.nn.softmax(logits / decoding.temperature, axis=-1)
    if not decoding.filters:
        return probability
    top_k, top_p = jnp.asarray(decoding.top_k), jnp.asarray(decoding.top_p, probability.dtype)
    kept = jnp.where(_kept(logits, probability, top_k, top_p), probability, 0.0)
    filtered = kept / jnp.sum(kept, axis=-1, keepdims=True)
    # Numbers that filter nothing give the very bits of no filter.
    return jnp.where((top_k > 0) | (top_p < 1), filtered, probability)


def _kept(
    logits: Float[Array, "*b vocab"],
    probability: Float[Array, "*b vocab"],
    top_k: Int[Array, ""],
    top_p: Float[Array, ""],
) -> Bool[Array, "*b vocab"]:
    """Tokens that stay. They are sorted by logits: probabilities may tie where these differ."""
    order = jnp.argsort(logits, axis=-1, stable=True, descending=True)
    place = jax.lax.broadcast_to_rank(jnp.arange(logits.shape[-1]), logits.ndim)
    falling = jnp.take_along_axis(probability, order, axis=-1)
    falling = jnp.where((place < top_k) | (top_k <= 0), falling, 0.0)
    mass = jnp.cumsum(falling, axis=-1)
    before = jnp.concatenate([jnp.zeros_like(mass[..., :1]), mass[..., :-1]], axis=-1)
    stays = ((before < top_p * mass[..., -1:]) | (top_p >= 1)) & (falling > 0)
    # Back to the order of the vocabulary.
    return jnp.take_along_axis(stays, jnp.argsort(order, axis=-1), axis=-1)
