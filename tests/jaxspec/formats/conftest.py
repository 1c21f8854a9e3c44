"""What several tests of formats share."""

import jax
import numpy as np
import pytest

from jaxspec.formats import huffman_streams
from jaxspec.formats.huffman_streams import code_of_symbols


@pytest.fixture(scope="module")
def encode_streams():
    return jax.jit(huffman_streams.encode, static_argnames=("lanes", "capacity_words"))


@pytest.fixture(scope="module")
def decode_streams():
    return jax.jit(huffman_streams.decode, static_argnames="num_symbols")


@pytest.fixture(scope="module")
def small_code():
    """A is 0, B is 10, C is 110, D is 111."""
    return code_of_symbols(np.array([5, 3, 1, 1]))
