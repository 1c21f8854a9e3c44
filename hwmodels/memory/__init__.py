"""Memories: tiers and what lies in them, caches, and the streaming of packed blocks."""

from hwmodels.memory.lru import (
    CacheHits,
    characteristic_time,
    distinct_items,
    inclusion_probability,
    request_hits,
    residency,
    step_hits,
    zipf_popularity,
)
from hwmodels.memory.superblocks import CACHE_BLOCK_BYTES, SuperblockTraffic, superblock_traffic
from hwmodels.memory.tiers import (
    Placement,
    TrafficCost,
    half_efficiency_bytes,
    place_in_order,
    place_softly,
    seconds_per_byte,
    traffic_by_tier,
    traffic_cost,
)

__all__ = [
    "CACHE_BLOCK_BYTES",
    "CacheHits",
    "Placement",
    "SuperblockTraffic",
    "TrafficCost",
    "characteristic_time",
    "distinct_items",
    "half_efficiency_bytes",
    "inclusion_probability",
    "place_in_order",
    "place_softly",
    "request_hits",
    "residency",
    "seconds_per_byte",
    "step_hits",
    "superblock_traffic",
    "traffic_by_tier",
    "traffic_cost",
    "zipf_popularity",
]
