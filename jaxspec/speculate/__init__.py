"""Speculative decoding of real networks with chains and trees, its rules, and acceptance measured as decoding meets it."""

from jaxspec.speculate.acceptance import (
    BlockPass,
    CycleStatistics,
    TargetText,
    all_starts,
    block_pass,
    expected_cycles,
)
from jaxspec.speculate.chain import Decoded, decode, decode_autoregressively
from jaxspec.speculate.expansion import TreeLimits, tree_limits
from jaxspec.speculate.growing_tree import GrowingTree
from jaxspec.speculate.keys import Purpose, draw_keys
from jaxspec.speculate.measured_ranks import measure_ranks
from jaxspec.speculate.rules import (
    Verdict,
    acceptance_probability,
    residual_distribution,
    token_distribution,
    verify_chain,
)
from jaxspec.speculate.tree import DecodedTrees, autoregressive_tree, decode_tree

__all__ = [
    "BlockPass",
    "CycleStatistics",
    "Decoded",
    "DecodedTrees",
    "GrowingTree",
    "Purpose",
    "TargetText",
    "TreeLimits",
    "Verdict",
    "acceptance_probability",
    "all_starts",
    "autoregressive_tree",
    "block_pass",
    "decode",
    "decode_autoregressively",
    "decode_tree",
    "draw_keys",
    "expected_cycles",
    "measure_ranks",
    "residual_distribution",
    "token_distribution",
    "tree_limits",
    "verify_chain",
]
