"""Drafts from targets: storage schemes with their knobs, applied soft (differentiable) or hard (bit-exact), with footprints."""

from typing import TYPE_CHECKING

from jaxspec.lazy_names import lazy_names

if TYPE_CHECKING:
    from jaxspec.compress.footprint import bits_per_value, count_exponents
    from jaxspec.compress.knobs import Knobs, harden, knobs_from_json, knobs_to_json, uniform_knobs
    from jaxspec.compress.kv import compress_cache, prepare_kv
    from jaxspec.compress.schemes import DEFAULT_SCHEME, SCHEMES, Scheme, find_scheme
    from jaxspec.compress.weights import draft_view, hard_draft, prepare, sum_of_squares
    from jaxspec.settings.knobs import MAX_DRAFT_LENGTH, KnobSpec

__all__ = [
    "DEFAULT_SCHEME",
    "MAX_DRAFT_LENGTH",
    "SCHEMES",
    "KnobSpec",
    "Knobs",
    "Scheme",
    "bits_per_value",
    "compress_cache",
    "count_exponents",
    "draft_view",
    "find_scheme",
    "hard_draft",
    "harden",
    "knobs_from_json",
    "knobs_to_json",
    "prepare",
    "prepare_kv",
    "sum_of_squares",
    "uniform_knobs",
]

lazy_names(__name__)
