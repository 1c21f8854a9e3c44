"""A network as verifier: how probable it finds what stands up to a mark, the end of a step or of an answer.

A network that hardly ever errs gives each right step nearly all of its probability, and a step with a slip next to none.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.scaling.verifiers.sandbox import DEFAULT_LIMITS, Limits, Verdict, run_sandboxed

__all__ = [
    "Judge",
    "chance_of_written",
    "compiles",
    "doctests_hold",
    "parses",
]

# Whether a text is Python: it parses, it compiles, its doctests hold.

#: Processes at a time.
_AT_ONCE = 2


def _all(check: str, texts: Sequence[str], limits: Limits, unsafe: bool = False) -> Float[np.ndarray, " text"]:
    # Equal texts are looked at once.
    different = list(dict.fromkeys(texts))
    look = partial(run_sandboxed, check, limits=limits, unsafe=unsafe)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        verdicts = dict(zip(different, pool.map(look, different), strict=True))
    return np.array([float(verdicts[text] is Verdict.HOLDS) for text in texts])


def parses(texts: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> Float[np.ndarray, " text"]:
    """1 where a text is syntactically Python, 0 elsewhere."""
    return _all("parses", texts, limits)


def compiles(texts: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> Float[np.ndarray, " text"]:
    """1 where it also compiles: `return` stands in a function, names are declared once, and so on."""
    return _all("compiles", texts, limits)


def doctests_hold(
    texts: Sequence[str], limits: Limits = DEFAULT_LIMITS, *, unsafe: bool = False
) -> Float[np.ndarray, " text"]:
    """1 where it also has a doctest and runs, isolated from the system, and all of its doctests hold.

    Args:
        unsafe: run code also where nothing isolates it.
    Raises:
        InputError: nothing isolates code here.
    """
    return _all("doctests", texts, limits, unsafe)


#: Texts are padded to multiples of so many tokens, and batches to as many texts.
_STEP, _BATCH = 64, 16


class Judge(NamedTuple):
    """A trained judge: a network that answers better than the one that is judged.

    Attributes:
        marks: tokens after which it judges.
    """

    params: Params
    config: DecoderConfig
    marks: tuple[int, ...]

    def __call__(
        self, prompt: Int[np.ndarray, " token"], texts: Sequence[Int[np.ndarray, " token"]]
    ) -> Float[np.ndarray, " text"]:
        """Probability that it would write a text itself, up to the text's last mark; NaN where it has none."""
        chances = np.full(len(texts), np.nan)
        places = -(-max((len(prompt) + len(text) for text in texts), default=1) // _STEP) * _STEP
        for first in range(0, len(texts), _BATCH):
            part = texts[first : first + _BATCH]
            rows, last = np.zeros((_BATCH, places), np.int32), np.zeros(_BATCH, np.int32)
            for row, text in enumerate(part):
                marked = np.flatnonzero(np.isin(text, self.marks))
                rows[row, : len(prompt) + len(text)] = np.concatenate([prompt, text])
                last[row] = len(prompt) + marked[-1] if marked.size else -1
            begin = jnp.asarray(len(prompt))
            chance = np.asarray(chance_of_written(self.params, jnp.asarray(rows), begin, config=self.config))
            for row in range(len(part)):
                if last[row] >= 0:
                    chances[first + row] = chance[row, last[row]]
        return chances


@partial(jax.jit, static_argnames="config")
def chance_of_written(
    params: Params, tokens: Int[Array, "batch token"], begin: Int[Array, ""], *, config: DecoderConfig
) -> Float[Array, "batch token"]:
    """Probability of what stands from `begin` up to each token, given what stands before it; 1 before `begin`.

    Args:
        begin: place of the first token that counts, 1 or more: a network says nothing of a text's first token.
    """
    log_probabilities = jax.nn.log_softmax(forward_text(params, config, tokens[:, :-1]).logits)
    chosen = jnp.take_along_axis(log_probabilities, tokens[:, 1:, None], axis=-1)[..., 0]
    counted = jnp.where((jnp.arange(1, tokens.shape[1]) >= begin)[None], chosen, 0.0)
    return jnp.exp(jnp.pad(jnp.cumsum(counted, axis=1), ((0, 0), (1, 0))))
