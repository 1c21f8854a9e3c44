import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Device, Workload, catalog, price_steps, stack_devices, uniform_footprint
from hwmodels.catalog.entries import EntryError, read_value
from hwmodels.network.operators import decode_step
from hwmodels.numerics.fields import FLAG, check_numbers


def test_every_field_is_a_leaf(toy_device):
    assert len(jax.tree.leaves(toy_device)) == 7  # what is not given is none


def test_maps_over_placeholders(toy_device):
    axes = jax.tree.map(lambda _: None, toy_device)
    assert isinstance(axes, Device)
    assert axes.memory.efficiency is None


def varied(device, **memory):
    return device.replace(memory=device.memory.replace(**memory))


@pytest.mark.parametrize("number", [-1e12, np.float32(-1e12), np.array([1e12, -1e12]), jnp.array(-1e12), -(10**12)])
def test_a_negative_bandwidth_is_refused_where_it_is_priced(toy_device, small, number):
    steps = [decode_step(Workload(batch=1.0, context_tokens=10.0), footprint=uniform_footprint(16.0))]
    with pytest.raises(
        ValueError,
        match=r"^Device.memory.bandwidth_bytes_per_s is -1e\+12; it must be a positive number of bytes per second, ",
    ):
        price_steps(varied(toy_device, bandwidth_bytes_per_s=number), small, steps)


def test_numbers_known_within_a_program_are_checked(toy_device, small):
    steps = [decode_step(Workload(batch=1.0, context_tokens=10.0), footprint=uniform_footprint(16.0))]
    slow = varied(toy_device, efficiency=1.5)
    with pytest.raises(ValueError, match=r"efficiency is 1.5; it must be a number in \(0, 1\]"):
        jax.jit(lambda: price_steps(slow, small, steps)[0].cost.total_s)()


@pytest.mark.parametrize("value", [-1.0, 0.0, 0.5, 1.0, 2.0, 1.5])
def test_files_and_objects_have_one_set_of_checks(value):
    """Every rule of a device's fields takes and refuses the same numbers, in the same words."""
    rules = {
        field.metadata["rule"]
        for kind in (Device, type(catalog.device("rtx-4090").memory))
        for field in dataclasses.fields(kind)
        if "rule" in field.metadata
    } - {FLAG}
    for rule in rules:
        kind = dataclasses.make_dataclass("Part", [("x", float, dataclasses.field(metadata={"rule": rule}))])
        said = []
        for check in (
            lambda rule=rule: read_value({"value": value, "source": "here"}, rule, "x"),
            lambda kind=kind: check_numbers(kind(value)),
        ):
            try:
                check()
                said.append(None)
            except (ValueError, EntryError) as error:
                said.append(str(error).partition("; ")[2])
        assert said[0] == said[1]


def test_devices_of_the_catalog_hold_to_their_rules():
    for name in catalog.device_names():
        check_numbers(catalog.device(name), name)


def test_stacked_devices_are_mapped_over(toy_device):
    faster = varied(toy_device, bandwidth_bytes_per_s=2 * toy_device.memory.bandwidth_bytes_per_s)
    both = stack_devices([toy_device, faster])
    found = jax.vmap(lambda device: device.memory.bandwidth_bytes_per_s)(both)
    np.testing.assert_allclose(found[1], 2 * found[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.replace(spill=(d.memory,)), "spill is 0 parts in device 0 and 1 parts in device 1; "),
        (lambda d: d.replace(schedule="serial"), "schedule is 'overlapped' in device 0 and 'serial' in device 1; "),
        (lambda d: varied(d, coupled=True), "memory.coupled is False in device 0 and True in device 1; "),
        (
            lambda d: varied(d, access_latency_s=1e-6),
            "memory.access_latency_s is None in device 0 and a number in device 1",
        ),
        (lambda d: d.replace(matrix_unit=object()), "matrix_unit is None in device 0 and "),
        (
            lambda d: varied(d, efficiency=np.ones(2)),
            "memory.efficiency is a number in device 0 and an array of shape (2,) in device 1; ",
        ),
    ],
)
def test_unlike_devices_are_not_stacked_and_the_part_is_named(toy_device, change, words):
    with pytest.raises(ValueError, match=f"^{re.escape(words)}") as caught:
        stack_devices([toy_device, change(toy_device)])
    assert "\n" not in str(caught.value)
