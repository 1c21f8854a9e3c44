"""Medians and intervals of repeats, also of differences that are lost in their noise."""

import math

import numpy as np
import pytest

from jaxspec.host.stopwatch import repeat_statistics


def test_a_ratio_over_such_a_time_is_not_zero_but_unknown():
    """Of a speedup whose baseline takes no time in some rounds nothing is known below, in most rounds not its median either."""
    found = repeat_statistics(np.array([-math.inf, -math.inf, 1.0, 2.0, 3.0, 4.0, 5.0]))
    assert math.isnan(found.low)
    assert (found.median, found.high) == pytest.approx((2.0, 4.7))
    assert np.isnan(repeat_statistics(np.array([-math.inf, -math.inf, -math.inf, 1.0]))[:2]).all()
    assert math.isnan(repeat_statistics(np.array([-math.inf, 1.0])).median)
    assert np.isnan(repeat_statistics(np.array([-math.inf, math.inf, -math.inf]))).all()
