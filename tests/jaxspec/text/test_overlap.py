"""Prompts that stand in a text."""

import numpy as np
import pytest

from jaxspec.text import num_within

pytestmark = pytest.mark.network


def test_prompts_are_found_by_all_tokens_but_the_outer_ones():
    text = np.random.default_rng(0).integers(0, 50_000, 500).astype(np.int32)
    within = text[100:120]
    other_ends = np.r_[7, within[1:-1], 9]
    changed = np.where(np.arange(20) == 10, within + 1, within)
    assert num_within([within, other_ends, text, text[:10]], text) == 4
    assert num_within([changed, text[:9], np.zeros(0, np.int32), text[::-1]], text) == 0
