"""Time by the width of weights and KV: never longer for fewer bits, on every calibrated device and for any step."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from narrow_devices import one_of_each_form

from hwmodels import EXPERT_MATRICES, LAYER_MATRICES, catalog, step_cost, uniform_footprint, uniform_weight_bits
from hwmodels.analysis.kernel_widths import kernel_remarks, kernel_widths
from hwmodels.catalog.calibrated import calibrated_gpu, calibrated_unit
from hwmodels.catalog.calibrations import (
    LARGEST_HELD_OUT_ERROR,
    calibrated_engines,
    calibrated_names,
    calibration_record,
    calibration_remarks,
    held_out_error,
)
from hwmodels.compute.calibrated_gpu import CalibratedGpu
from hwmodels.compute.gpu import gemm_time
from hwmodels.network.operators import StepShape, step_operators

CALIBRATED = tuple(name for name in one_of_each_form() if isinstance(catalog.device(name).matrix_unit, CalibratedGpu))
LLAMA = catalog.architecture("llama-3.1-8b")
SHAPES = [catalog.architecture(name) for name in catalog.architecture_names()]
CASES = 120


def device_of(name, **kernels):
    """Without what only readers see, so that devices of as many formats share one compilation."""
    device = catalog.device(name, **kernels)
    unit = dataclasses.replace(device.matrix_unit, remarks=(), spreads=(), engine="", weight_format=None)
    return device.replace(matrix_unit=unit)


def random_steps(seed):
    """Steps of catalog networks with sizes changed at random, and two widths of weights and of KV for each."""
    draw = np.random.default_rng(seed)
    # One draw for all sizes of a network: sizes of several networks need not fit together.
    which = draw.integers(len(SHAPES), size=CASES)
    shapes = jax.tree.map(lambda *leaves: np.asarray(leaves)[which].astype(np.float32), *SHAPES)
    factors = {name: draw.uniform(0.3, 2.0, CASES) for name in ("hidden_size", "intermediate_size", "vocab_size")}
    shapes = dataclasses.replace(
        shapes, **{name: (getattr(shapes, name) * f).astype(np.float32) for name, f in factors.items()}
    )
    whole = draw.choice([2.0, 3.0, 4.0, 8.0, 16.0, 20.0], (2, CASES))
    bits = np.sort(np.where(draw.random((2, CASES)) < 0.3, whole, draw.uniform(0.5, 17.0, (2, CASES))), axis=0)
    kv = np.sort(draw.uniform(1.0, 16.0, (2, CASES)), axis=0)
    load = {
        "tokens": np.round(2.0 ** draw.uniform(0, 9, CASES)),
        "batch": np.round(2.0 ** draw.uniform(0, 8, CASES)),
        "context_tokens": np.round(2.0 ** draw.uniform(0, 17, CASES)),
    }
    return shapes, load, bits, kv


@jax.jit
def operator_seconds(device, shapes, load, bits, kv):
    def one(shape, load, bits, kv):
        work = step_operators(shape, StepShape(**load, weight_bits=uniform_weight_bits(bits), kv_bits=kv))
        return step_cost(device, work).operator_s

    return jax.vmap(one)(shapes, {name: jnp.float32(x) for name, x in load.items()}, jnp.float32(bits), jnp.float32(kv))


@pytest.mark.device_matrix
@pytest.mark.parametrize("name", CALIBRATED)
def test_time_never_rises_when_bits_fall(name):
    device = device_of(name)
    for seed in (3, 4):
        shapes, load, bits, kv = random_steps(seed)
        both, weights, cache = (
            operator_seconds(device, shapes, load, *widths)
            for widths in ((bits[1], kv[1]), (bits[0], kv[1]), (bits[1], kv[0]))
        )
        assert np.all(np.isfinite(both))
        assert np.all(weights <= both * (1 + 3e-6))
        assert np.all(cache <= both * (1 + 3e-6))


@pytest.mark.device_matrix
@pytest.mark.parametrize("name", CALIBRATED)
def test_a_narrower_draft_step_of_llama_is_faster(name):
    device = device_of(name)
    # As many as above, so that nothing is compiled again.
    shapes = jax.tree.map(lambda leaf: np.full(CASES, leaf, np.float32), LLAMA)
    load = {
        key: np.full(CASES, value) for key, value in {"tokens": 1.0, "batch": 1.0, "context_tokens": 1024.0}.items()
    }
    bits = [1.5, 3.0, 4.0, 4.48, 6.0, 8.0, 11.0, 13.9, 16.0]
    found = operator_seconds(device, shapes, load, np.resize(bits, CASES), np.full(CASES, 16.0))
    seconds = np.sum(found, axis=-1)[: len(bits)]
    assert np.all(np.diff(seconds) > 0.005 * seconds[-1])
    assert seconds[2] < seconds[-1] / 1.7  # published: 1.86 on the A100


@pytest.mark.parametrize("bits", [4.0, 8.0, 16.0])
def test_measured_widths_keep_their_kernels(bits):
    unit = calibrated_gpu("a100-sxm")
    index = unit.weight_widths.index(bits)
    alone = dataclasses.replace(
        unit, weight_widths=(bits,), coefficients=jax.tree.map(lambda leaf: leaf[index : index + 1], unit.coefficients)
    )
    own = float(gemm_time(alone, 3.0, 4096.0, 6100.0, weight_bits=bits))
    assert float(gemm_time(unit, 3.0, 4096.0, 6100.0, weight_bits=bits)) == pytest.approx(own, rel=1e-6)


@pytest.mark.device_matrix
@pytest.mark.parametrize("name", ["a100-sxm-80gb", "h100-sxm"])
def test_gradient_by_bits(name, x64):
    device = device_of(name)

    @jax.jit
    def seconds(x, tokens, batch):
        work = step_operators(
            LLAMA,
            StepShape(
                tokens=tokens, batch=batch, context_tokens=900.0, weight_bits=uniform_weight_bits(x[0]), kv_bits=x[1]
            ),
        )
        return step_cost(device, work).total_s

    slope = jax.jit(jax.grad(seconds))
    for bits in (2.3, 4.7, 9.1, 15.2, 17.5):
        for tokens, batch in ((1.0, 1.0), (5.0, 7.0), (40.0, 33.0)):
            x = jnp.array([bits, 5.3])
            found = np.asarray(slope(x, tokens, batch))
            step = 1e-4 * np.eye(2)
            wanted = [float(seconds(x + e, tokens, batch) - seconds(x - e, tokens, batch)) / 2e-4 for e in step]
            assert np.all(np.isfinite(found))
            np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-3 * np.max(np.abs(wanted)))


@pytest.mark.parametrize(("name", "engine"), [(n, e) for n in calibrated_names() for e in calibrated_engines(n)])
def test_no_weak_fit_ships_silently(name, engine):
    used = calibrated_unit(name, multiprocessors=100.0, engine=engine).weight_widths
    remarks = " / ".join(one.text for one in calibration_remarks(name, engine))
    for kind, entry in calibration_record(name, engine)["formats"].items():
        width, error = entry["weight_bits"], held_out_error(entry)
        assert error >= max(entry["held_out_halves"])
        if entry["activation_bits"] < 16:
            # Only where it is asked for, and then with its remarks.
            asked = " / ".join(one.text for one in calibration_remarks(name, engine, kind))
            host = entry["coefficients"]["host_s"]
            said = bool(entry["at_bound"] or error > LARGEST_HELD_OUT_ERROR or host)
            assert (f"{width:g}-bit weights" in asked) == said
            assert ("a CUDA graph saves" in asked) == (host > 0)
            continue
        if width < 16:
            assert (width in used) == (error <= LARGEST_HELD_OUT_ERROR)
        if entry["at_bound"] or error > LARGEST_HELD_OUT_ERROR:
            assert f"{width:g}-bit weights" in remarks
        assert all(number in remarks for number in entry["at_bound"])
    assert "attention" in remarks


def test_a_format_that_no_weight_is_narrow_enough_for_is_named():
    fp8, plain = catalog.device("h100-sxm", weight_format="fp8"), uniform_footprint(16)
    assert kernel_remarks(fp8, plain)[0].startswith(
        "unused: kernels of format fp8 are for weights narrower than 16 bits"
    )
    # Experts of a network that has none are no weights of it.
    of_experts = plain.replace(draft_weight_bits=uniform_weight_bits(8, EXPERT_MATRICES))
    assert "unused" in kernel_remarks(fp8, of_experts, experts=False)[0]
    for device, footprint in (
        (fp8, of_experts),
        (fp8, plain.replace(target_weight_bits=uniform_weight_bits(8, ("q",)))),
        (catalog.device("h100-sxm"), plain),
    ):
        assert not any("unused" in remark for remark in kernel_remarks(device, footprint))


def test_widths_without_a_kernel_are_named():
    footprint = uniform_footprint(16).replace(
        draft_weight_bits=uniform_weight_bits(4.48, LAYER_MATRICES), draft_kv_bits=6.85
    )
    on_h100 = kernel_remarks(catalog.device("h100-sxm"), footprint)
    assert on_h100[0].startswith("extrapolated: weights of 4.48 bits have no measured kernel on this device")
    assert "KV of 6.85 bits" in on_h100[1]
    with_sglang = kernel_remarks(catalog.device("h100-sxm", engine="sglang"), footprint)
    assert any("8-bit weights are not used: held-out error" in remark for remark in with_sglang)
    found = kernel_widths(catalog.device("a100-sxm-80gb"), footprint)
    assert found is not None
    assert (found.interpolated, found.extrapolated, found.extrapolated_kv) == ((4.48,), (), (6.85,))
    eight = kernel_widths(catalog.device("h200-sxm"), uniform_footprint(16).replace(target_kv_bits=8.0))
    assert eight is not None
    assert eight.extrapolated_kv == ()
    beyond = kernel_widths(catalog.device("a100-sxm-80gb"), uniform_footprint(np.array([2.0, 4.0, 8.0, 20.0])))
    assert beyond is not None
    assert (beyond.interpolated, beyond.extrapolated) == ((), (2.0, 20.0))
    plain = kernel_remarks(catalog.device("a100-sxm-80gb"), uniform_footprint(16))
    assert not any("extrapolated" in remark for remark in plain)
    assert kernel_remarks(catalog.device("rtx-4090"), footprint) == []
    assert kernel_widths(catalog.device("cassandra-npu"), footprint) is None
