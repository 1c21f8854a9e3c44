"""Drafts from targets: storage schemes with their knobs, applied soft (differentiable) or hard (bit-exact), with footprints."""

from jaxspec.compress.footprint import speculation_bits, verification_bits
from jaxspec.compress.knob_files import knobs_from_json, knobs_to_json
from jaxspec.compress.knobs import Knobs, harden, uniform_knobs
from jaxspec.compress.kv import compress_cache, hard_kv, prepare_kv, soft_kv
from jaxspec.compress.schemes import DEFAULT_SCHEME, SCHEMES, Scheme, find_scheme
from jaxspec.compress.weights import DraftWeights, activation_norms, hard_draft, prepare, soft_draft
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH, KnobSpec

__all__ = [
    "DEFAULT_SCHEME",
    "MAX_DRAFT_LENGTH",
    "SCHEMES",
    "DraftWeights",
    "KnobSpec",
    "Knobs",
    "Scheme",
    "activation_norms",
    "compress_cache",
    "find_scheme",
    "hard_draft",
    "hard_kv",
    "harden",
    "knobs_from_json",
    "knobs_to_json",
    "prepare",
    "prepare_kv",
    "soft_draft",
    "soft_kv",
    "speculation_bits",
    "uniform_knobs",
    "verification_bits",
]
