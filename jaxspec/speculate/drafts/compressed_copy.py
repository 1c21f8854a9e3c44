"""The target's compressed copy as a draft: with a pool of experts where the network has experts and the scheme such a knob."""

from __future__ import annotations

from jaxspec.compress.expert_pool import has_pool
from jaxspec.compress.knobs import Knobs
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.speculate.drafts.elastic_draft import ElasticDraft
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.drafts.self_draft import SelfDraftParams, self_draft

__all__ = ["compressed_copy"]


def compressed_copy(config: DecoderConfig, compressed: Params, knobs: Knobs, *, sharing: int = 1) -> ReadyDraft:
    """The target's compressed copy, ready to run.

    Args:
        compressed: its matrices, of the target's shapes. knobs: how it reads committed KV, and the size of its pools.
        sharing: consecutive sequences of a batch that share a pool of experts.
    """
    if has_pool(knobs, config):
        return ReadyDraft(ElasticDraft(config, sharing), SelfDraftParams(compressed, knobs))
    return self_draft(config, compressed, knobs)
