"""The LM head of a draft, where a scheme compresses it like the matrices of the layers.

Every draft step reads the head once. At 16 bits it is a fifth of what a draft of Llama-3.1-8B with 5 bits per weight reads, and
more than half for smaller networks with as many tokens in their vocabulary.

A draft has a head of its own, `lm_head`, also where the target's is its embedding: tokens are looked up in the target's.
"""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Array, Float

from jaxspec.compress.knobs import Knobs
from jaxspec.compress.schemes.interface import CompressedMatrix, OwnKnobs
from jaxspec.compress.schemes.scheme import Scheme
from jaxspec.models.decoder import Params
from jaxspec.models.ends import head_of
from jaxspec.models.matrix import Stored, stack_of

__all__ = ["HEAD", "HEAD_KNOBS", "draft_head", "hard_head", "prepare_head"]

#: Name of the head among parameters, footprints and what a scheme prepared.
HEAD = "lm_head"

#: Knobs of the head, by the names that knobs of a matrix have.
HEAD_KNOBS = {"weight_prune": "head_prune", "weight_cut_bits": "head_cut_bits"}


def prepare_head(scheme: Scheme, params: Params, norm: Float[Array, " column"]) -> Any:
    """What a scheme computes once of the head.

    Args:
        norm: of each channel of what the head multiplies, over calibration tokens.
    """
    return scheme.of_kind(HEAD).matrix.prepare(stack_of(head_of(params)).values(), norm)


def _own(knobs: Knobs) -> OwnKnobs:
    return {name: knobs.values[of_head] for name, of_head in HEAD_KNOBS.items()}


def draft_head(
    params: Params, prepared: Any, knobs: Knobs, temperature: Float[Array, ""] | float | None
) -> CompressedMatrix:
    """The head of a draft.

    Args:
        params: the target's.
        prepared: by `prepare_head`.
        temperature: as for `draft_view`; None: the hard head.
    """
    codec = knobs.scheme.of_kind(HEAD).matrix
    given = stack_of(head_of(params)).values(), prepared, _own(knobs)
    return codec.hard(*given) if temperature is None else codec.soft(*given, temperature)


def hard_head(params: Params, prepared: Any, knobs: Knobs) -> Stored:
    """The bit-exact head of a draft, to decode with."""
    return _hard_head({HEAD: head_of(params)}, prepared, knobs)


@jax.jit
def _hard_head(params: Params, prepared: Any, knobs: Knobs) -> Stored:
    return Stored.of(draft_head(params, prepared, knobs, None).values)
