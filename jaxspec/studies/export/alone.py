"""Held-out prompts decoded with a draft as a network of its own, as engines run it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.results import given, measured
from jaxspec.results.network_results import AcceptanceRates
from jaxspec.runs.progress import Reporter
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.chunks import chunk_size
from jaxspec.speculate.drafts import ReadyDraft
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.sampling import Decoding
from jaxspec.speculate.statistics import acceptance_rates
from jaxspec.studies.export.result import DecodedDraft
from jaxspec.trees.text_ratios import ratio_of_totals


class Prompts(NamedTuple):
    """What is decoded, and how."""

    tokens: np.ndarray
    lengths: np.ndarray
    output_tokens: int
    decoding: Decoding
    seed: int
    stop: Sequence[int]


def decoded_alone(
    params: Params,
    config: DecoderConfig,
    draft: ReadyDraft,
    prompts: Prompts,
    length: int,
    reporter: Reporter,
    *,
    longest: int = MAX_DRAFT_LENGTH,
) -> DecodedDraft:
    """Acceptance and tokens per cycle of chains.

    Args:
        params, config: of the target.
        length: drafted tokens per cycle.
        longest: see `decode_chains`.
    """
    count = len(prompts.tokens)
    with reporter.bar("decoding with the draft as engines run it", count, step=chunk_size(count)) as bar:
        counts = decode_chains(
            params,
            config,
            draft,
            prompts.tokens,
            length,
            longest=longest,
            num_tokens=prompts.output_tokens,
            decoding=prompts.decoding,
            seed=prompts.seed,
            lengths=prompts.lengths,
            stop=prompts.stop,
            advance=bar.advance,
        )
    rates: dict[str, Any] = acceptance_rates(counts["accepted_at"], counts["ended_at"], counts["cycles"], length)
    ratio = ratio_of_totals(counts["generated"].astype(np.float64), counts["cycles"].astype(np.float64))
    return DecodedDraft(
        prompts=given(count),
        acceptance=AcceptanceRates(**{name: measured(rate) for name, rate in rates.items()}),
        tokens_per_cycle=measured(float(ratio.mean), float(ratio.standard_error)),
    )
