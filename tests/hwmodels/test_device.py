import jax
import pytest

from hwmodels import Device


def test_every_field_is_a_leaf(toy_device):
    assert len(jax.tree.leaves(toy_device)) == 7  # what is not given is none


def test_frozen(toy_device):
    with pytest.raises(AttributeError):
        toy_device.operator_latency_s = 1.0


def test_maps_over_placeholders(toy_device):
    axes = jax.tree.map(lambda _: None, toy_device)
    assert isinstance(axes, Device)
    assert axes.memory.efficiency is None
