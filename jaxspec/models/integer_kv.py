"""Keys and values rounded to integers as they are written, so that every step reads what a cache of integers holds.

Keys stay in the space of the network itself, as `jaxspec.models.rounded_inputs` keeps inputs: they are divided by the scales of
their channels, rounded, and multiplied by them again. An engine divides the rows of the key's matrix once and multiplies those
of the query's, which rotary embeddings allow where both elements of a plane share a scale; scores are the same.

Source: QoQ, Lin et al. 2024, arXiv:2405.04532 (SmoothAttention; a scale for each token and head).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from jaxspec.formats import asymmetric
from jaxspec.models.sizes import DecoderSizes
from jaxspec.settings.integer_kv import IntegerKV

__all__ = ["KEY_SCALE", "as_integers", "plane_partners"]

#: What the scales of keys' channels are called among a layer's parameters.
KEY_SCALE = "key_scale"


def as_integers(
    key: Float[Array, "batch token head element"],
    value: Float[Array, "batch token head element"],
    form: IntegerKV | None,
    weights: Mapping[str, Any],
) -> tuple[Float[Array, "batch token head element"], Float[Array, "batch token head element"]]:
    """What a cache holds of new keys (already rotated) and values; both themselves without a form.

    Args:
        form: static.
        weights: of one layer; read only if keys are smoothed.
    Gradient: that of the scales alone, as integers are piecewise constant.
    """
    if form is None:
        return key, value
    if not form.smoothed_keys:
        return _rounded(key, form), _rounded(value, form)
    scale = weights[KEY_SCALE].astype(key.dtype).reshape(1, 1, *key.shape[2:])
    return _rounded(key / scale, form) * scale, _rounded(value, form)


def _rounded(x: Float[Array, "batch token head element"], form: IntegerKV) -> Array:
    return asymmetric.decode(asymmetric.encode(x, form.bits)).astype(x.dtype)


def plane_partners(sizes: DecoderSizes) -> np.ndarray:
    """For each element of a head, the one that a rotary embedding turns it with; itself where nothing turns it."""
    own = np.arange(sizes.head_dim)
    if sizes.ropes == (None,):
        return own
    turned, planes = own[: 2 * sizes.planes], sizes.planes
    other = turned ^ 1 if sizes.interleaved_rope else (turned + planes) % (2 * planes)
    return np.concatenate([other, own[2 * planes :]])
