"""A draft's own LM head: a part of the target's, measured, differentiable, and read by nobody else."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Case, Workload, catalog
from jaxspec.compress.knobs import Knobs, uniform_knobs
from jaxspec.compress.schemes import SCHEMES
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1, CASSANDRA1_HEAD
from jaxspec.compress.selection import num_pruned
from jaxspec.compress.weights import HEAD, draft_head, hard_draft
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import causal_mask, forward
from jaxspec.models.matrix import stack_of
from jaxspec.models.special_tokens import head_input, head_of
from jaxspec.speculate.sampling import SAMPLING
from jaxspec.tuning.calibration import calibrate
from jaxspec.tuning.objective import mean_log_speedup, measure, price, priced_footprint

pytestmark = pytest.mark.scheme_matrix

UNTIED = DecoderConfig(
    vocab_size=23, hidden_size=18, intermediate_size=26, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=6
)
TIED = dataclasses.replace(UNTIED, tie_embeddings=True)
#: A fifth and a half of 18 columns, far from half-way between two counts.
PRUNE, CUT = 5 / 18, 3.0

WITH_HEAD = [scheme for scheme in SCHEMES.values() if scheme.facts.head]
every_scheme_with_head = pytest.mark.parametrize("scheme", WITH_HEAD, ids=lambda scheme: scheme.name)


def calibrated(random_network, config, scheme=CASSANDRA1_HEAD):
    tokens = np.random.default_rng(1).integers(config.vocab_size, size=(3, 30)).astype(np.int32)
    return calibrate(random_network(config, 0, sharpness=2.0), config, tokens, scheme=scheme, first=4)


@pytest.fixture(scope="module")
def untied(random_network):
    return calibrated(random_network, UNTIED)


@pytest.fixture(scope="module")
def tied(random_network):
    return calibrated(random_network, TIED)


@pytest.fixture(scope="module")
def pricing():
    device, architecture = catalog.device("jetson-agx-orin"), catalog.architecture("llama-3.1-8b")
    return Case(device, architecture, Workload(batch=2.0, context_tokens=900.0))


def knobs_with(scheme=CASSANDRA1_HEAD, config=UNTIED, prune=PRUNE, cut=CUT, **more):
    return uniform_knobs(scheme, config, head_prune=prune, head_cut_bits=cut, draft_length=3, **more)


def pattern(values):
    return np.asarray(jnp.asarray(values, jnp.bfloat16)).view(np.uint16)


@pytest.mark.parametrize("name", ["untied", "tied"])
def test_the_hard_head_is_a_part_of_the_targets(name, request):
    found = request.getfixturevalue(name)
    target = stack_of(head_of(found.params)).values()
    draft = hard_draft(found.params, found.prepared, knobs_with(config=found.config), found.config)
    own = pattern(stack_of(draft[HEAD]).values())
    assert not np.any(own & ~pattern(target))
    assert not np.any(own & 0b111)  # of each, three bits are cut
    # Scores are |W| times the norm of its channel: the lowest five of 18 of each row.
    score = np.abs(np.asarray(target, np.float32)) * np.asarray(found.prepared[HEAD])
    kept = score >= np.sort(score, axis=1)[:, [5]]
    np.testing.assert_array_equal(own, np.where(kept, pattern(target) & 0xFFF8, 0))
    # Tokens are looked up in the target's embedding, and the target keeps its head.
    assert draft["embed"] is found.params["embed"]
    assert (HEAD in found.params) == (name == "untied")


@pytest.mark.parametrize("name", ["untied", "tied"])
def test_a_draft_computes_logits_with_its_own_head(name, request):
    found = request.getfixturevalue(name)
    config = found.config
    draft = hard_draft(found.params, found.prepared, knobs_with(config=config), config)
    step = found.text.tokens[:1, :5], StepInput(jnp.arange(5)[None], causal_mask(1, 5))
    ran = forward(draft, config, *step)
    head = np.asarray(stack_of(draft[HEAD]).values(), np.float64)
    wanted = np.asarray(head_input(ran.hidden, draft, config), np.float64) @ head.T
    np.testing.assert_allclose(ran.logits, wanted, atol=1e-4)
    with_targets = forward({name: leaf for name, leaf in draft.items() if name != HEAD} | _head(found), config, *step)
    assert np.max(np.abs(with_targets.logits - ran.logits)) > 0.01


def _head(found):
    return {HEAD: found.params[HEAD]} if HEAD in found.params else {}


@every_scheme_with_head
def test_soft_heads_tend_to_the_hard_one(random_network, scheme):
    found = calibrated(random_network, UNTIED, scheme)
    make = jax.jit(lambda knobs, t: draft_head(found.params, found.prepared[HEAD], knobs, t))
    knobs = knobs_with(scheme, cut=2.7)
    hard = jax.jit(lambda knobs: draft_head(found.params, found.prepared[HEAD], knobs, None))(knobs)
    as_floats = lambda made: [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(made)]
    gap = lambda made: max(np.max(np.abs(a - b)) for a, b in zip(as_floats(made), as_floats(hard), strict=True))
    assert gap(make(knobs, 1e-5)) < 1e-3
    assert gap(make(knobs, 0.3)) > 0.1
    # Both variants code heads alike: kept values have a sign, a code, and the mantissa bits that are left.
    kept = 18 - int(num_pruned(jnp.float32(PRUNE), 18))
    least = 1 + kept / 18 * (1 + 1 + 7 - 3)
    assert least < float(hard.bits.draft) < least + 3


def measured_hard(calibration, scheme=CASSANDRA1_HEAD):
    """Measures knobs of these names, by one program."""
    common = {"windows": jnp.array([2, 0]), "offset": 1, "soft_temperature": None}
    run = jax.jit(lambda knobs: measure(calibration, knobs, **common))
    make = knobs_with if scheme.facts.head else lambda: uniform_knobs(scheme, UNTIED, draft_length=3)
    return lambda **given: run(make(**given))


@pytest.fixture(scope="module")
def measured_untied(untied):
    return measured_hard(untied)


def test_measuring_feels_the_head_and_only_where_it_is_compressed(measured_untied, random_network):
    some = measured_untied
    whole, cut, pruned = some(prune=0.0, cut=0.0), some(prune=0.0, cut=5.0), some(prune=0.5, cut=0.0)
    bits = [float(found.footprint.draft_weight_bits[HEAD]) for found in (whole, cut, pruned)]
    assert bits[1] == pytest.approx(bits[0] - 5)
    assert bits[2] < bits[0] - 3
    assert whole.kl < min(cut.kl, pruned.kl)
    assert priced_footprint(cut.footprint).draft_weight_bits[HEAD] == cut.footprint.draft_weight_bits[HEAD]
    # With an uncut head the draft is that of the scheme without one, whose footprint does not name the head.
    without = measured_hard(calibrated(random_network, UNTIED, CASSANDRA1), CASSANDRA1)()
    assert HEAD not in without.footprint.draft_weight_bits
    assert priced_footprint(without.footprint).draft_weight_bits[HEAD] == 16
    np.testing.assert_allclose(without.survival, whole.survival, rtol=1e-6)  # by another program


def test_fewer_bits_of_the_head_make_drafts_faster(measured_untied, pricing):
    measured, cycles = measured_untied(prune=0.0, cut=0.0), jax.jit(lambda found: price(pricing, found).cycle_s)

    def seconds(bits):
        weights = measured.footprint.draft_weight_bits | {HEAD: jnp.float32(bits)}
        read = dataclasses.replace(measured.footprint, draft_weight_bits=weights)
        return float(cycles(dataclasses.replace(measured, footprint=read))[3])

    # Three draft steps less 11 bits of 128,256 x 4096 weights, at the rate that memory gives.
    saved = 3 * 128_256 * 4096 * 11 / 8 / float(pricing.device.memory.bandwidth_bytes_per_s)
    assert seconds(16.0) - seconds(5.0) == pytest.approx(saved / float(pricing.device.memory.efficiency), rel=0.02)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["untied", "tied"])
def test_gradient_by_the_knobs_of_the_head(gradient_check, pricing, request, name):
    found = request.getfixturevalue(name)
    wide = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, found)
    fixed = jax.tree.map(lambda x: x.astype(jnp.float64), uniform_knobs(CASSANDRA1_HEAD, found.config, kv_prune=0.21))

    def loss(head):
        knobs = Knobs(fixed.values | head, jnp.array([0.1, 0.4, -0.3]), CASSANDRA1_HEAD)
        measured = measure(
            wide,
            knobs,
            windows=jnp.array([2, 0]),
            offset=1,
            soft_temperature=jnp.asarray(0.2),
            decoding=SAMPLING.replace(temperature=0.8),
        )
        return -mean_log_speedup(price(pricing, measured, 0.05), knobs.draft_length_logits)

    gradient = gradient_check(loss)({"head_prune": jnp.asarray(0.31), "head_cut_bits": jnp.asarray(3.3)})
    for knob, value in gradient.items():
        assert abs(value) > 1e-6, f"{knob} is not felt"
