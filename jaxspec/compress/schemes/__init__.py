"""Storage schemes: one file each, and one entry in the registry `jaxspec.settings.schemes`."""

from jaxspec.compress.schemes.scheme import (
    DEFAULT_SCHEME,
    SCHEMES,
    CompressedKV,
    CompressedMatrix,
    KVCodec,
    MatrixCodec,
    OwnKnobs,
    PlainKV,
    Scheme,
    find_scheme,
)

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
