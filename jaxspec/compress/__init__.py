"""Drafts from targets: one definition of the knobs, applied soft (differentiable) or hard (bit-exact), with the footprint."""

from jaxspec.compress.footprint import BitsPerValue, bits_per_value
from jaxspec.compress.knobs import (
    MAX_DRAFT_LENGTH,
    RANGES,
    Knobs,
    harden,
    knobs_from_json,
    knobs_to_json,
    uniform_knobs,
)
from jaxspec.compress.kv import compress_cache, hard_kv, rank_kv, soft_kv
from jaxspec.compress.weights import DraftWeights, activation_norms, hard_draft, rank_weights, soft_draft

__all__ = [
    "MAX_DRAFT_LENGTH",
    "RANGES",
    "BitsPerValue",
    "DraftWeights",
    "Knobs",
    "activation_norms",
    "bits_per_value",
    "compress_cache",
    "hard_draft",
    "hard_kv",
    "harden",
    "knobs_from_json",
    "knobs_to_json",
    "rank_kv",
    "rank_weights",
    "soft_draft",
    "soft_kv",
    "uniform_knobs",
]
