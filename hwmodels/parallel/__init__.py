"""Work divided among processing elements or devices: phases, links, collectives, and what is exchanged."""

from hwmodels.parallel.collectives import (
    ALGORITHMS,
    COLLECTIVES,
    CollectiveKernel,
    collective_work,
    kernels_time,
)
from hwmodels.parallel.exchange import Division, ElementLinks, Exchange, Phase, divide, sum_exchange
from hwmodels.parallel.network_link import Link, collective_time

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "CollectiveKernel",
    "Division",
    "ElementLinks",
    "Exchange",
    "Link",
    "Phase",
    "collective_time",
    "collective_work",
    "divide",
    "kernels_time",
    "sum_exchange",
]
