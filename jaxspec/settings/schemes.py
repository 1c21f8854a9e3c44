"""Names of the storage schemes, by command, and which of them contain a draft that knobs decide.

The schemes themselves are in `compress.scheme_widths` and `formats.container.schemes`; a test compares the names.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["PACKED_WITH_DRAFT", "WIDTHS_WITH_DRAFT", "NetworkScheme", "PackScheme", "WidthScheme"]

#: How a network that runs stores its pruned values.
NetworkScheme = Literal["cassandra1", "cassandra1-coded"]

#: What a checkpoint can be packed with.
PackScheme = Literal["huffman", "huffllm", "cassandra1", "cassandra1-coded", "cassandra2", "raw"]

#: Those with a draft inside.
PACKED_WITH_DRAFT = ("cassandra1", "cassandra1-coded", "cassandra2")

#: What can be priced without a network.
WidthScheme = Literal[
    "bf16",
    "cassandra1",
    "cassandra1-coded",
    "cassandra2",
    "huffman",
    "huffllm",
    "bit-slices",
    "q8_0",
    "q4_0",
    "mxfp8",
    "mxfp4",
]

#: Those whose widths the four knobs decide.
WIDTHS_WITH_DRAFT = ("cassandra1", "cassandra1-coded", "cassandra2")
