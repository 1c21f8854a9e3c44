import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.memory import CACHE_BLOCK_BYTES, superblock_traffic


def test_by_hand():
    # Three streams in superblocks of 7 blocks of 96 bytes: 3/2 for their ends and 6/2 for the last superblock: 432 bytes.
    streams = jnp.array([700.0, 2500.0, 4000.0])
    traffic = superblock_traffic(
        streams, blocks_per_superblock=7, block_bytes=96, useful_share=jnp.array([1.0, 1.0, 0.25])
    )
    assert float(traffic.payload_bytes) == 7200
    assert float(traffic.moved_bytes) == 7632
    assert float(traffic.useful_bytes) == 4200
    assert float(traffic.efficiency) == pytest.approx(4200 / 7632)
    assert float(traffic.access_bytes) == 672
    # Five tensors have five such ends.
    assert (
        float(superblock_traffic(streams, blocks_per_superblock=7, block_bytes=96, num_tensors=5).moved_bytes) == 9360
    )
    assert float(superblock_traffic(streams, blocks_per_superblock=7).moved_bytes) == 7200 + 4.5 * CACHE_BLOCK_BYTES


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
    mean = jnp.asarray(sizes.mean(axis=0), jnp.float32)
    model = superblock_traffic(mean, blocks_per_superblock=blocks, block_bytes=block_bytes)
    padding = float(model.moved_bytes - model.payload_bytes)
    assert padding - streams / 2 == pytest.approx(exact, abs=0.03 * period)


def test_limits():
    streams = jnp.array([3e3, 5e3])
    efficiency = lambda streams, blocks, size: float(
        superblock_traffic(streams, blocks_per_superblock=blocks, block_bytes=size).efficiency
    )
    # Long streams and small blocks waste nothing; nothing to read is of no use.
    assert efficiency(streams * 1e6, 16, 128) == pytest.approx(1, abs=1e-6)
    assert efficiency(streams, 16, 1e-4) == pytest.approx(1, abs=1e-6)
    assert efficiency(0 * streams, 16, 128) == 0
    blocks = jnp.linspace(2, 40, 9)
    by_blocks = superblock_traffic(streams, blocks_per_superblock=blocks).efficiency
    assert np.all(np.diff(by_blocks) < 0)
    assert np.all(np.diff(superblock_traffic(streams, blocks_per_superblock=8, block_bytes=16 * blocks).efficiency) < 0)


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1e7), min_size=3, max_size=3), st.floats(3, 64), st.floats(1, 4096), st.floats(0, 1))
def test_what_is_of_use_is_less_than_what_is_moved(streams, blocks, block_bytes, share):
    traffic = superblock_traffic(
        jnp.array(streams), blocks_per_superblock=blocks, block_bytes=block_bytes, useful_share=share
    )
    assert float(traffic.useful_bytes) <= float(traffic.payload_bytes) < float(traffic.moved_bytes) * (1 + 1e-6)
    assert 0 <= float(traffic.efficiency) < 1 + 1e-6
    # Moving only what is of use, at the efficiency, is moving everything.
    if share > 0.01 and traffic.payload_bytes > 1:
        assert float(traffic.useful_bytes / traffic.efficiency) == pytest.approx(float(traffic.moved_bytes), rel=1e-5)
