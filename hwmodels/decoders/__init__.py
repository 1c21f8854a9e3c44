"""Decoders and encoders of stored data as hardware, a module for each idea: `huffman_cam.area_overhead(...)`.

`decoder` (rates, how many are needed, where they sit; counts in exact arithmetic; the unary kind), `decode_cost` (time,
stalls, energy), the kind `huffman_cam`, and `encoder` (for what is written at run time).
"""

from hwmodels.decoders import decode_cost, decoder, encoder, huffman_cam
from hwmodels.decoders.decoder import Decoder
from hwmodels.decoders.encoder import Encoder

__all__ = [
    "Decoder",
    "Encoder",
    "decode_cost",
    "decoder",
    "encoder",
    "huffman_cam",
]
