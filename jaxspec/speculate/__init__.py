"""Speculative decoding of real networks, its rules, and acceptance measured as decoding meets it."""

from jaxspec.speculate.acceptance import (
    BlockPass,
    CycleStatistics,
    TargetText,
    all_starts,
    block_pass,
    expected_cycles,
)
from jaxspec.speculate.chain import Decoded, decode, decode_autoregressively
from jaxspec.speculate.keys import Purpose, draw_keys
from jaxspec.speculate.rules import (
    Verdict,
    acceptance_probability,
    residual_distribution,
    token_distribution,
    verify_chain,
)

__all__ = [
    "BlockPass",
    "CycleStatistics",
    "Decoded",
    "Purpose",
    "TargetText",
    "Verdict",
    "acceptance_probability",
    "all_starts",
    "block_pass",
    "decode",
    "decode_autoregressively",
    "draw_keys",
    "expected_cycles",
    "residual_distribution",
    "token_distribution",
    "verify_chain",
]
