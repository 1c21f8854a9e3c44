"""Work divided among processing elements: phases, links, and what is exchanged."""

from hwmodels.parallel.exchange import Exchange, exposed_time, slice_exchange, sum_exchange
from hwmodels.parallel.links import ElementLinks
from hwmodels.parallel.phases import Division, Phase, divide

__all__ = [
    "Division",
    "ElementLinks",
    "Exchange",
    "Phase",
    "divide",
    "exposed_time",
    "slice_exchange",
    "sum_exchange",
]
