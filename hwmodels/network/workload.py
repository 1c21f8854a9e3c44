"""What is decoded: sequences, their context and their lengths."""

from __future__ import annotations

import flax.struct

from hwmodels.numerics.scalars import Leaf


@flax.struct.dataclass
class Workload:
    """What is decoded. Every field is a leaf, "*b"."""

    batch: Leaf = 1.0  # sequences decoded together
    context_tokens: Leaf = 1024.0  # cached tokens per sequence at the step that is priced
    prompt_tokens: Leaf = 512.0  # per sequence, processed by one prefill
    output_tokens: Leaf = 512.0  # per sequence, decoded
    shared_tokens: Leaf = 0.0  # of the context, that all sequences have in common: held once, and read once per step
