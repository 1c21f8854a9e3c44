"""The codecs of tensors by name; which one a scheme has, and what else is said of a scheme, is the registry's."""

from __future__ import annotations

from typing import Any

from jaxspec.errors import InputError
from jaxspec.formats.container.cassandra_codec import CassandraCodec
from jaxspec.formats.container.codec import Codec, Raw
from jaxspec.formats.container.field_codec import FieldCodec, partitions
from jaxspec.formats.container.slice_codec import SliceCodec
from jaxspec.formats.container.tensors import StoredTensor, TensorForm
from jaxspec.registries import Registry, lacking
from jaxspec.settings.schemes import OWN_SCHEMES, SCHEME_FACTS

__all__ = ["CODECS", "codec_of", "drafted_bytes", "packed_form"]


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

_ALL: tuple[Codec, ...] = (
    _HUFFMAN,
    _HUFFLLM,
    CassandraCodec("cassandra1"),
    CassandraCodec("cassandra1-coded", pruned_coded=True),
    *(
        CassandraCodec(facts.name, shared=facts.shared_exponents)
        for facts in OWN_SCHEMES
        if facts.codec == facts.name and facts.shared_exponents
    ),
    SliceCodec("any-precision", "truncation"),
    SliceCodec("bit-slices", "augmentation"),
    Raw(),
)


def _accept(name: str, found: Any) -> Codec:
    members = "name lossless dtypes gives prunes version unit plan packed_form check encode decode draft part"
    if missing := lacking(found, members):
        raise ValueError(f"codec {name!r}: {missing}; a codec has the members of `Codec`")
    return found


#: All codecs, by the name that directories give.
CODECS: Registry[Codec] = Registry("codec", {codec.name: codec for codec in _ALL}, _accept)


def codec_of(scheme_name: str) -> Codec:
    """The codec of the matrices that a scheme divides or codes; other tensors stay as they are.

    Raises:
        InputError: an unknown name, or a scheme that no container can hold.
    """
    facts = SCHEME_FACTS.get(scheme_name)
    if facts is None or facts.codec is None:
        allowed = ", ".join(name for name, known in SCHEME_FACTS.items() if known.packs)
        raise InputError(f"scheme {scheme_name!r} came; allowed are {allowed}: choose one")
    return CODECS[facts.codec]


def drafted_bytes(tensor: StoredTensor) -> int:
    """Bytes of a tensor's sections that a draft reads, all chunks together."""
    codec = CODECS[tensor.codec]
    return sum(length for role, length in tensor.stored_bytes().items() if codec.part(role) == "draft")


def packed_form(tensor: StoredTensor) -> TensorForm:
    """What a tensor was before it was packed; `tensor.form` is what it is given back as."""
    return CODECS[tensor.codec].packed_form(tensor.coding, tensor.form)
