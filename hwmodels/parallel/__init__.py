"""Work divided among processing elements or devices: phases, links, collectives, and what is exchanged."""

from hwmodels.parallel.collectives import (
    ALGORITHMS,
    COLLECTIVES,
    CollectiveKernel,
    Link,
    collective_time,
    collective_work,
    kernels_time,
)
from hwmodels.parallel.group import Division, ElementLinks, Exchange, Phase, divide, sum_exchange

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
