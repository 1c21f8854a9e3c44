"""Cassandra-2: kept values with shared MX exponents and truncated mantissas; the target is altered a little.

Source: Cassandra, IV-B and Fig. 5(a).
"""

from __future__ import annotations

from collections.abc import Mapping

from hwmodels import Footprint
from jaxspec.compress.footprint import uniform
from jaxspec.compress.schemes.stored_form import StoredForm
from jaxspec.formats import mx_truncated
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["CASSANDRA2"]


def _footprint(knobs: Mapping[str, float]) -> Footprint:
    def count(prune: float, cut_bits: float) -> tuple[float, float]:
        found = mx_truncated.expected_bits(1.0 - prune, cut_bits, bitmap=float(prune > 0))
        return float(found.draft), float(found.target)

    weights = count(knobs["weight_prune"], knobs["weight_cut_bits"])
    return uniform(*weights, *count(knobs["kv_prune"], knobs["kv_cut_bits"]))


#: The scheme.
CASSANDRA2 = StoredForm(SCHEME_FACTS["cassandra2"], _footprint)
