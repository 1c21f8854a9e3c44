"""Acceptance of a draft, from the numbers in which it is known: rates, shares of all cycles, a mean length, a log.

Engines print two of them. A *share* of position i is the part of all cycles in which drafted tokens 1 to i are accepted, so
shares fall along a draft even where every token has the same chance. A *mean length* is tokens per cycle, with the one that the
verification itself yields. Rates given the tokens before, which everything here computes with, are ratios of neighbouring
shares.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import flax.struct
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.speculation.acceptance_traces import read_trace, tokens_to_rates
from hwmodels.speculation.engine_logs import read_engine_log

__all__ = ["Acceptance", "iid_acceptance", "shares_to_rates"]

#: Most drafted tokens for which a rate is solved.
LONGEST_DRAFT = 128

#: Halvings of [0, 1], more than a float64 has bits.
_HALVINGS = 56


@flax.struct.dataclass
class Acceptance:
    """Acceptance of a draft; each field is a leaf in [0, 1], or None where a study has no draft of that kind."""

    conditional: Leaf = None  # chains: P(position accepted | all before it accepted), "*b position"
    node: Leaf = None  # trees: P(node accepted | its parent accepted), "*b node"; those of siblings sum to at most 1

    @classmethod
    def from_mean_length(cls, tokens_per_cycle: Number, draft_length: float) -> Acceptance:
        """The rate, equal at every position, that gives so many tokens per cycle; see `iid_acceptance`.

        Args:
            tokens_per_cycle: "*b", in [1, draft_length + 1]: the mean acceptance length of engines, bonus token included.
            draft_length: static; of the cycles that were counted, fractions too where lengths differ.
        Raises:
            ValueError: a draft length below 1 or beyond `LONGEST_DRAFT`; tokens that no such draft gains.
        """
        if not 1 <= draft_length <= LONGEST_DRAFT:
            raise ValueError(f"draft_length is {draft_length:g}; allowed is 1 to {LONGEST_DRAFT}")
        if not isinstance(tokens_per_cycle, Tracer):
            numbers = np.asarray(tokens_per_cycle, float)
            if not np.all((numbers >= 1) & (numbers <= draft_length + 1)):
                wrong = numbers[~((numbers >= 1) & (numbers <= draft_length + 1))].flat[0]
                raise ValueError(
                    f"tokens per cycle are {wrong:g} with {draft_length:g} drafted tokens; allowed is 1 (the verification's "
                    f"own token) to {draft_length + 1:g}"
                )
        rate = iid_acceptance(tokens_per_cycle, draft_length)
        return cls(jnp.broadcast_to(rate[..., None], (*rate.shape, math.ceil(draft_length))))

    @classmethod
    def from_cumulative(cls, shares: Sequence[float] | Float[Array | np.ndarray, "*b position"]) -> Acceptance:
        """Rates from the share of all cycles in which each position is accepted, as engines print them.

        Args:
            shares: "*b position", in [0, 1], not rising along a draft.
        Raises:
            ValueError: other numbers; no position.
        """
        if not isinstance(shares, Tracer):
            numbers = np.asarray(shares, float)
            if not numbers.ndim or not numbers.shape[-1] or not np.all((numbers >= 0) & (numbers <= 1)):
                raise ValueError(
                    f"shares of cycles are {numbers.tolist()}; give one number in [0, 1] for each position"
                )
            if np.any(np.diff(numbers, axis=-1) > 0):
                raise ValueError(
                    f"shares of cycles are {numbers.tolist()} and rise; a token is accepted only where all before it are"
                )
        return cls(shares_to_rates(jnp.asarray(shares)))

    @classmethod
    def from_engine_log(cls, path: str | os.PathLike[str], draft_length: int | None = None) -> Acceptance:
        """Rates from lines of vLLM's, SGLang's or llama.cpp's log; see `read_engine_log`.

        Raises:
            EngineLogError: no such line, or lines that need the draft length.
        """
        logged = read_engine_log(path, draft_length)
        if logged.shares is not None:
            return cls.from_cumulative(np.asarray(logged.shares))
        return cls.from_mean_length(logged.tokens_per_cycle, logged.draft_length)

    @classmethod
    def from_trace(
        cls, path: str | os.PathLike[str], draft_length: int, *, drafter: str | None = None, dataset: str | None = None
    ) -> Acceptance:
        """Numbers that give the counted tokens per cycle of every draft length up to this one; see `tokens_to_rates`.

        Raises:
            TraceError: not a trace, or without what is asked for.
        """
        trace = read_trace(path, () if drafter is None else (drafter,))
        chosen = trace if dataset is None else trace.of(dataset)
        return cls(jnp.asarray(tokens_to_rates(chosen.tokens_per_cycle(draft_length)), float))


def shares_to_rates(shares: Float[Array | np.ndarray, "*b position"]) -> Float[Array, "*b position"]:
    """P(position accepted | all before it accepted) from shares of all cycles; 0 behind a position that is never accepted.

    Gradient: right wherever the share before is above 0.
    """
    share = jnp.asarray(as_float(shares))
    before = jnp.concatenate([jnp.ones_like(share[..., :1]), share[..., :-1]], axis=-1)
    return jnp.where(before > 0, share / jnp.where(before > 0, before, 1.0), 0.0)


def iid_acceptance(tokens_per_cycle: Number, draft_length: Number) -> Float[Array, "*b"]:
    """The acceptance rate, equal at every position, with which a chain gains so many tokens per cycle.

    Args:
        tokens_per_cycle: "*b", in [1, draft_length + 1]; beyond these ends the rate is 0 or 1.
        draft_length: "*b", in [1, `LONGEST_DRAFT`]; between two whole numbers it is a mean over drafts of both lengths.
    Returns:
        "*b", in [0, 1]: the root of 1 + alpha + ... + alpha^draft_length = tokens_per_cycle.
    Gradient: that of the implicit function, with kinks at whole draft lengths; 0 beyond the ends.
    """
    tokens, length = jnp.broadcast_arrays(jnp.asarray(as_float(tokens_per_cycle)), jnp.asarray(as_float(draft_length)))
    tokens, length = tokens.astype(float), length.astype(float)
    drafted = jnp.clip(length[..., None] - jnp.arange(LONGEST_DRAFT, dtype=length.dtype), 0.0, 1.0)

    def excess(alpha: Array) -> tuple[Array, Array]:
        """Tokens beyond those asked for, and their derivative by alpha, by Horner's rule."""

        def step(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            value, slope = carry
            place = LONGEST_DRAFT - 1 - i
            at = lax.dynamic_index_in_dim(drafted, place, axis=-1, keepdims=False)
            return alpha * (at + value), (at + value) + alpha * slope

        value, slope = lax.fori_loop(0, LONGEST_DRAFT, step, (jnp.zeros_like(alpha), jnp.zeros_like(alpha)))
        return 1.0 + value - tokens, slope

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        above = excess(middle)[0] > 0
        return jnp.where(above, ends[0], middle), jnp.where(above, middle, ends[1])

    ends = lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros_like(tokens), jnp.ones_like(tokens)))
    root = lax.stop_gradient(0.5 * (ends[0] + ends[1]))
    # One step of Newton's method from a constant has the derivative of the implicit function.
    value, slope = excess(root)
    alpha = root - value / lax.stop_gradient(jnp.maximum(slope, 1.0))
    alpha = alpha + lax.stop_gradient(jnp.clip(alpha, 0.0, 1.0) - alpha)
    return jnp.where(tokens < 1.0, 0.0, jnp.where(tokens > length + 1.0, 1.0, alpha))
