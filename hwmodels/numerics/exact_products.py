"""Matrix products of float32 numbers that are float32 products on every device."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

__all__ = ["EXACT", "exact_matmul"]

#: `precision` of products. Without it, GPUs round float32 operands to 10 bits of mantissa and TPUs to 7: logits then differ by
#: a thousandth between steps of one and of several tokens, and decoding with a draft gives other tokens.
EXACT = jax.lax.Precision.HIGHEST

#: `jnp.matmul`, exact.
exact_matmul = functools.partial(jnp.matmul, precision=EXACT)
