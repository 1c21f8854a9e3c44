import hashlib

import numpy as np

from hwmodels.analysis.calibration.report import half_of_shapes, largest_held_out

K, N = (side.ravel() for side in np.meshgrid([1024, 1536, 4096, 9000, 16384], [2048, 3072, 65536], indexing="ij"))
K, N = np.repeat(K, 7), np.repeat(N, 7)


def shapes(rows):
    return set(zip(K[rows], N[rows]))


def test_halves_are_whole_shapes():
    train, other = half_of_shapes(K, N), half_of_shapes(K, N, complement=True)
    assert (train == ~other).all()
    assert len(shapes(train)) == 7
    assert len(shapes(other)) == 8
    assert not shapes(train) & shapes(other)


def test_seeds_differ_and_the_order_of_rows_does_not_matter():
    assert shapes(half_of_shapes(K, N, seed=0)) != shapes(half_of_shapes(K, N, seed=1))
    backwards = half_of_shapes(K[::-1].astype(float), N[::-1].astype(float))
    assert (backwards[::-1] == half_of_shapes(K, N)).all()
    # A fixed hash: the same on every machine.
    digest = lambda k, n: hashlib.sha256(f"0:{k}x{n}".encode()).hexdigest()
    least = sorted(shapes(K > 0), key=lambda shape: digest(*map(int, shape)))[:7]
    assert shapes(half_of_shapes(K, N)) == set(least)


def test_largest():
    train = largest_held_out(K, N)
    assert shapes(~train) == {(k, n) for k, n in shapes(train | True) if k == 16384 or n == 65536}
