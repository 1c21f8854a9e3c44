import jax
import pytest

from hwmodels import Device


def test_every_field_is_a_leaf(toy_device):
    assert len(jax.tree.leaves(toy_device)) == 11  # an access that half fills the bandwidth is not given, and so none


def test_frozen(toy_device):
    with pytest.raises(AttributeError):
        toy_device.scratchpad_bytes = 1.0


def test_maps_over_placeholders(toy_device):
    axes = jax.tree.map(lambda _: None, toy_device)
    assert isinstance(axes, Device)
    assert axes.memory.efficiency is None
