"""Expected footprints without a network: against entropies and sizes worked by hand."""

from math import erf, sqrt

import numpy as np
import pytest

from hwmodels import LAYER_MATRICES
from jaxspec.compress.knobs import checked_values
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError


def expected(name, **knobs):
    scheme = find_scheme(name)
    return scheme.expected_footprint(checked_values(scheme, knobs))


def weights(name, **knobs):
    found = expected(name, **knobs)
    return float(found.draft_weight_bits["q"]), float(found.target_weight_bits["q"])


def test_group_formats_by_hand():
    # 32 codes and a 16-bit scale; MX: 32 elements and an 8-bit one.
    assert weights("q4_0") == (4.5, 4.5)
    assert weights("q8_0") == (8.5, 8.5)
    assert weights("mxfp4") == (4.25, 4.25)
    assert weights("bit-slices") == (4.5, 8.5)
    # Tiles of 1024 codes in groups of 32; a 16-bit scale for a row of the 2048 that expected widths are told for.
    assert weights("tile-q4_0") == (4.5, 4.5)
    assert weights("int4-channel") == (4 + 16 / 2048,) * 2


@pytest.mark.parametrize("name", ["q4_0-down8", "tile-q4_0-down8"])
def test_down_in_more_bits(name):
    found = expected(name).target_weight_bits
    assert {found[kind] for kind in LAYER_MATRICES if kind != "down"} == {4.5}
    assert found["down"] == found["expert_down"] == 8.5
    # One of a shared expert's three.
    assert found["shared"] == pytest.approx((4.5 + 4.5 + 8.5) / 3)


def test_huffman_lies_between_entropy_and_entropy_plus_one():
    # Exponents of Gaussian weights: the probability of [2^e, 2^(e + 1)) from the normal distribution, rows of one scale.
    edges = [erf(2.0**e / sqrt(2)) for e in range(-24, 4)]
    shares = np.diff(edges)
    entropy = float(-np.sum(shares * np.log2(shares)))
    found = weights("huffman")[1] - 8  # sign and mantissa
    # Rows of different scales add a little, whole codeword lengths too.
    assert entropy < found < entropy + 0.2


def test_a_pruned_draft_by_hand():
    # Everything kept and nothing cut: sign, mantissa, unary exponent; the target reads the same.
    plain = weights("cassandra1", weight_prune=0.0, weight_cut_bits=0.0)
    assert plain[0] == pytest.approx(plain[1])
    assert plain[0] == pytest.approx(8 + 2.85, abs=0.1)
    # Four bits less in the draft, and they are the target's.
    cut = weights("cassandra1", weight_prune=0.0, weight_cut_bits=4.0)
    assert plain[0] - cut[0] == pytest.approx(4, rel=1e-5)
    assert cut[1] == pytest.approx(plain[1])
    # 40 % pruned: a bitmap, and 16 bits for each pruned value; the smallest have the longest codewords.
    pruned = expected("cassandra1", weight_prune=0.4, weight_cut_bits=4.0)
    draft, target = weights("cassandra1", weight_prune=0.4, weight_cut_bits=4.0)
    assert target - draft == pytest.approx(0.4 * 16 + 0.6 * 4, rel=2e-3)
    assert draft < 1 + 0.6 * cut[0]
    assert pruned.draft_kv_bits == pytest.approx(cut[0])  # the cache: nothing pruned, four bits cut


@pytest.mark.scheme_matrix
def test_coding_the_pruned_exponents_saves_bits():
    raw, coded = weights("cassandra1"), weights("cassandra1-coded")
    assert coded[0] == raw[0]
    assert raw[1] - 0.4 * 8 < coded[1] < raw[1]


def test_a_scheme_that_cannot_do_what_is_asked():
    with pytest.raises(InputError, match="'huffman', which can be priced but not run yet; allowed are cassandra1, "):
        find_scheme("huffman", runs=True)
    with pytest.raises(InputError, match="'q4_0', which can be priced but not packed yet; allowed are cassandra1, "):
        find_scheme("q4_0", packs=True)
