"""What test_effective_performance and test_verification_length share."""

import jax
import jax.numpy as jnp
import numpy as np

from hwmodels.speculation.verification_length import (
    generation_time,
)

#: A step of 10 s up to 5 tokens, then 2 s per token; the draft takes 0.5, 1, 2, 3, 4 s.
LENGTHS = jnp.array([1.0, 2.0, 4.0, 8.0, 16.0])


VERIFY_S = jnp.array([10.0, 10.0, 10.0, 16.0, 32.0])


DRAFT_S = jnp.array([0.5, 1.0, 2.0, 3.0, 4.0])


ACCEPTED = jnp.array([1.0, 1.7, 2.4, 3.0, 3.4])


#: A + B ln(x - C) with A = 0.9, B = 0.72, C = -2.4, which obeys 1.5 < AAT < x from 2 on.
GRID = np.arange(2.0, 71.0)


LAW = 0.9 + 0.72 * np.log(GRID + 2.4)


#: Autoregressive decoding, a long tree and a short one; the tree is best at first, autoregressive decoding at last.
CONTEXTS = jnp.array([100.0, 300.0, 1000.0, 5000.0])


TOKEN_S = jnp.array([[5.0, 2.0, 3.0], [6.0, 4.0, 3.5], [7.0, 9.0, 6.5], [8.0, 20.0, 12.0]])


@jax.jit
def generate(token_s, first_context, tokens):
    return generation_time(CONTEXTS, token_s, first_context=first_context, tokens=tokens)
