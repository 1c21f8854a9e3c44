"""The target's compressed copy as a draft: with a pool of experts where the network has experts and the scheme such a knob."""

from __future__ import annotations

import dataclasses

from jaxspec.compress.expert_pool import has_pool
from jaxspec.compress.knobs import Knobs
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.speculate.drafts.elastic_draft import ElasticDraft
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.drafts.self_draft import SelfDraft, SelfDraftParams

__all__ = ["compressed_copy"]


def compressed_copy(
    config: DecoderConfig, compressed: Params, knobs: Knobs, *, sharing: int = 1, name: str = ""
) -> ReadyDraft:
    """The target's compressed copy, ready to run.

    Args:
        compressed: its matrices, of the target's shapes. knobs: how it reads committed KV, and the size of its pools.
        sharing: consecutive sequences of a batch that share a pool of experts.
        name: what a user calls it; empty: its kind's.
    """
    draft = ElasticDraft(config, sharing) if has_pool(knobs, config) else SelfDraft(config)
    return ReadyDraft(dataclasses.replace(draft, name=name or draft.name), SelfDraftParams(compressed, knobs))
