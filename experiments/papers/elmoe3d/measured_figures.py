"""Figures 5b and 17, measured on the embedded mixture of experts: the paper's targets are a thousand times as large.

As many prompts as `python -m experiments.elastic_axes` takes: with a third of them, pools differ by chance.
"""

from __future__ import annotations

import functools

from matplotlib.figure import Figure

from experiments.elastic_axes import axes, figures
from experiments.elastic_axes.measuring import Measured, Settings, measured_network
from jaxspec.models.embedded import load_model

__all__ = ["pool_and_bits_figure", "pools_figure", "readings_figure"]

_NAME = "embedded-moe"
_SETTINGS = Settings()


@functools.cache
def _network() -> Measured:
    return measured_network(load_model(_NAME), _SETTINGS)


def _nothing() -> None:
    """No progress is shown."""


def pool_and_bits_figure() -> Figure:
    """Fig. 5b: acceptance over pool size and bit width; framed is what fits into a quarter of the INT8 network's bytes."""
    network = _network()
    capacity = axes.CAPACITY_SHARE * axes.draft_bytes(network, network.experts.num_experts, 8)
    return figures.axes_figure(axes.both_axes(network, _SETTINGS, _nothing), capacity, _NAME)


def pools_figure() -> Figure:
    """Fig. 17a and b: pools of hot experts, of one sequence and of several together, against random ones."""
    return figures.pools_figure(axes.pool_rules(_network(), _SETTINGS, axes.SHARING, (), _nothing).rows, _NAME)


def readings_figure() -> Figure:
    """Fig. 17c: what the upper bits of a weight are taken for."""
    return figures.readings_figure(axes.weight_readings(_network(), _SETTINGS, _nothing), _NAME)
