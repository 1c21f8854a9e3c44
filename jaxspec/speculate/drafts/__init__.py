"""Drafts for tree decoding: what each remembers, and what it says of the tokens after a root or a node."""

from jaxspec.speculate.drafts.head_draft import HeadDraft, HeadDraftParams
from jaxspec.speculate.drafts.interface import Committed, Draft, Level, Memory, Root
from jaxspec.speculate.drafts.network_draft import NetworkDraft
from jaxspec.speculate.drafts.ngram_draft import NGramDraft, NGramParams
from jaxspec.speculate.drafts.self_draft import SelfDraft, SelfDraftParams

__all__ = [
    "Committed",
    "Draft",
    "HeadDraft",
    "HeadDraftParams",
    "Level",
    "Memory",
    "NGramDraft",
    "NGramParams",
    "NetworkDraft",
    "Root",
    "SelfDraft",
    "SelfDraftParams",
]
