"""Memories: tiers and what lies in them, caches, and the streaming of packed blocks."""

from hwmodels.memory.lru import inclusion_probability, residency, zipf_popularity
from hwmodels.memory.tiers import (
    CACHE_BLOCK_BYTES,
    half_efficiency_bytes,
    place_in_order,
    superblock_padding,
)

__all__ = [
    "CACHE_BLOCK_BYTES",
    "half_efficiency_bytes",
    "inclusion_probability",
    "place_in_order",
    "residency",
    "superblock_padding",
    "zipf_popularity",
]
