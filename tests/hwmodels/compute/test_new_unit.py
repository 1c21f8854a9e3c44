"""A compute unit is one file and one line: `toy_unit` keeps the contract, and a device's file takes it from the registry."""

from collections.abc import Callable

import flax.struct
import jax
import pytest
from toy_unit import ToyUnit

from hwmodels import (
    OPERATORS,
    Case,
    DraftCost,
    Workload,
    catalog,
    chain_plan,
    decode_operators,
    price,
    uniform_footprint,
)
from hwmodels.analysis.design_point import leaf_names
from hwmodels.catalog import EntryError, units
from hwmodels.catalog.device_entries import number_rules
from hwmodels.step.step_cost import step_cost
from jaxspec.testing import units as contract

TOML = """
title = "A toy"
peak_flops_per_s = { value = 9e12, source = "a guess for this test" }
compute_efficiency = { value = 0.8, source = "a guess for this test" }
operator_latency_s = { value = 2e-6, source = "a guess for this test" }

[memory]
bandwidth_bytes_per_s = { value = 3e13, source = "a guess for this test" }
efficiency = { value = 0.9, source = "a guess for this test" }
capacity_bytes = { value = 5e9, source = "a guess for this test" }
energy_j_per_bit = { value = 4e-12, source = "a guess for this test" }

[matrix_unit]
kind = "toy"
lanes = { value = 100, source = "a guess for this test" }
frequency_hz = { value = 1e9, source = "a guess for this test" }
fill_cycles = { value = 30, source = "a guess for this test" }
mac_energy_j = { value = 1e-12, source = "a guess for this test" }

[chip]
energy_j_per_flop = { value = 5e-13, source = "a guess for this test" }
static_power_w = { value = 2, source = "a guess for this test" }
area_m2 = { value = 1e-5, source = "a guess for this test" }
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A device's file, and the line of the registry."""
    path = tmp_path / "toy.toml"
    path.write_text(TOML, encoding="utf-8")
    monkeypatch.setitem(units.UNITS, "toy", ToyUnit)
    return path


def test_a_file_names_it_and_its_steps_are_priced(file):
    device = catalog.device_entry(str(file)).device
    assert device.matrix_unit == ToyUnit(100.0, 1e9, 30.0, 1e-12)
    entry = catalog.device_entry(str(file))
    assert entry.sources["matrix_unit.lanes"] == "a guess for this test"
    assert set(number_rules(device)) == set(leaf_names(device))

    network = catalog.architecture("llama-3.2-1b")
    workload = Workload(batch=1.0, context_tokens=100.0, prompt_tokens=90.0, output_tokens=20.0)
    work = decode_operators(network, workload, footprint=uniform_footprint(16.0))
    cost = jax.jit(step_cost)(device, work)
    # By hand: the down projection has 2048 x 8192 weights in each of 16 layers, which 100 lanes at 1 GHz take one by one after
    # 30 cycles, and 1 pJ for each.
    down_s = 16 * (2048 * 8192 / 100 + 30) / 1e9
    assert float(cost.compute_s[OPERATORS.index("down")]) == pytest.approx(down_s, rel=1e-5)
    times = device.matrix_unit.operator_times(work, device)
    assert float(times.energy_j[OPERATORS.index("down")]) == pytest.approx(16 * 2048 * 8192 * 1e-12, rel=1e-5)
    assert float(cost.total_s) > float(cost.compute_s.sum())

    cycle = price(
        Case(device, network, workload=workload, footprint=uniform_footprint(16.0), draft=DraftCost(passes=0.0)),
        chain_plan(2),
    )
    assert float(cycle.baselines.stored.cost.total_s) == pytest.approx(float(cost.total_s), rel=1e-5)
    # Three tokens are three times the products, which decide.
    assert float(cycle.verify_s) == pytest.approx(3 * float(cost.total_s), rel=0.05)


def test_what_its_file_may_say_follows_from_its_class(file):
    for old, new, message in (
        ("lanes = ", "lines = ", "unknown key 'matrix_unit.lines'; did you mean 'matrix_unit.lanes'"),
        ("value = 100,", "value = -1,", "matrix_unit.lanes"),
        ('"toy"', '"toi"', "matrix_unit.kind is 'toi'; did you mean 'toy'"),
    ):
        file.write_text(TOML.replace(old, new), encoding="utf-8")
        with pytest.raises(EntryError, match=message):
            catalog.device_entry(str(file))


@pytest.fixture
def device(file):
    return catalog.device_entry(str(file)).device


def test_it_keeps_the_contract_of_units(device):
    assert all(check(device) is None for check in contract.UNIT_CHECKS)


@flax.struct.dataclass
class Breaking(ToyUnit):
    """A unit that breaks one rule, which `change` does to its times."""

    change: Callable = flax.struct.field(kw_only=True, pytree_node=False)

    def operator_times(self, work, device, *, temperature=0.0):
        return self.change(super().operator_times(work, device, temperature=temperature), work)


def breaking(change):
    """A device with a toy of which the times are changed."""
    return contract.SMALL.replace(matrix_unit=Breaking(100.0, 1e9, 30.0, 1e-12, change=change))


def test_times_hold_with_the_smoothing_that_they_were_fitted_with():
    device = breaking(lambda times, work: times.replace(overlap_temperature=0.25))
    network = catalog.architecture("llama-3.2-1b")
    work = decode_operators(network, Workload(context_tokens=100.0), footprint=uniform_footprint(16.0))
    seconds = lambda temperature: float(step_cost(device, work, temperature=temperature).total_s)
    # A lower temperature changes nothing, a higher one counts in its place.
    assert seconds(0.0) == seconds(0.1) == seconds(0.25)
    plain = step_cost(breaking(lambda times, work: times), work, temperature=0.5)
    assert seconds(0.5) == pytest.approx(float(plain.total_s), rel=1e-6)
    assert seconds(0.5) > 1.01 * seconds(0.25)


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda t, w: t.replace(compute_s=-t.compute_s), contract.stays_in_range),
        (lambda t, w: t.replace(memory_share=tuple(share * 2 for share in t.memory_share)), contract.stays_in_range),
        (lambda t, w: t.replace(energy_j=None if t.energy_j is None else -t.energy_j), contract.knows_energy_of_chips),
        (lambda t, w: t.replace(compute_s=1 / (1 + w.flops)), contract.takes_no_less_for_more),
    ],
)
def test_a_unit_that_breaks_the_contract_is_caught(change, check):
    with pytest.raises(AssertionError):
        check(breaking(change))


def test_a_gradient_that_is_wrong_is_caught():
    wrong = lambda times, work: times.replace(compute_s=jax.lax.stop_gradient(times.compute_s))
    with pytest.raises(AssertionError):
        contract.has_right_gradients(breaking(wrong))
