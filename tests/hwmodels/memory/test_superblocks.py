import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.memory import CACHE_BLOCK_BYTES, superblock_padding


def test_by_hand():
    # Three streams in superblocks of 7 blocks of 96 bytes: 3/2 for their ends and 6/2 for the last superblock: 432 bytes.
    assert float(superblock_padding(3, blocks_per_superblock=7, block_bytes=96)) == 432
    # Five tensors have five such ends.
    assert float(superblock_padding(3, blocks_per_superblock=7, block_bytes=96, num_tensors=5)) == 2160
    assert float(superblock_padding(3, blocks_per_superblock=7)) == 4.5 * CACHE_BLOCK_BYTES


def moved_exactly(stream_bytes, block_bytes, blocks_per_superblock):
    blocks = sum(-(-size // block_bytes) for size in stream_bytes)
    return -(-blocks // blocks_per_superblock) * blocks_per_superblock * block_bytes


@pytest.mark.parametrize(("block_bytes", "blocks", "streams"), [(96, 7, 3), (5, 11, 4), (128, 1, 1)])
def test_is_the_mean_of_exact_sizes(block_bytes, blocks, streams):
    # Sizes spread evenly over whole superblocks. They end at whole bytes, so that a block lacks half a byte less than its half;
    # the standard error is 2 % of a superblock.
    rng = np.random.default_rng(block_bytes)
    period = block_bytes * blocks
    sizes = 3 * period + rng.integers(0, 5 * period, size=(3000, streams))
    exact = np.mean([moved_exactly(row.tolist(), block_bytes, blocks) - row.sum() for row in sizes])
    padding = float(superblock_padding(streams, blocks_per_superblock=blocks, block_bytes=block_bytes))
    assert padding - streams / 2 == pytest.approx(exact, abs=0.03 * period)


def test_larger_blocks_and_superblocks_pad_more():
    sizes = jnp.linspace(2, 40, 9)
    assert np.all(np.diff(superblock_padding(2, blocks_per_superblock=sizes)) > 0)
    assert np.all(np.diff(superblock_padding(2, blocks_per_superblock=8, block_bytes=16 * sizes)) > 0)
