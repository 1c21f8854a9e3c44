"""What test_tiers and test_tier_limits share."""

from hwmodels import MemoryTier

NEAR = MemoryTier(
    bandwidth_bytes_per_s=80.0,
    efficiency=0.5,
    capacity_bytes=10.0,
    access_latency_s=0.5,
    outstanding_accesses=4.0,
    energy_j_per_bit=0.25,
    coupled=True,
)


FAR = MemoryTier(
    bandwidth_bytes_per_s=10.0, efficiency=0.8, capacity_bytes=7.0, given_half_bytes=6.0, energy_j_per_bit=3.0
)


def tiers_of(capacities):
    return [MemoryTier(bandwidth_bytes_per_s=1.0, efficiency=1.0, capacity_bytes=capacity) for capacity in capacities]
