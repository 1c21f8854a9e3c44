"""Keys and values rounded to integers as they are written, so that every step reads what a cache of integers holds.

Keys stay in the space of the network itself, as `jaxspec.models.rounded_inputs` keeps inputs: they are divided by the scales of
their channels, rounded, and multiplied by them again. An engine divides the rows of the key's matrix once and multiplies those
of the query's, which rotary embeddings allow where both elements of a plane share a scale; scores are the same. So they are
where an engine rotates keys and queries alike, and queries that are smoothed and rounded would not be: no form has both.

Source: QoQ, Lin et al. 2024, arXiv:2405.04532 (SmoothAttention; a scale for each token and head); DuQuant, Lin et al. 2024,
arXiv:2406.01721 (queries and keys in Hadamard blocks, with ranges clipped as those of activations are).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from jaxspec.formats import asymmetric
from jaxspec.models.rotated_rows import rotate_rows
from jaxspec.models.sizes import DecoderSizes
from jaxspec.settings.integer_kv import IntegerKV

__all__ = ["KEY_SCALE", "as_integers", "plane_partners"]

#: What the scales of keys' channels are called among a layer's parameters.
KEY_SCALE = "key_scale"


def as_integers(
    query: Float[Array, "batch token query_head element"],
    key: Float[Array, "batch token head element"],
    value: Float[Array, "batch token head element"],
    form: IntegerKV | None,
    weights: Mapping[str, Any],
) -> tuple[
    Float[Array, "batch token query_head element"],
    Float[Array, "batch token head element"],
    Float[Array, "batch token head element"],
]:
    """What attention multiplies queries by, and a cache holds of new keys (both behind rotary embeddings) and values; all
    three themselves without a form.

    Args:
        form: static.
        weights: of one layer; read only if keys are smoothed.
    Gradient: that of the scales alone, as integers are piecewise constant.
    """
    if form is None:
        return query, key, value
    scale = weights[KEY_SCALE].astype(key.dtype).reshape(1, 1, *key.shape[2:]) if form.smoothed_keys else None
    key = _rounded_key(key if scale is None else key / scale, form)
    key = key if scale is None else key * scale
    return _rounded_key(query, form) if form.queries else query, key, _rounded(value, form.bits)


def _rounded_key(x: Float[Array, "batch token head element"], form: IntegerKV) -> Array:
    if not form.rotated_keys:
        return _rounded(x, form.bits, form.key_share)
    rows = rotate_rows(x.reshape(-1, x.shape[-1]))
    return rotate_rows(_rounded(rows, form.bits, form.key_share), back=True).reshape(x.shape)


def _rounded(x: Float[Array, "*b element"], bits: int, share: float = 1.0) -> Array:
    return asymmetric.decode(asymmetric.encode(x, bits, share=share)).astype(x.dtype)


def plane_partners(sizes: DecoderSizes) -> np.ndarray:
    """For each element of a head, the one that a rotary embedding turns it with; itself where nothing turns it."""
    own = np.arange(sizes.head_dim)
    if sizes.ropes == (None,):
        return own
    turned, planes = own[: 2 * sizes.planes], sizes.planes
    other = turned ^ 1 if sizes.interleaved_rope else (turned + planes) % (2 * planes)
    return np.concatenate([other, own[2 * planes :]])
