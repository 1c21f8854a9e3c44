"""Cassandra's objective J: acceptance for each bit that a draft leaves in its weights and KV cache, and the search by it.

J knows neither a device nor what pruning and coding cost: no bitmap, no exponent code, no verification. It stands beside
predicted speedups, to show where the two disagree.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from functools import cache, partial

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels import ALL_LAYER_MATRICES, Architecture, Case
from hwmodels.network.architecture import cached_rows, kv_elements_per_token, parameters
from hwmodels.network.footprint import UNCOMPRESSED_BITS, Footprint
from hwmodels.numerics.fast_compile import jit_fast_compile
from hwmodels.numerics.scalars import Leaf, Number, as_float
from jaxspec.compress.footprint import BitsPerValue, measured_footprint
from jaxspec.compress.knobs import Knobs, uniform_knobs
from jaxspec.compress.schemes import Scheme
from jaxspec.models.config import DecoderConfig
from jaxspec.settings.knobs import CUT_AND_PRUNE, KnobSpec
from jaxspec.tuning.objective import DraftMeasurement
from jaxspec.tuning.priced_footprint import priced_footprint

__all__ = ["J_LENGTH", "compiled_j", "left_bits", "num_candidates", "objective_j", "relative_j", "two_stages"]

#: Drafted tokens whose accepted share is alpha: those of Cassandra-1 in the paper's table of acceptance rates.
J_LENGTH = 5

_WEIGHTS, _KV = ("weight_prune", "weight_cut_bits"), ("kv_prune", "kv_cut_bits")


def left_bits(pruned: Number, cut: Number) -> Leaf:
    """Bits per value that a draft leaves: (1 - pruned share) (16 - cut bits), "*b"."""
    return (1.0 - as_float(pruned)) * (UNCOMPRESSED_BITS - as_float(cut))


def objective_j(alpha: Number, terms: Iterable[tuple[Number, Number]]) -> Leaf:
    """J, per bit.

    Args:
        alpha: "*b", accepted share of the drafted tokens.
        terms: of weights and of the KV cache: elements, and bits left of each (see `left_bits`).
    Source: Cassandra, VII-B.2, Eq. 2.
    """
    return as_float(alpha) / sum(as_float(size) * as_float(bits) for size, bits in terms)


@cache
def compiled_j(config: DecoderConfig) -> Callable[[Case, DraftMeasurement, Knobs], Float[Array, ""]]:
    """`relative_j` of drafts of a network, as one program: operation by operation would compile twenty."""
    return jit_fast_compile(partial(relative_j, config=config))


def relative_j(pricing: Case, measured: DraftMeasurement, knobs: Knobs, config: DecoderConfig) -> Float[Array, ""]:
    """J of a draft over J of an undivided draft of which every token is accepted: 1 for that one, more is better.

        J = alpha / (S_w (1 - w_p) (B - w_t) + S_kv (1 - kv_p) (B - kv_t))

    Args:
        pricing: its architecture has S_w elements in the matrices of its layers, its workload S_kv in all KV caches.
        measured: of the draft; alpha is the accepted share of `J_LENGTH` drafted tokens.
        knobs: of a scheme that prunes and cuts; where matrices or layers differ, each counts with its elements.
        config: of the network that runs.
    Source: Cassandra, VII-B.2, Eq. 2. B is 16 bits.
    """
    left = _left_of_kinds(knobs, config, pricing.architecture)
    elements = parameters(pricing.architecture)
    weights = [(as_float(elements[kind]), left.draft_weight_bits[kind]) for kind in ALL_LAYER_MATRICES]
    sizes = [*weights, (_kv_elements(pricing), left.draft_kv_bits)]
    alpha = jnp.mean(jnp.asarray(measured.survival)[:J_LENGTH])
    whole = objective_j(1.0, [(size, UNCOMPRESSED_BITS) for size, _ in sizes])
    return objective_j(alpha, sizes) / whole


def _kv_elements(pricing: Case) -> Leaf:
    """Elements in the KV caches of all sequences."""
    load = pricing.workload
    rows = cached_rows(pricing.architecture, load.context_tokens, batch=load.batch, shared_tokens=load.shared_tokens)
    return rows * kv_elements_per_token(pricing.architecture)


def _left_of_kinds(knobs: Knobs, config: DecoderConfig, priced: Architecture) -> Footprint:
    """(1 - pruned) (B - cut) of each kind of the priced network's matrices, and of its KV cache; scalar leaves."""
    of_matrices, of_layers = (left_bits(*(knobs.values[name] for name in names)) for names in (_WEIGHTS, _KV))
    bits = {}
    for place, kind in enumerate(config.matrix_kinds):
        layers = jnp.asarray(list(config.layer_parameters[kind].layers()))
        bits[kind] = BitsPerValue(*[of_matrices[layers, place]] * 2)
    if config.mixed_layers is not None:
        of_layers = of_layers[jnp.asarray(config.mixed_layers.attending, int)]
    return priced_footprint(measured_footprint(bits, BitsPerValue(*[of_layers] * 2)), priced)


def num_candidates() -> int:
    """Drafts that `two_stages` scores."""
    return 2 * math.prod(map(len, _grids(CUT_AND_PRUNE)))


def _grids(specs: Iterable[KnobSpec]) -> list[tuple[float, ...]]:
    """Pruned shares and cut bits of either term."""
    return [spec.grid for spec in specs if spec.grid]


def two_stages(scheme: Scheme, config: DecoderConfig, pricing: Case, score: Callable[[Knobs], float]) -> Knobs:
    """The draft with the largest J over a grid of the larger term, weights or KV cache, and then over that of the other.

    Args:
        scheme: one that prunes and cuts (see `SchemeFacts`); the search starts at its defaults.
        config: of the network that runs.
        score: J of a draft.
    Returns:
        Uniform knobs.
    Source: Cassandra, VII-B.2: pruned shares of 30 to 60 % in steps of 10 %, 0 to 5 cut bits.
    """
    elements = parameters(pricing.architecture)
    weights = sum(float(elements[kind]) for kind in ALL_LAYER_MATRICES)
    order = (_WEIGHTS, _KV) if weights >= float(_kv_elements(pricing)) else (_KV, _WEIGHTS)
    best = uniform_knobs(scheme, config)
    grids = _grids(best.scheme.knob_specs)
    for names in order:
        tried = [_with(best, dict(zip(names, point, strict=True))) for point in itertools.product(*grids)]
        best = max(tried, key=score)
    return best


def _with(knobs: Knobs, values: dict[str, float]) -> Knobs:
    """Some knobs set to one number each, everywhere."""
    return knobs.replace_values(**{name: jnp.full_like(knobs.values[name], value) for name, value in values.items()})
