"""Calibrated devices with fewer kernels: each costs a compilation."""

import dataclasses


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
