"""Storage schemes: one file each, and one entry in the registry `jaxspec.settings.schemes`."""

from jaxspec.compress.schemes.interface import CompressedKV, CompressedLayer, Layer, LayerKnobs, Scheme
from jaxspec.compress.schemes.loaded import DEFAULT_SCHEME, SCHEMES, find_scheme

__all__ = [
    "DEFAULT_SCHEME",
    "SCHEMES",
    "CompressedKV",
    "CompressedLayer",
    "Layer",
    "LayerKnobs",
    "Scheme",
    "find_scheme",
]
