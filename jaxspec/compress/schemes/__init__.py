"""Storage schemes: one file each, and one entry in the registry `jaxspec.settings.schemes`."""

from jaxspec.compress.schemes.interface import CompressedKV, CompressedMatrix, OwnKnobs, Scheme
from jaxspec.compress.schemes.loaded import DEFAULT_SCHEME, SCHEMES, find_scheme

__all__ = [
    "DEFAULT_SCHEME",
    "SCHEMES",
    "CompressedKV",
    "CompressedMatrix",
    "OwnKnobs",
    "Scheme",
    "find_scheme",
]
