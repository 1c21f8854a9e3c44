"""What test_chain and test_chain_sampling share."""

import jax.numpy as jnp

from jaxspec.speculate.sampling import Decoding


def sampling(temperature):
    return Decoding(greedy=False, temperature=jnp.asarray(temperature, jnp.float32))
