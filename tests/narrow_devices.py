"""Fewer devices and fewer kernels: each costs a compilation."""

import dataclasses
import functools

import jax

from hwmodels import catalog
from hwmodels.compute.calibrated_gpu import CalibratedGpu


def kernels_of_16_bits(device):
    """A calibrated GPU with its kernels of 16 bits alone."""
    unit = device.matrix_unit
    unit = dataclasses.replace(
        unit,
        formats=unit.formats[-1:],
        weight_widths=unit.weight_widths[-1:],
        experts=(),
        expert_widths=(),
        attention=unit.attention[-1:],
        kv_widths=unit.kv_widths[-1:],
        prefill=None,
    )
    return dataclasses.replace(device, matrix_unit=unit)


@functools.cache
def one_of_each_form():
    """Names of devices of the catalog whose trees differ: the first of those that share a compilation."""
    found = {}
    for name in catalog.device_names():
        device = catalog.device(name)
        if isinstance(device.matrix_unit, CalibratedGpu):
            unit = dataclasses.replace(device.matrix_unit, remarks=(), spreads=(), engine="", weight_format=None)
            device = device.replace(matrix_unit=unit)
        found.setdefault(jax.tree.structure(device), name)
    return tuple(sorted(found.values()))


@functools.cache
def one_of_each_unit():
    """Names of devices of the catalog, of each kind of compute unit the one with most parts."""
    found = {}
    for name in one_of_each_form():
        device = catalog.device(name)
        kind, parts = type(device.matrix_unit), len(jax.tree.leaves(device))
        if parts > found.get(kind, ("", 0))[1]:
            found[kind] = name, parts
    return tuple(sorted(name for name, _ in found.values()))
