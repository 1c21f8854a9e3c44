"""Speculative decoding of real networks with trees and chains, its rules, its proof, and acceptance as decoding meets it."""

from typing import TYPE_CHECKING

from jaxspec.lazy_names import lazy_names

if TYPE_CHECKING:
    from jaxspec.speculate.acceptance import (
        BlockPass,
        Interval,
        TargetText,
        acceptance_rates,
        all_starts,
        block_pass,
        compare_cycles,
        speedup_ratio,
    )
    from jaxspec.speculate.chunks import Prompts
    from jaxspec.speculate.dynamic_tree import DynamicTree
    from jaxspec.speculate.engine import Decoded, autoregressive_tree, decode, decode_autoregressively
    from jaxspec.speculate.expansion import TreeLimits, chain_limits, tree_limits
    from jaxspec.speculate.loop import Request
    from jaxspec.speculate.measured_ranks import ContinuedTexts, measure_ranks, record_ranks
    from jaxspec.speculate.predicted_cycles import CycleStatistics, expected_cycles, predict_cycles
    from jaxspec.speculate.proof import (
        continuation_length,
        continue_texts,
        count_mismatches,
        decode_chains,
        decode_prompts,
    )
    from jaxspec.speculate.sampling import GREEDY, SAMPLING, Decoding, Purpose, draw_keys, token_distribution
    from jaxspec.speculate.tree_rules import TreeVerdict, acceptance_probability, residual_distribution, verify_tree

__all__ = [
    "GREEDY",
    "SAMPLING",
    "BlockPass",
    "ContinuedTexts",
    "CycleStatistics",
    "Decoded",
    "Decoding",
    "DynamicTree",
    "Interval",
    "Prompts",
    "Purpose",
    "Request",
    "TargetText",
    "TreeLimits",
    "TreeVerdict",
    "acceptance_probability",
    "acceptance_rates",
    "all_starts",
    "autoregressive_tree",
    "block_pass",
    "chain_limits",
    "compare_cycles",
    "continuation_length",
    "continue_texts",
    "count_mismatches",
    "decode",
    "decode_autoregressively",
    "decode_chains",
    "decode_prompts",
    "draw_keys",
    "expected_cycles",
    "measure_ranks",
    "predict_cycles",
    "record_ranks",
    "residual_distribution",
    "speedup_ratio",
    "token_distribution",
    "tree_limits",
    "verify_tree",
]

lazy_names(__name__)
