"""What users of an engine see: time to the first token, time per further token, time of a whole request, and throughput."""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import Leaf
from hwmodels.serving.engine import Served
from hwmodels.serving.requests import Requests

__all__ = ["PERCENTILES", "Latencies", "crossing_rate", "latencies"]

#: Of every latency.
PERCENTILES = (50.0, 90.0, 99.0)


@flax.struct.dataclass
class Latencies:
    """Latencies by percentile and what the engine did, "*b"."""

    ttft_s: Float[Array, "*b percentile"]  # from arrival to the first token
    tpot_s: Float[Array, "*b percentile"]  # per further token, a mean of each request
    request_s: Float[Array, "*b percentile"]  # from arrival to the last token
    tokens_per_s: Float[Array, "*b"]  # generated for all requests, from the first arrival to the end
    requests_per_s: Float[Array, "*b"]  # that end, likewise
    mean_batch: Float[Array, "*b"]  # requests in the engine while it works
    utilisation: Float[Array, "*b"]  # share of the time that the engine is in steps


def latencies(requests: Requests, served: Served, *, warm_up: float = 0.1) -> Latencies:
    """Summary of one run; `vmap` for several.

    Args:
        requests, served: of one run.
        warm_up: static, in [0, 1); share of the requests, the first ones, whose latencies do not count, as they
            find an empty engine.
    """
    first = int(warm_up * requests.arrival_s.shape[-1])
    arrival, output = requests.arrival_s, requests.output_tokens
    further = jnp.maximum(output - 1.0, 1.0)
    tpot = jnp.where(output > 1, (served.request_s - served.ttft_s) / further, jnp.nan)
    span_s = served.end_s - arrival[0]

    def of(values: Leaf) -> Float[Array, " percentile"]:
        return jnp.nanpercentile(values[first:], jnp.asarray(PERCENTILES))

    return Latencies(
        ttft_s=of(served.ttft_s),
        tpot_s=of(tpot),
        request_s=of(served.request_s),
        tokens_per_s=jnp.sum(output) / span_s,
        requests_per_s=arrival.shape[-1] / span_s,
        mean_batch=served.held_slots_s / served.busy_s,
        utilisation=served.busy_s / span_s,
    )


def crossing_rate(rates_per_s: np.ndarray, without: np.ndarray, with_draft: np.ndarray) -> float | None:
    """The arrival rate from which a latency with a draft is no longer below the one without.

    Args:
        rates_per_s: "rate", increasing, > 0.
        without, with_draft: "rate", > 0.
    Returns:
        Where the logarithm of their ratio, straight between rates in their logarithm, rises to 0; None where the draft is
        slower from the lowest rate on, faster at all rates, or faster again at a rate beyond.
    """
    ratio, log_rate = np.log(with_draft / without), np.log(rates_per_s)
    place = int(np.argmax(ratio >= 0))  # the first one; 0 where there is none
    if place == 0 or np.any(ratio[place:] < 0):
        return None
    share = -ratio[place - 1] / (ratio[place] - ratio[place - 1])
    return float(np.exp(log_rate[place - 1] + share * (log_rate[place] - log_rate[place - 1])))
