"""The schemes a checkpoint can be packed with, by name."""

from __future__ import annotations

from typing import NamedTuple

from jaxspec.errors import InputError
from jaxspec.formats.container.cassandra_codec import CassandraCodec
from jaxspec.formats.container.codec import Codec, Raw
from jaxspec.formats.container.field_codec import FieldCodec, partitions
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["CODECS", "SCHEMES", "Scheme", "scheme"]


class Scheme(NamedTuple):
    """How tensors are coded.

    Attributes:
        codec: of the tensors it suits; the others stay as they are.
        has_draft: whether the file contains a draft that is smaller than the target.
        title: one line.
    """

    codec: Codec
    has_draft: bool
    title: str


_HUFFMAN = FieldCodec(
    "huffman",
    partitions(
        {
            "BF16": ("1-8-7", (1,)),
            "F16": ("1-5-10", (1,)),
            # The two low bytes of float32 are zeros where the values were bfloat16 once.
            "F32": ("1-8-7-8-8", (1, 3, 4)),
            "F8_E4M3": ("1-4-3", (1,)),
            "F8_E5M2": ("1-5-2", (1,)),
        }
    ),
)
_HUFFLLM = FieldCodec("huffllm", partitions({"F16": ("1-5-5-5", (1, 2, 3)), "BF16": ("1-4-4-7", (1, 2))}))

#: Codecs by the name that a directory gives, which is that of a scheme.
CODECS: dict[str, Codec] = {
    "huffman": _HUFFMAN,
    "huffllm": _HUFFLLM,
    "cassandra1": CassandraCodec("cassandra1"),
    "cassandra1-coded": CassandraCodec("cassandra1-coded"),
    "cassandra2": CassandraCodec("cassandra2"),
    "raw": Raw(),
}

#: Every scheme that a container can hold, by the name that users give; what is said of it is the registry's.
SCHEMES = {
    name: Scheme(CODECS[name], facts.has_draft, facts.title) for name, facts in SCHEME_FACTS.items() if facts.packs
}


def scheme(name: str) -> Scheme:
    """A scheme by name.

    Raises:
        InputError: an unknown one.
    """
    if name not in SCHEMES:
        raise InputError(f"scheme {name!r} came; allowed are {', '.join(SCHEMES)}: choose one")
    return SCHEMES[name]
