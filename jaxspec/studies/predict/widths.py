"""Bits that are read, by the names that settings and results have for them."""

from __future__ import annotations

from hwmodels import Architecture
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from jaxspec.compress.footprint_table import HEAD_WIDTHS, WIDTHS, expected_widths
from jaxspec.compress.schemes import find_scheme
from jaxspec.settings import knob_values
from jaxspec.studies.predict.config import PredictConfig
from jaxspec.studies.release import layer_bits, priced_form

__all__ = ["WIDTH_SETTINGS", "read_widths"]

#: Of the layers' matrices, per weight, and per KV element; a setting each.
WIDTH_SETTINGS = ("draft_bits", "verify_bits", "draft_kv_bits", "verify_kv_bits")

#: Name in a result of every width that a scheme has, in the order of `uniform`.
_NAMES = dict(zip(WIDTHS + HEAD_WIDTHS, (*WIDTH_SETTINGS, "draft_head_bits", "verify_head_bits"), strict=True))


def read_widths(config: PredictConfig, architecture: Architecture) -> dict[str, float]:
    """The scheme's widths, and the head's where it compresses the head; numbers that the user gives win.

    Of a release's form they are means over the layers' matrices, whose kinds have widths of their own.
    """
    form = priced_form(config)
    if form is None:
        found = expected_widths(find_scheme(config.scheme), knob_values(config))
    else:
        layers, kv = layer_bits(form, architecture), UNCOMPRESSED_BITS if form.kv_bits is None else form.kv_bits
        found = dict(zip(WIDTHS, (layers, layers, kv, kv), strict=True))
        if form.weight_bits["lm_head"] != UNCOMPRESSED_BITS:
            found |= dict.fromkeys(HEAD_WIDTHS, form.weight_bits["lm_head"])
    given = {name: getattr(config, name) for name in WIDTH_SETTINGS}
    return {_NAMES[width]: bits for width, bits in found.items()} | {
        name: bits for name, bits in given.items() if bits is not None
    }
