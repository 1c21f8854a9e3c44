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


def test_many_prompts_in_a_long_text():
    generator = np.random.default_rng(1)
    text = generator.integers(0, 100, 300_000).astype(np.int32)
    text[:1000] = 5  # where every place begins alike
    starts = generator.integers(1000, 290_000, 20_000)
    prompts = [text[start : start + 12] for start in starts] + [np.full(12, 6, np.int32), np.full(900, 5, np.int32)]
    assert num_within(prompts, text) == 20_001
    assert num_within([np.full(1200, 5, np.int32)], text) == 0
    # A text that begins like the prompt at most of its places, and ends before it does.
    indented = np.tile(np.r_[np.full(40, 5), np.arange(6, 10)], 2000).astype(np.int32)
    other = np.r_[np.full(30, 5), 6, 7, 9, 9]
    assert num_within([indented[20:60], other, indented[-20:], np.r_[indented[-20:], 3, 3]] * 100, indented) == 200
