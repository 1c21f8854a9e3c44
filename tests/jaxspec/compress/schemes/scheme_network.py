"""Sizes of the network that schemes are tried on: odd ones, so that no two axes have the same extent."""

from jaxspec.models.config import DecoderConfig

CONFIG = DecoderConfig(
    vocab_size=7, hidden_size=18, intermediate_size=26, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=6
)
