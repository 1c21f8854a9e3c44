"""Number formats, bit for bit: fields of bfloat16, truncation, speculation and verification data, code lengths."""

from jaxspec.formats.bfloat16 import (
    Fields,
    from_bits,
    high_part,
    low_part,
    merge_fields,
    split_fields,
    to_bits,
    truncate,
)
from jaxspec.formats.split import SplitTensor, draft_values, join_tensor, split_tensor
from jaxspec.formats.unary import mean_code_length, weighted_counts

__all__ = [
    "Fields",
    "SplitTensor",
    "draft_values",
    "from_bits",
    "high_part",
    "join_tensor",
    "low_part",
    "mean_code_length",
    "merge_fields",
    "split_fields",
    "split_tensor",
    "to_bits",
    "truncate",
    "weighted_counts",
]
