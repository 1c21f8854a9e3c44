"""Blocks of a grid: every point once, in order, in pieces of one shape."""

import itertools
import math

import numpy as np
import pytest

from jaxspec.studies.sweep.grid import Blocks, blocks_of

SHAPES = [(1,), (7,), (1, 1), (3, 2, 2), (2, 3, 2), (5, 1, 4), (4, 7, 3, 2), (2, 100), (100, 2), (13, 11)]


def flat_numbers(blocks, block):
    """Number of each point of a block, what is repeated left out."""
    places = np.broadcast_arrays(*blocks.places(block), np.zeros(blocks.block_shape))[:-1]
    assert places[0].shape == blocks.block_shape
    return np.ravel_multi_index(places, blocks.shape).reshape(-1)[: blocks.points_of(block)]


@pytest.mark.parametrize(("shape", "most"), list(itertools.product(SHAPES, [1, 2, 5, 9, 32, 1000])))
def test_every_point_is_in_one_block(shape, most):
    blocks = blocks_of(shape, most)
    assert math.prod(blocks.block_shape) <= most
    found = [flat_numbers(blocks, block) for block in range(blocks.count)]
    assert np.concatenate(found).tolist() == list(range(math.prod(shape)))


def test_what_is_missing_to_a_block_repeats_the_last_value():
    blocks = blocks_of((2, 5, 3), 6)
    assert blocks == Blocks((2, 5, 3), divided=1, span=2)
    first, divided, behind = blocks.places(5)
    assert [place.shape for place in (first, divided, behind)] == [(), (2, 1), (3,)]
    assert first == 1
    assert divided.ravel().tolist() == [4, 4]
    assert [blocks.points_of(block) for block in range(6)] == [6, 6, 3, 6, 6, 3]
