import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats.superblock import Layout, choose_layout, read_order

pytestmark = pytest.mark.scheme_matrix

ordered = jax.jit(read_order, static_argnames=("layout", "num_blocks"))


def test_slots_by_hand():
    # Three turns at 1/6, 3/6, 5/6 of the cycle, two at 1/4, 3/4.
    assert Layout(blocks=(2, 3, 0)).slots == (1, 0, 1, 0, 1)
    # 1/2 against 1/6, 1/2, 5/6: both have a turn in the middle, the lower type first.
    assert Layout(blocks=(1, 3)).slots == (1, 0, 1, 1)
    assert Layout(blocks=(1, 1)).slots == (0, 1)
    assert Layout(blocks=(3, 5, 8)).blocks_per_superblock == 16


@pytest.mark.parametrize(
    ("stream_bytes", "blocks", "expected"),
    [
        # In proportion.
        ((1, 5, 10), 16, (1, 5, 10)),
        # Quotas 1.4, 2.1, 3.5: five blocks whole, and the largest remainders are those of the last and of the first.
        ((14, 21, 35), 7, (1, 2, 4)),
        # Quotas 0.02, 1.995, 5.985: the first is raised to one, the second lacks the most.
        ((1, 100, 300), 8, (1, 2, 5)),
        # Three are raised to one, and the last returns two.
        ((1, 1, 1, 97), 5, (1, 1, 1, 2)),
        # Nothing of a type, no slot.
        ((0, 30, 10), 3, (0, 2, 1)),
    ],
)
def test_layout_by_hand(stream_bytes, blocks, expected):
    layout = choose_layout(stream_bytes, block_bytes=96, blocks_per_superblock=blocks)
    assert layout == Layout(blocks=expected, block_bytes=96, limit_bytes=96)


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 10**9), min_size=1, max_size=6).filter(any),
    spare=st.integers(0, 30),
)
def test_layout_gives_out_every_block_nearly_in_proportion(sizes, spare):
    present = sum(size > 0 for size in sizes)
    layout = choose_layout(sizes, blocks_per_superblock=present + spare)
    assert layout.blocks_per_superblock == present + spare
    for size, count in zip(sizes, layout.blocks):
        assert (count > 0) == (size > 0)
        # Above its quota by less than one, or raised to one.
        assert count < size / sum(sizes) * (present + spare) + 1 or count == 1


def test_order_without_skips_by_hand():
    # Blocks and limit of one byte, slots 1 0 1, four groups of 2 and 6 bits. In turn: 8 bits of type 1; 8 of type 0, and one
    # group is done, leaving 6 and 2; 8 more of type 1 make 10, a second group is done, leaving 4 and 4; 8 more make 12.
    group_bits = jnp.array([[2] * 4, [6] * 4])
    order = ordered(group_bits, Layout(blocks=(1, 2), block_bytes=1, limit_bytes=1), num_blocks=5)
    assert np.asarray(order.types).tolist() == [1, 0, 1, 1, -1]
    assert np.asarray(order.blocks_read).tolist() == [1, 3]
    assert np.asarray(order.peak_bits).tolist() == [8, 12]
    assert np.asarray(order.skips).tolist() == np.asarray(order.starved).tolist() == [0, 0]
    assert order.groups == 4
    assert order.complete
