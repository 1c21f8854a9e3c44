"""The proposed device as a file: numbers changed in tables and lists of tables, all else as it was."""

import jax
import pytest

from hwmodels import catalog, leaf_names
from hwmodels.catalog.device_entries import parse_device
from jaxspec.studies.codesign.run import changed_device_text


@pytest.mark.parametrize("name", ["elmoe3d-hb8", "alveo-v80", "hexagon-v75", "h100-sxm"])
def test_only_what_changed_is_other(name):
    before = catalog.device(name)
    changed = {"memory.bandwidth_bytes_per_s": 123e9, "operator_latency_s": 3e-6}
    if before.spill:
        changed["spill.0.capacity_bytes"] = 17e9
    text = changed_device_text(name, changed, source="derived: a test")
    assert text is not None
    entry = parse_device(text, where="proposal.toml")
    assert {entry.sources[name] for name in changed} == {"derived: a test"}
    leaves = zip(leaf_names(before), jax.tree.leaves(before), jax.tree.leaves(entry.device), strict=True)
    assert all(float(new) == pytest.approx(changed.get(name, float(old))) for name, old, new in leaves)


def test_a_technology_takes_the_place_of_the_chip():
    node = {"node_m": 5e-9, "number_format": "int8", "memory_interface": "ddr", "sram_bytes": 2e6}
    text = changed_device_text("elmoe3d-hb8", {}, source="derived: a test", technology=node)
    assert text is not None
    device = parse_device(text, where="proposal.toml").device
    assert device.chip is None
    assert {name: getattr(device.technology, name) for name in node} == node
    # A memory of unknown energy would be free.
    assert changed_device_text("alveo-u280", {}, source="derived: a test", technology=node) is None
