"""Footprints from a table: exact at its entries, close between, with a slope."""

import jax
import numpy as np
import pytest

from jaxspec.compress.footprint_table import WIDTHS, expected_widths, footprint_table
from jaxspec.compress.schemes import find_scheme

pytestmark = pytest.mark.scheme_matrix


def test_between_its_entries_a_table_is_close_to_the_count():
    scheme = find_scheme("cassandra1")
    base = {"weight_prune": 0.4, "weight_cut_bits": 4.0, "kv_prune": 0.0, "kv_cut_bits": 3.0}
    table = footprint_table(scheme, base, {"weight_prune": (0.3, 0.6), "kv_cut_bits": (1.0, 3.0)})
    for prune, cut, close in ((0.3, 1.0, 1e-4), (0.6, 3.0, 1e-4), (0.4173, 2.0, 2e-3)):
        knobs = {"weight_prune": prune, "kv_cut_bits": cut}
        found, counted = table.widths(knobs), expected_widths(scheme, base | knobs)
        for width in WIDTHS:
            np.testing.assert_allclose(found[width], counted[width], atol=close)
    slope = jax.grad(lambda prune: table.widths({"weight_prune": prune, "kv_cut_bits": 2.0})["draft_weight_bits"])(0.41)
    assert -20 < float(slope) < -2  # about seven bits of a weight that is not kept


def test_pools_change_no_width():
    table = footprint_table(find_scheme("elastic"), {}, {"slice_bits": (2.0, 6.0)})
    np.testing.assert_allclose(table.widths({"slice_bits": 3.5})["draft_weight_bits"], 4.0, rtol=1e-6)
