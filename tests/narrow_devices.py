"""Fewer devices than the catalog has, and with fewer kernels: each form costs a compilation."""

import dataclasses

import jax

from hwmodels import catalog


def first_of_each_form():
    """Names of the catalog's devices without the further ones of one structure whose numbers have like sources, sorted.

    Of plain rooflines, which are most of the catalog, and of GPUs whose kernels are another's, one of each is enough where
    every device is priced.
    """
    found = {}
    for name in catalog.device_names():
        entry = catalog.device_entry(name)
        plain = entry.device.matrix_unit is None or entry.basis == "transferred"
        form = (jax.tree.structure(entry.device), frozenset(entry.sources)) if plain else name
        found.setdefault(form, name)
    return tuple(sorted(found.values()))


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
