"""The size of superblocks as the hardware models price it is that of the format."""

import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import memory
from jaxspec.formats import superblock
from jaxspec.formats.superblock import Layout


@pytest.mark.parametrize(
    ("blocks", "block_bytes"),
    [((1, 3, 2), 96), ((5,), 128), ((2, 0, 9), 7), ((1, 1, 4, 3), superblock.DEFAULT_BLOCK_BYTES)],
)
def test_expected_bits_and_moved_bytes_are_one_formula(blocks, block_bytes):
    layout = Layout(blocks=blocks, block_bytes=block_bytes)
    mean_bits = np.linspace(0.7, 4.3, len(blocks)) * (np.array(blocks) > 0)
    num_values = np.array([1000.0, 31.0, 70_001.0])
    bits = superblock.expected_bits(
        jnp.asarray(mean_bits, jnp.float32), jnp.asarray(num_values, jnp.float32), layout=layout
    )
    # Streams without a slot are not part of a superblock.
    streams = (num_values[:, None] * mean_bits / 8)[:, np.array(blocks) > 0]
    padding = memory.superblock_padding(
        streams.shape[1], blocks_per_superblock=layout.blocks_per_superblock, block_bytes=block_bytes
    )
    np.testing.assert_allclose(8 * (streams.sum(axis=1) + float(padding)), bits, rtol=1e-6)
    assert memory.CACHE_BLOCK_BYTES == superblock.DEFAULT_BLOCK_BYTES
