"""Storage schemes: one file each, and one entry in the registry `jaxspec.settings.schemes`."""

from jaxspec.compress.schemes.interface import CompressedKV, CompressedMatrix, KVCodec, MatrixCodec, OwnKnobs
from jaxspec.compress.schemes.loaded import DEFAULT_SCHEME, SCHEMES, find_scheme
from jaxspec.compress.schemes.scheme import PlainKV, Scheme

__all__ = [
    "DEFAULT_SCHEME",
    "SCHEMES",
    "CompressedKV",
    "CompressedMatrix",
    "KVCodec",
    "MatrixCodec",
    "OwnKnobs",
    "PlainKV",
    "Scheme",
    "find_scheme",
]
