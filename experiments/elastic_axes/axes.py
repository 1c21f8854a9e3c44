"""The four measurements: both axes together, how pools are chosen, how weights are read, and how many experts tokens touch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.elastic_axes.measuring import (
    Measured,
    Settings,
    accepted_tokens,
    hot_pools,
    length_of,
    random_pools,
)
from experiments.elastic_axes.readings import DEDICATED, READINGS, read_network
from experiments.quantization_quality.intervals import bootstrap

__all__ = [
    "CAPACITY_SHARE",
    "SHARING",
    "WIDTHS",
    "PoolRules",
    "both_axes",
    "draft_bytes",
    "pool_rules",
    "pool_sizes_of",
    "unique_experts",
    "weight_readings",
]

#: Bit widths of a draft.
WIDTHS = (2, 3, 4, 5, 6)

#: Width of the paper's draft, where one width is measured.
WIDTH = 4

#: Share of the INT8 network that fits into fast memory, in the paper's smaller setting: 8 GB beside a network of 32.
CAPACITY_SHARE = 0.25

#: Sequences that share a pool, where several do.
SHARING = (4, 16)

#: Rule that others are compared with.
_RANDOM = "random"

Advance = Callable[[], None]


def pool_sizes_of(network: Measured, count: int = 7) -> list[int]:
    """Sizes of pools, from a token's own number of experts to all of them."""
    least, most = network.experts.per_token, network.experts.num_experts
    return sorted({int(size) for size in np.rint(np.linspace(least, most, count))})


def draft_bytes(network: Measured, size: int, bits: float) -> float:
    """Bytes that a draft keeps at hand: upper slices of all matrices with their scales, of so many experts per layer; the rest
    of the network in 16 bits."""
    config, slice_bits = network.config, bits + 16 / 32
    total = 0.0
    for kind in config.matrix_kinds:
        parameter = config.layer_parameters[kind]
        share = size / network.experts.num_experts if kind.startswith("expert_") else 1.0
        total += share * parameter.num_layers * float(np.prod(parameter.shape)) * slice_bits / 8
    matrices = sum(
        config.layer_parameters[kind].num_layers * float(np.prod(config.layer_parameters[kind].shape))
        for kind in config.matrix_kinds
    )
    return total + (config.num_parameters() - matrices) * 2


def both_axes(network: Measured, settings: Settings, advance: Advance) -> list[dict[str, Any]]:
    """Fig. 5b: acceptance length over the size of the pools and the bit width."""
    ranks, rows = hot_pools(network), []
    for bits in WIDTHS:
        draft = read_network("augmentation", bits, network.stored, network.target, network.config)
        for size in pool_sizes_of(network):
            found = length_of(accepted_tokens(network, draft, ranks, size, settings))
            rows.append({"bits": bits, "pool": size, "bytes": draft_bytes(network, size, bits), **found._asdict()})
            advance()
    return rows


class PoolRules(NamedTuple):
    """Pools of each rule and size.

    Attributes:
        rows: acceptance lengths.
        gains: those of a rule over those of random pools of equal size, with 95 % intervals over the same texts.
    """

    rows: list[dict[str, Any]]
    gains: list[dict[str, Any]]


def pool_rules(
    network: Measured, settings: Settings, sharing: Sequence[int], retentions: Sequence[float], advance: Advance
) -> PoolRules:
    """Fig. 17a and b: pools of hot experts, of one sequence or of several together, against random ones of equal size.

    Args:
        retentions: further factors by which hotness falls, for pools of one sequence.
    """
    draft = read_network("augmentation", WIDTH, network.stored, network.target, network.config)
    rules = {_RANDOM: random_pools(network, settings.seed), "hotness": hot_pools(network)}
    rules |= {f"hotness of {count} sequences": hot_pools(network, sharing=count) for count in sharing}
    rules |= {f"hotness, retention {factor:g}": hot_pools(network, retention=factor) for factor in retentions}
    found = PoolRules([], [])
    for size in pool_sizes_of(network)[:-1]:
        accepted = {}
        for rule, ranks in rules.items():
            accepted[rule] = accepted_tokens(network, draft, ranks, size, settings)
            found.rows.append({"rule": rule, "pool": size, "bits": WIDTH, **length_of(accepted[rule])._asdict()})
            advance()
        for rule in rules:
            if rule != _RANDOM:
                gain = bootstrap(np.divide, accepted[rule], accepted[_RANDOM])
                found.gains.append({"rule": rule, "pool": size, **gain._asdict()})
    return found


def weight_readings(network: Measured, settings: Settings, advance: Advance) -> list[dict[str, Any]]:
    """Fig. 17c: what the upper bits are taken for, with all experts in the pool."""
    ranks, rows = hot_pools(network), []
    for bits in WIDTHS:
        for reading in READINGS:
            draft = read_network(reading, bits, network.stored, network.target, network.config)
            found = length_of(accepted_tokens(network, draft, ranks, network.experts.num_experts, settings))
            # Rounding needs one bit more to store what is left of a weight; dedicated weights are stored beside the target's.
            extra = {"rounding": 1.0, DEDICATED: bits + 0.5}.get(reading, 0.0)
            rows.append({"reading": reading, "bits": bits, "extra_bits_per_weight": extra, **found._asdict()})
            advance()
    return rows


def unique_experts(network: Measured, most: int) -> list[dict[str, Any]]:
    """Fig. 16b: distinct experts of a layer that so many tokens choose: neighbours in one text, or one each of several texts.

    Args:
        most: tokens, at most as many as there are texts.
    """
    chosen = np.asarray(network.chosen)[:, network.text.first :]  # "batch token layer chosen"
    experts = network.experts.num_experts
    hot = np.zeros((*chosen.shape[:3], experts), bool)
    np.put_along_axis(hot, chosen, True, axis=-1)
    rows = []
    for tokens in range(1, min(most, *chosen.shape[:2]) + 1):
        windows = np.lib.stride_tricks.sliding_window_view(hot, tokens, axis=1)
        within = windows.any(axis=-1).sum(axis=-1).mean()
        texts = np.stack([np.roll(hot, shift, axis=0) for shift in range(tokens)])
        between = texts.any(axis=0).sum(axis=-1).mean()
        even = experts * (1 - (1 - network.experts.per_token / experts) ** tokens)
        rows.append(
            {"tokens": tokens, "one_request": float(within), "several_requests": float(between), "even": float(even)}
        )
    return rows
