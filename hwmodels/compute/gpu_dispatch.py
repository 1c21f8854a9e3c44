"""Tiles of GPU kernels that an engine chooses by the number of rows alone, as CUTLASS kernels of vLLM and SGLang are.

A library measures and picks among tilings; an engine's own table says: 64 rows a tile up to 64, 128 up to 128, and beyond that
128 in each of two neighbouring multiprocessors that share their columns, so that rows come in 256 (GPUs without such clusters:
128). No sum over k is split. Such a pair is counted as one tile on one multiprocessor, which is nearer to the tables.

    rows of a tile = clip(padded, 64, L)        padded = 64 ceil(m / 64) up to 128 rows, L ceil(m / L) beyond, L: largest rows

Source: form and constants chosen on the FP8 tables of aiconfigurator-core 0.12.0: row 257 costs at least what row 512 does.
"""

from __future__ import annotations

import jax.numpy as jnp

from hwmodels.compute.tile_counts import Ceiling
from hwmodels.numerics.scalars import Leaf

__all__ = ["DISPATCHED_ROWS", "dispatched_tile"]

#: Rows that many rows are padded to: of one multiprocessor, and of two that work together.
DISPATCHED_ROWS = (128.0, 256.0)

_FEW, _MANY = 64.0, 128.0


def dispatched_tile(m: Leaf, largest: float, ceiling: Ceiling) -> tuple[Leaf, Leaf]:
    """Rows of a tile within a multiprocessor, and how many tiles cover the rows.

    Args:
        m: "*b", > 0, real.
        largest: static, of `DISPATCHED_ROWS`.
        ceiling: counts tiles, exactly or smoothly.
    Returns:
        "*b" each; neither rows of a tile nor rows in all tiles fall as m rises.
    Gradient: of the counts; kinks where the rows of a tile reach an end of their range.
    """
    beyond = jnp.clip(ceiling(m, _MANY) - 1.0, 0.0, 1.0)
    further = jnp.maximum(largest * ceiling(m, largest) - _MANY, 0.0)
    padded = _FEW * jnp.minimum(ceiling(m, _FEW), _MANY / _FEW) + beyond * further
    rows = jnp.clip(padded, _FEW, largest)
    return rows, padded / rows
