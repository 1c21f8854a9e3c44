"""The schemes a checkpoint can be packed with, by name."""

from __future__ import annotations

from typing import NamedTuple

from jaxspec.errors import InputError
from jaxspec.formats.container.cassandra_codec import CassandraCodec
from jaxspec.formats.container.codec import Codec, Raw
from jaxspec.formats.container.field_codec import FieldCodec, partitions

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

#: Every scheme by the name that users give.
SCHEMES = {
    "huffman": Scheme(_HUFFMAN, False, "exponents by Huffman codes; lossless, decodes fastest"),
    "huffllm": Scheme(
        _HUFFLLM, False, "Huff-LLM's fields (float16 1-5-5-5, bfloat16 1-4-4-7), each Huffman-coded; lossless"
    ),
    "cassandra1": Scheme(
        CassandraCodec("cassandra1"), True, "a draft of pruned, truncated values with unary exponents; lossless"
    ),
    "cassandra1-coded": Scheme(
        CassandraCodec("cassandra1-coded"), True, "the same, exponents of pruned values coded too; lossless"
    ),
    "cassandra2": Scheme(
        CassandraCodec("cassandra2"),
        True,
        "a draft with shared MX exponents; changes the target a little (not lossless)",
    ),
    "raw": Scheme(Raw(), False, "every tensor as it is, checksummed"),
}

#: Codecs by the name that a directory gives.
CODECS: dict[str, Codec] = {found.codec.name: found.codec for found in SCHEMES.values()}


def scheme(name: str) -> Scheme:
    """A scheme by name.

    Raises:
        InputError: an unknown one.
    """
    if name not in SCHEMES:
        raise InputError(f"scheme {name!r} came; allowed are {', '.join(SCHEMES)}: choose one")
    return SCHEMES[name]
