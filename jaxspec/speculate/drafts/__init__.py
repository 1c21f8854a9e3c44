"""Drafts: what each remembers, which tokens it proposes after a root or a node, and what it costs."""

from jaxspec.speculate.drafts.elastic_draft import ElasticDraft, compressed_copy
from jaxspec.speculate.drafts.factory import check_draft, make_draft
from jaxspec.speculate.drafts.head_draft import HeadDraft, HeadDraftParams
from jaxspec.speculate.drafts.interface import Committed, Draft, Level, Memory, ReadyDraft, Root
from jaxspec.speculate.drafts.network_draft import NetworkDraft
from jaxspec.speculate.drafts.ngram_draft import NGramDraft, NGramParams
from jaxspec.speculate.drafts.quantized_draft import QuantizedDraft
from jaxspec.speculate.drafts.self_draft import SelfDraft, SelfDraftParams, self_draft

__all__ = [
    "Committed",
    "Draft",
    "ElasticDraft",
    "HeadDraft",
    "HeadDraftParams",
    "Level",
    "Memory",
    "NGramDraft",
    "NGramParams",
    "NetworkDraft",
    "QuantizedDraft",
    "ReadyDraft",
    "Root",
    "SelfDraft",
    "SelfDraftParams",
    "check_draft",
    "compressed_copy",
    "make_draft",
    "self_draft",
]
