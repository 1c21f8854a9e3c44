"""Windows between windows share no token with them, within documents or across."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxspec.text import windows, windows_between


@given(
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=8),
    count=st.integers(1, 9),
    length=st.integers(1, 40),
    seed=st.integers(0, 100),
)
def test_no_token_is_shared(sizes, count, length, seed):
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    tokens = np.arange(sum(sizes))
    if max(sizes) < length:
        assert windows_between(tokens, count, length, seed, document_starts=starts).shape == (0, length)
        return
    ours = windows(tokens, count, length, seed, document_starts=starts)
    found = windows_between(tokens, count, length, seed, document_starts=starts)
    assert found.shape[1] == length
    assert len(found) < count
    assert not np.intersect1d(ours, found).size
    # Each is a piece of one document.
    assert (np.diff(found, axis=1) == 1).all()
    document = np.searchsorted(starts, found, side="right")
    assert (document == document[:, :1]).all()
