"""Bits that are read, by the names that settings and results have for them."""

from __future__ import annotations

from jaxspec.compress.footprint_table import HEAD_WIDTHS, WIDTHS, expected_widths
from jaxspec.compress.schemes import find_scheme
from jaxspec.settings import knob_values
from jaxspec.studies.predict.config import PredictConfig

__all__ = ["WIDTH_SETTINGS", "read_widths"]

#: Of the layers' matrices, per weight, and per KV element; a setting each.
WIDTH_SETTINGS = ("draft_bits", "verify_bits", "draft_kv_bits", "verify_kv_bits")

#: Name in a result of every width that a scheme has, in the order of `uniform`.
_NAMES = dict(zip(WIDTHS + HEAD_WIDTHS, (*WIDTH_SETTINGS, "draft_head_bits", "verify_head_bits"), strict=True))


def read_widths(config: PredictConfig) -> dict[str, float]:
    """The scheme's widths, and the head's where it compresses the head; numbers that the user gives win."""
    found = expected_widths(find_scheme(config.scheme), knob_values(config))
    given = {name: getattr(config, name) for name in WIDTH_SETTINGS}
    return {_NAMES[width]: bits for width, bits in found.items()} | {
        name: bits for name, bits in given.items() if bits is not None
    }
