"""Widths of named schemes without a network: against entropies and sizes worked by hand."""

import numpy as np
import pytest

from jaxspec.compress.scheme_widths import WIDTH_SCHEMES, scheme_widths
from jaxspec.errors import InputError


@pytest.mark.parametrize("scheme", WIDTH_SCHEMES)
def test_every_scheme(scheme):
    widths = scheme_widths(scheme)
    assert 4 <= widths.draft_weight <= widths.target_weight <= 16
    assert 5 <= widths.draft_kv <= widths.target_kv <= 16
    assert WIDTH_SCHEMES[scheme].title


def test_group_formats_by_hand():
    # 32 codes and a 16-bit scale; MX: 32 elements and an 8-bit one.
    assert scheme_widths("q4_0")[:2] == (4.5, 4.5)
    assert scheme_widths("q8_0")[:2] == (8.5, 8.5)
    assert scheme_widths("mxfp4")[:2] == (4.25, 4.25)
    assert scheme_widths("bit-slices")[:2] == (4.5, 8.5)


def test_huffman_lies_between_entropy_and_entropy_plus_one():
    # Exponents of Gaussian weights: the probability of [2^e, 2^(e + 1)) from the normal distribution, rows of one scale.
    from math import erf, sqrt

    edges = [erf(2.0**e / sqrt(2)) for e in range(-24, 4)]
    shares = np.diff(edges)
    entropy = float(-np.sum(shares * np.log2(shares)))
    found = scheme_widths("huffman").target_weight - 8  # sign and mantissa
    # Rows of different scales add a little, whole codeword lengths too.
    assert entropy < found < entropy + 0.2
    assert scheme_widths("huffman").lossless


def test_a_pruned_draft_by_hand():
    # Everything kept and nothing cut: sign, mantissa, unary exponent; the target reads the same.
    plain = scheme_widths("cassandra1", weight_prune=0.0, weight_cut_bits=0.0)
    assert plain.draft_weight == pytest.approx(plain.target_weight)
    assert plain.draft_weight == pytest.approx(8 + 2.85, abs=0.1)
    # Four bits less in the draft, and they are the target's.
    cut = scheme_widths("cassandra1", weight_prune=0.0, weight_cut_bits=4.0)
    assert plain.draft_weight - cut.draft_weight == pytest.approx(4, rel=1e-5)
    assert cut.target_weight == pytest.approx(plain.target_weight)
    # 40 % pruned: a bitmap, and 16 bits for each pruned value; the smallest have the longest codewords.
    pruned = scheme_widths("cassandra1", weight_prune=0.4, weight_cut_bits=4.0)
    assert pruned.target_weight - pruned.draft_weight == pytest.approx(0.4 * 16 + 0.6 * 4, rel=2e-3)
    assert pruned.draft_weight < 1 + 0.6 * (cut.draft_weight)
    assert pruned.draft_kv == pytest.approx(cut.draft_weight)  # the cache: nothing pruned, four bits cut


def test_coding_the_pruned_exponents_saves_bits():
    raw, coded = scheme_widths("cassandra1"), scheme_widths("cassandra1-coded")
    assert coded.draft_weight == raw.draft_weight
    assert raw.target_weight - 0.4 * 8 < coded.target_weight < raw.target_weight


@pytest.mark.parametrize(
    ("scheme", "knobs", "message"),
    [
        ("zip", {}, "scheme is 'zip'; allowed are bf16, cassandra1"),
        ("cassandra1", {"weight_prune": 0.99}, "weight prune is 0.99; allowed is 0 to 0.95"),
        ("cassandra1", {"kv_cut_bits": float("nan")}, "kv cut bits is nan"),
    ],
)
def test_bad_input_is_refused_by_name(scheme, knobs, message):
    with pytest.raises(InputError, match=message):
        scheme_widths(scheme, **knobs)
