"""Decoders and encoders of stored data as hardware, a module for each idea: `huffman_cam.area_overhead(...)`.

`decoder` (rates, how many are needed, where they sit; counts in exact arithmetic; the unary kind), the kind `huffman_cam`, and
`encoder` (for what is written at run time). Time and energy of decoding are those of a step: `hwmodels.step.step_cost`.
"""

from hwmodels.decoders import decoder, encoder, huffman_cam
from hwmodels.decoders.decoder import Decoder
from hwmodels.decoders.encoder import Encoder

__all__ = [
    "Decoder",
    "Encoder",
    "decoder",
    "encoder",
    "huffman_cam",
]
