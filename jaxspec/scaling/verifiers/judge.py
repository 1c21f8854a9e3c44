"""A network as verifier: after a mark, the end of a step or of an answer, it says whether all is right so far."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text

__all__ = ["NO", "YES", "Judge", "chance_of_right"]

#: What a judge says after a mark where all is right so far.
YES = ord("Y")

#: What it says where something is wrong.
NO = ord("N")

#: Texts are padded to multiples of so many tokens, and batches to as many texts.
_STEP, _BATCH = 64, 16


class Judge(NamedTuple):
    """A trained judge.

    Attributes:
        marks: tokens after which it judges.
    """

    params: Params
    config: DecoderConfig
    marks: tuple[int, ...]

    def __call__(
        self, prompt: Int[np.ndarray, " token"], texts: Sequence[Int[np.ndarray, " token"]]
    ) -> Float[np.ndarray, " text"]:
        """Probability that a text is right as far as its last mark; NaN where it has none."""
        found = np.full(len(texts), np.nan)
        places = -(-max((len(prompt) + len(text) for text in texts), default=1) // _STEP) * _STEP
        for first in range(0, len(texts), _BATCH):
            part = texts[first : first + _BATCH]
            rows, last = np.zeros((_BATCH, places), np.int32), np.zeros(_BATCH, np.int32)
            for row, text in enumerate(part):
                marked = np.flatnonzero(np.isin(text, self.marks))
                rows[row, : len(prompt) + len(text)] = np.concatenate([prompt, text])
                last[row] = len(prompt) + marked[-1] if marked.size else -1
            chance = np.asarray(chance_of_right(self.params, jnp.asarray(rows), config=self.config))
            for row in range(len(part)):
                if last[row] >= 0:
                    found[first + row] = chance[row, last[row]]
        return found


@partial(jax.jit, static_argnames="config")
def chance_of_right(
    params: Params, tokens: Int[Array, "batch token"], *, config: DecoderConfig
) -> Float[Array, "batch token"]:
    """What a judge says after each token: of the probabilities of `YES` and `NO`, the share of the first."""
    logits = forward_text(params, config, tokens).logits
    return jax.nn.sigmoid(logits[..., YES] - logits[..., NO])
