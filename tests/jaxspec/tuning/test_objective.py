import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import KINDS, Footprint, Workload, catalog
from jaxspec.compress.knobs import Knobs, uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1, CASSANDRA1_CODED
from jaxspec.models.config import DecoderConfig
from jaxspec.speculate.sampling import SAMPLING
from jaxspec.tuning.calibration import calibrate
from jaxspec.tuning.objective import (
    Case,
    DraftMeasurement,
    conditional_acceptance,
    mean_log_speedup,
    measure,
    price,
    priced_footprint,
)

CONFIG = DecoderConfig(
    vocab_size=11, hidden_size=18, intermediate_size=26, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=6
)
COLUMNS = np.array([CONFIG.matrix_shape(kind)[1] for kind in CONFIG.matrix_kinds])
KV_COLUMNS = CONFIG.num_kv_heads * CONFIG.head_dim
MATRICES = (CONFIG.num_layers, len(CONFIG.matrix_kinds))
DEPTH, ROOFLINE_TEMPERATURE = 3, 0.05
WINDOWS = jnp.array([2, 0])

#: What drafts are measured at, other than the default.
COOLER = SAMPLING.replace(temperature=0.8)


@pytest.fixture(scope="module")
def stored(random_network):
    """A confident random network and random text."""
    target = random_network(CONFIG, 0, sharpness=2.0)
    tokens = np.random.default_rng(1).integers(11, size=(3, 30)).astype(np.int32)
    return calibrate(target, CONFIG, tokens, scheme=CASSANDRA1, first=4)


@pytest.fixture(scope="module")
def calibration(stored):
    """Magnitudes of KV are told apart where bfloat16 has ties."""
    untied = (stored.kv.rows & 0xFFF8) | jnp.broadcast_to(
        jnp.arange(KV_COLUMNS, dtype=jnp.uint16), stored.kv.rows.shape
    )
    return dataclasses.replace(stored, kv=dataclasses.replace(stored.kv, rows=untied))


@pytest.fixture(scope="module")
def pricing():
    device, architecture = catalog.device("jetson-agx-orin"), catalog.architecture("llama-3.1-8b")
    return Case(device, architecture, Workload(batch=2.0, context_tokens=900.0))


def measured(draft, target, draft_kv, target_kv):
    """A footprint from "layer kind" bits of weights and " layer" bits of KV."""
    named = lambda bits: dict(zip(CONFIG.matrix_kinds, bits.T, strict=True))
    return Footprint(named(draft), named(target), draft_kv, target_kv)


def test_experts_are_stored_like_feed_forward_matrices():
    bits = jnp.arange(2.0 * len(CONFIG.matrix_kinds)).reshape(2, -1) / 2 + 1
    found = priced_footprint(measured(bits, bits + 3, jnp.array([5.0, 6.0]), jnp.array([9.0, 10.0])))
    draft = found.draft_weight_bits
    assert set(draft) == set(KINDS)
    assert (draft["expert_gate"], draft["expert_down"]) == (draft["gate"], draft["down"])
    assert float(draft["shared"]) == pytest.approx(float(draft["gate"] + draft["up"] + draft["down"]) / 3)
    assert draft["router"] == draft["norm"] == draft["embed"] == draft["lm_head"] == 16
    assert float(found.target_weight_bits["expert_up"]) == pytest.approx(float(draft["up"]) + 3)


def interior_knobs(seed, scheme=CASSANDRA1):
    """Ratios away from half-way values of a row, widths away from whole numbers and half-integers."""
    rng = np.random.default_rng(seed)
    offset = lambda shape: rng.uniform(0.1, 0.4, shape) * rng.choice([-1, 1], shape)
    ratio = lambda columns, shape: (rng.integers(1, np.floor(0.9 * columns), shape) + offset(shape)) / columns
    width = lambda shape: rng.integers(1, 7, shape) + offset(shape)
    values = {
        "weight_prune": jnp.asarray(ratio(COLUMNS, MATRICES)),
        "weight_cut_bits": jnp.asarray(width(MATRICES)),
        "kv_prune": jnp.asarray(ratio(np.array(KV_COLUMNS), (2,))),
        "kv_cut_bits": jnp.asarray(width((2,))),
    }
    return Knobs(values=values, draft_length_logits=jnp.asarray(rng.standard_normal(DEPTH)), scheme=scheme)


def wide(tree):
    """All floats in 64 bits: stored numbers, scores and logits, and with them all that is computed from them."""
    return jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, tree)


# --- Gradients ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def check(gradient_check, pricing, calibration):
    """The gradient of what tuning minimises, checked at given knobs."""

    def loss(knobs, temperature):
        measured = measure(
            wide(calibration), knobs, windows=WINDOWS, offset=1, soft_temperature=temperature, decoding=COOLER
        )
        assert {x.dtype for x in jax.tree.leaves(measured)} == {jnp.dtype(jnp.float64)}
        return -mean_log_speedup(price(pricing, measured, ROOFLINE_TEMPERATURE), knobs.draft_length_logits)

    compiled = gradient_check(loss)
    return lambda knobs, temperature, side=None: compiled(knobs, jnp.asarray(temperature), side=side)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("seed", "temperature"), [(0, 0.3), (1, 0.1), (2, 0.05)])
def test_gradient_in_every_knob(check, seed, temperature):
    gradient = check(interior_knobs(seed), temperature)
    for name, value in (gradient.values | {"draft_length_logits": gradient.draft_length_logits}).items():
        assert np.all(np.abs(value) > 1e-9), f"{name} is not felt"


@pytest.mark.network
@pytest.mark.usefixtures("x64")
def test_gradient_at_the_default_configuration(check):
    # Widths are whole there, where the right-hand gradient is given, and the KV is not pruned.
    knobs = jax.tree.map(lambda x: x.astype(jnp.float64), uniform_knobs(CASSANDRA1, CONFIG))
    knobs = dataclasses.replace(knobs, draft_length_logits=jnp.array([0.0, 0.4, -0.3]))
    sides = {
        "weight_prune": np.zeros(MATRICES),
        "weight_cut_bits": np.ones(MATRICES),
        "kv_prune": np.ones(2),
        "kv_cut_bits": np.ones(2),
    }
    check(knobs, 0.3, knobs.replace(values=sides, draft_length_logits=np.zeros(DEPTH)))


@pytest.mark.network
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("seed", "temperature"), [(3, 0.3), (4, 0.05)])
def test_gradient_at_the_ends_of_the_ranges_and_at_whole_widths(check, seed, temperature):
    rng = np.random.default_rng(seed)
    knobs, points, sides = interior_knobs(seed), {}, {}
    for spec in knobs.scheme.knob_specs:
        name, low, high = spec.name, spec.low, spec.high
        at_low = rng.random(knobs.values[name].shape) < 0.5
        points[name], sides[name] = np.where(at_low, low, high), np.where(at_low, 1, -1)
        if name.endswith("cut_bits"):
            whole = rng.random(at_low.shape) < 0.4
            points[name] = np.where(whole, rng.integers(1, 7, whole.shape), points[name])
            sides[name] = np.where(whole, 1, sides[name])
    knobs = knobs.replace_values(**{name: jnp.asarray(point) for name, point in points.items()})
    check(knobs, temperature, knobs.replace(values=sides, draft_length_logits=np.zeros(DEPTH)))


# --- Soft and hard -----------------------------------------------------------------------------------------------------


def largest_gap(left, right):
    return max(float(np.max(np.abs(a - b))) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right)))


@pytest.mark.network
@pytest.mark.parametrize("scheme", [CASSANDRA1, CASSANDRA1_CODED], ids=lambda scheme: scheme.name)
def test_the_soft_measurement_tends_to_the_hard_one(calibration, scheme):
    common = {"windows": WINDOWS, "offset": 2}
    soft = jax.jit(lambda knobs, t: measure(calibration, knobs, soft_temperature=t, **common))
    hard = jax.jit(lambda knobs: measure(calibration, knobs, soft_temperature=None, **common))
    for seed in (5, 6):
        knobs = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), interior_knobs(seed, scheme))
        expected = hard(knobs)
        assert largest_gap(soft(knobs, 1e-6), expected) < 1e-4
        assert largest_gap(soft(knobs, 0.3), expected) > 0.1


@pytest.mark.network
def test_new_knobs_windows_offsets_and_temperatures_compile_nothing(calibration, pricing):
    traces = []

    @jax.jit
    def run(knobs, windows, offset, soft_temperature, decode_temperature):
        traces.append(1)
        measured = measure(
            calibration,
            knobs,
            windows=windows,
            offset=offset,
            soft_temperature=soft_temperature,
            decoding=SAMPLING.replace(temperature=decode_temperature),
        )
        return price(pricing, measured, 0.0)

    for seed in (0, 1):
        knobs = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), interior_knobs(seed))
        arguments = jnp.array([seed, 2]), jnp.asarray(seed), jnp.asarray(0.3 - 0.1 * seed), jnp.asarray(1.0 + seed)
        result = run(knobs, *arguments)
        assert np.all(np.isfinite(result.speedup_vs_bf16_ar))
    assert len(traces) == 1


# --- From a measurement to a price --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick_price(pricing):
    compiled = jax.jit(lambda measured, temperature: price(pricing, measured, temperature))
    return lambda measured, temperature=0.0: compiled(measured, temperature)


def measurement(survival, draft_bits=5.1, target_bits=13.9):
    layers = jnp.ones(MATRICES)
    return DraftMeasurement(
        survival=jnp.asarray(survival),
        overlap=jnp.zeros(()),
        kl=jnp.zeros(()),
        cross_entropy=jnp.zeros(()),
        footprint=measured(
            draft_bits * layers, target_bits * layers, draft_bits * layers[:, 0], target_bits * layers[:, 0]
        ),
    )


def test_conditional_acceptance_by_hand():
    survival = jnp.array([[0.8, 0.4, 0.3], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
    expected = [[0.8, 0.5, 0.75], [0.5, 0, 0], [0, 0, 0]]
    np.testing.assert_allclose(conditional_acceptance(survival), expected, rtol=1e-6)


def test_footprint_by_hand():
    by_kind = lambda first, second: jnp.stack([first + jnp.arange(7.0), second + jnp.arange(7.0)])
    result = priced_footprint(
        measured(by_kind(4.0, 5.0), by_kind(12.0, 13.0), jnp.array([7.0, 8.0]), jnp.array([9.0, 12.0]))
    )
    assert set(result.draft_weight_bits) == set(result.target_weight_bits) == set(KINDS)
    for i, kind in enumerate(CONFIG.matrix_kinds):
        assert result.draft_weight_bits[kind] == 4.5 + i
        assert result.target_weight_bits[kind] == 12.5 + i
    for kind in ("embed", "router", "lm_head", "norm"):
        assert result.draft_weight_bits[kind] == result.target_weight_bits[kind] == 16
    assert (result.draft_kv_bits, result.target_kv_bits) == (7.5, 10.5)


@pytest.mark.network
def test_mean_log_speedup_by_hand(quick_price):
    result = quick_price(measurement([0.8, 0.5, 0.2]))
    speedups = np.asarray(result.speedup_vs_bf16_ar)
    assert speedups.shape == (4,)
    logits = jnp.log(jnp.array([1.0, 2.0, 5.0]))
    expected = (np.log(speedups[1]) + 2 * np.log(speedups[2]) + 5 * np.log(speedups[3])) / 8
    np.testing.assert_allclose(mean_log_speedup(result, logits), expected, rtol=1e-5)
    chosen = mean_log_speedup(result, jnp.array([0.0, 40.0, 0.0]))
    np.testing.assert_allclose(chosen, np.log(speedups[2]), rtol=1e-5)


@pytest.mark.network
@pytest.mark.parametrize("temperature", [0.0, 0.05])
def test_more_acceptance_or_fewer_bits_never_lower_a_speedup(quick_price, temperature):
    rng = np.random.default_rng(7)
    speedup = lambda *arguments: np.asarray(quick_price(measurement(*arguments), temperature).speedup_vs_bf16_ar)
    for _ in range(20):
        survival = np.sort(rng.random(DEPTH).astype(np.float32))[::-1].copy()
        higher = np.minimum(survival * np.float32(1 + rng.random()), 1)
        draft, target = rng.uniform(1, 10), rng.uniform(10, 16)
        base = speedup(survival, draft, target)
        assert np.all(speedup(higher, draft, target) >= base)
        assert np.all(speedup(survival, 0.7 * draft, target) >= base * (1 - 1e-6))
        assert np.all(speedup(survival, draft, 0.8 * target) >= base * (1 - 1e-6))
