"""Kinds of block that a decoder layer consists of: attention and feed-forward, one file for each kind."""

from jaxspec.models.blocks.dense import DenseFeedForward
from jaxspec.models.blocks.experts import Experts
from jaxspec.models.blocks.gated_delta_net import GatedDeltaNet
from jaxspec.models.blocks.grouped_attention import GroupedAttention
from jaxspec.models.blocks.interface import (
    Attention,
    AttentionResult,
    CachedShape,
    FeedForward,
    FeedForwardResult,
    StepInput,
)
from jaxspec.models.blocks.latent_attention import LatentAttention
from jaxspec.models.blocks.short_convolution import ShortConvolution

__all__ = [
    "Attention",
    "AttentionResult",
    "CachedShape",
    "DenseFeedForward",
    "Experts",
    "FeedForward",
    "FeedForwardResult",
    "GatedDeltaNet",
    "GroupedAttention",
    "LatentAttention",
    "ShortConvolution",
    "StepInput",
]
