"""Routed experts on calibrated GPUs: what a step takes per layer, by widths, and where nobody measured them."""

import dataclasses

import jax
import numpy as np
import pytest

from hwmodels import (
    OPERATORS,
    Workload,
    catalog,
    decode_operators,
    price_steps,
    step_cost,
    uniform_footprint,
    uniform_weight_bits,
)
from hwmodels.analysis.kernel_widths import kernel_remarks, kernel_widths
from hwmodels.catalog import calibrated, calibrations
from hwmodels.catalog.calibrated import calibrated_experts
from hwmodels.catalog.calibrations import calibrated_engines, calibrated_names, calibration_record, used_formats
from hwmodels.compute.gpu_experts import expert_layer_time
from hwmodels.network.architecture import EXPERT_MATRICES
from hwmodels.network.operators.steps import prefill_step

pytestmark = pytest.mark.device_matrix

QWEN, LLAMA = catalog.architecture("qwen3-30b-a3b"), catalog.architecture("llama-3.1-8b")
EXPERTS = [OPERATORS.index(name) for name in ("expert_gate_up", "expert_down")]


def footprint(bits):
    return uniform_footprint(16).replace(target_weight_bits=uniform_weight_bits(bits, EXPERT_MATRICES))


def experts_s(device, *, network=QWEN, batch=5.0, bits=16.0):
    work = decode_operators(network, Workload(batch=batch), footprint=footprint(bits))
    return float(np.asarray(step_cost(device, work).operator_s)[EXPERTS].sum())


def test_a_step_takes_what_the_calibration_says_of_a_layer():
    unit = calibrated_experts("h200-sxm")[16.0]
    work = decode_operators(QWEN, Workload(batch=5.0), footprint=uniform_footprint(16))
    touched = float(work.shapes.products[EXPERTS[0]])
    own = expert_layer_time(
        unit, tokens=5.0, touched=touched, experts_per_token=8.0, hidden_size=2048.0, inner_size=768.0
    )
    assert experts_s(catalog.device("h200-sxm")) == pytest.approx(48 * float(own), rel=1e-5)


@pytest.mark.parametrize("name", ["a100-sxm-80gb", "h200-sxm", "l40s"])
def test_fewer_bits_and_fewer_tokens_never_take_longer(name):
    device = catalog.device(name)
    by_bits = [experts_s(device, bits=bits) for bits in (1.0, 3.0, 4.0, 4.25, 7.0, 13.9, 16.0)]
    assert np.all(np.diff(by_bits) >= -1e-9)
    by_batch = [experts_s(device, batch=batch) for batch in (1.0, 3.0, 20.0, 150.0, 1100.0)]
    assert np.all(np.diff(by_batch) > 0)


def test_four_bit_experts_have_kernels_of_their_own():
    device = catalog.device("h200-sxm")
    gain = experts_s(device, batch=64.0) / experts_s(device, batch=64.0, bits=4.0)
    # Measured launches of 64 tokens, loads as a power law: 0.291 ms at 16 bits and 0.113 ms at 4.
    assert 2.0 < gain < 3.2
    assert device.matrix_unit.expert_widths == (4.0, 4.25, 16.0)
    assert kernel_widths(device, footprint(4.0)).extrapolated == ()
    assert kernel_widths(device, uniform_footprint(4.0)).extrapolated == (4.0,)
    assert kernel_widths(device, footprint(6.0)).interpolated == (6.0,)
    assert any(
        "weights of experts of 6 bits, between measured" in line for line in kernel_remarks(device, footprint(6.0))
    )


def test_a_packed_fit_is_used_where_it_is_nearer_than_scaled_bytes():
    record = calibration_record("b200-sxm", "vllm")
    entry = record["experts"]["w4a16_mxfp4"]
    scaled = entry["baselines"][calibrations.SCALED]["mean"]
    assert calibrations.LARGEST_HELD_OUT_ERROR < calibrations.held_out_error(entry) < scaled
    assert calibrations.is_used(record, "w4a16_mxfp4", "experts")
    entry["baselines"][calibrations.SCALED]["mean"] = 0.9 * calibrations.held_out_error(entry)
    assert not calibrations.is_used(record, "w4a16_mxfp4", "experts")


@pytest.mark.parametrize(("engine", "name"), {e: n for n in calibrated_names() for e in calibrated_engines(n)}.items())
def test_experts_err_by_their_own_tables(name, engine):
    record = calibration_record(name, engine)
    unit = calibrated.calibrated_unit(name, multiprocessors=100.0, engine=engine)
    spreads = {one.bits: one for one in unit.spreads if one.part == "experts"}
    assert tuple(sorted(spreads)) == unit.expert_widths
    for entry in used_formats(record, "experts"):
        interval = entry["interval"]
        assert (spreads[entry["weight_bits"]].low, spreads[entry["weight_bits"]].high) == (
            interval["low"],
            interval["high"],
        )
        # Of groups whose errors the ends were not made from: networks, or parts of the two that MXFP4 is measured for.
        if entry["weight_bits"] == 4.25:
            assert interval["covered_left_out"] >= 0.8
        else:
            assert min(interval["covered"]) >= 0.7
            assert np.mean(interval["covered"]) >= 0.77


def test_passes_over_choices_elsewhere_are_part_of_a_group():
    entry = catalog.grouped(
        catalog.device_entry("h200-sxm", engine="vllm"), catalog.Parallelism(tensor=8, expert=8), ""
    )
    (coefficients,) = (one for one in entry.device.matrix_unit.experts[-1:])
    own = dataclasses.replace(
        entry.device.matrix_unit,
        experts=(*entry.device.matrix_unit.experts[:-1], coefficients.replace(passed_elsewhere=0.0)),
    )
    step = prefill_step(Workload(batch=1.0, prompt_tokens=4096.0), footprint=uniform_footprint(16))
    found, of = {}, jax.jit(lambda device: price_steps(device, QWEN, [step]))
    for name, unit in (("all", entry.device.matrix_unit), ("own", own)):
        (priced,) = of(dataclasses.replace(entry.device, matrix_unit=unit))
        found[name] = float(priced.cost.total_s)
        own_rows = float(priced.work.shapes.m[EXPERTS[0]] * priced.work.shapes.products[EXPERTS[0]])
    passed = 48 * (4096 * 8 - own_rows) * (2048 + 768) * 2 / 4.8e12
    assert found["all"] - found["own"] == pytest.approx(float(coefficients.pass_cost) * passed, rel=1e-3)


def test_without_measured_experts_products_follow_one_another():
    device = catalog.device("h200-sxm")
    unmeasured = dataclasses.replace(device.matrix_unit, experts=(), expert_widths=())
    bare = dataclasses.replace(device, matrix_unit=unmeasured)
    # A launch of 42 microseconds per layer is measured for one token; products one after the other take 27.
    assert experts_s(bare, batch=1.0) < 0.75 * experts_s(device, batch=1.0)
    work = decode_operators(LLAMA, Workload(batch=5.0), footprint=uniform_footprint(16))
    one, other = (np.asarray(step_cost(each, work).operator_s) for each in (device, bare))
    np.testing.assert_allclose(one, other, rtol=1e-6)
