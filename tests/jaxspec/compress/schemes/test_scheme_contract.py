"""What every storage scheme keeps to, whichever it is: the registry is the list."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from scheme_network import CONFIG
from whole_drafts import hard_kv, hard_weights, prepare_at_once, soft_kv, soft_weights

from jaxspec.compress.knobs import Knobs, checked_values, harden, knob_defaults, knob_shape, uniform_knobs
from jaxspec.compress.kv import compress_cache, prepare_kv
from jaxspec.compress.schemes import SCHEMES
from jaxspec.compress.weights import hard_draft
from jaxspec.formats import bit_slices
from jaxspec.models.config import MATRIX_KINDS
from jaxspec.settings.schemes import KNOBS

RUNNING = [scheme for scheme in SCHEMES.values() if scheme.facts.runs]
every_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=lambda scheme: scheme.name)
#: One of each class, in every run.
ONE_OF_EACH = pytest.mark.scheme_matrix(
    *("cassandra1", "cassandra1-head", "cassandra2", "elastic", "q4_0", "tile-q4_0-down8", "int4-channel", "mxfp4")
)
every_running_scheme = pytest.mark.parametrize("scheme", RUNNING, ids=lambda scheme: scheme.name)


@every_scheme
def test_it_says_what_it_is(scheme):
    assert scheme.title
    assert "\n" not in scheme.title
    assert isinstance(hash(scheme), int)
    assert SCHEMES[scheme.name] is scheme
    if scheme.codec is not None:
        assert scheme.codec.lossless == scheme.lossless


@every_scheme
def test_each_knob_is_stated_once_with_default_range_and_help(scheme):
    names = [spec.name for spec in scheme.knob_specs]
    assert len(names) == len(set(names))
    for spec in scheme.knob_specs:
        assert KNOBS[spec.name] is spec
        assert spec.help
        assert spec.low < spec.high
        assert all(spec.low <= value <= spec.high for value in (spec.default, *spec.grid))
        assert not spec.whole or all(
            float(value).is_integer() for value in (spec.low, spec.high, spec.default, *spec.grid)
        )


@every_scheme
def test_what_stores_a_kind_of_matrix_has_the_same_knobs(scheme):
    for kind in MATRIX_KINDS:
        own = scheme.of_kind(kind)
        assert own.knob_specs == scheme.knob_specs
        assert own.of_kind(kind) is own


@every_scheme
def test_the_expected_draft_reads_no_more_than_the_target_and_it_no_more_than_16_bits(scheme):
    found = scheme.expected_footprint(knob_defaults(scheme))
    for kind in CONFIG.matrix_kinds:
        assert 0 < found.draft_weight_bits[kind] <= found.target_weight_bits[kind] <= 16
    assert 0 < found.draft_kv_bits <= found.target_kv_bits <= 16
    assert scheme.facts.has_draft == (found.draft_weight_bits["q"] < found.target_weight_bits["q"])


@every_scheme
def test_every_knob_is_felt_in_the_expected_footprint(scheme):
    for spec in scheme.knob_specs:
        if spec.per == "experts":
            continue  # decides which weights are read, not their width
        low, high = (
            jax.tree.leaves(scheme.expected_footprint(checked_values(scheme, {spec.name: value})))
            for value in (spec.low, spec.high)
        )
        assert max(abs(float(a - b)) for a, b in zip(low, high, strict=True)) > 0.5


@pytest.mark.parametrize("scheme", [s for s in SCHEMES.values() if not s.facts.runs], ids=lambda scheme: scheme.name)
def test_what_cannot_run_says_so(scheme):
    with pytest.raises(NotImplementedError, match=f"scheme {scheme.name}"):
        scheme.prepare(jnp.ones((2, 3)), jnp.ones(3))


#: Shares of 6, 18 and 26 columns that are far from half-way between two counts.
SHARES = (1 / 6, 1 / 3, 1 / 2, 2 / 3)


def odd_knobs(scheme, seed, *, whole):
    """Inside every range, away from half-way values."""
    rng = np.random.default_rng(seed)
    values = {}
    for spec in scheme.knob_specs:
        shape = knob_shape(spec, CONFIG)
        value = rng.choice([share for share in SHARES if spec.low < share < spec.high] or [spec.low], shape)
        if spec.whole:
            value = rng.integers(spec.low + 1, spec.high, shape) + (0 if whole else rng.uniform(-0.3, 0.3, shape))
        values[spec.name] = jnp.asarray(value, jnp.float32)
    return Knobs(values=values, draft_length_logits=jnp.zeros(3), scheme=scheme)


def is_part_of_pattern(draft, stored, knobs, place):
    """Whether the draft's bfloat16 patterns have no bit that the target's lack."""
    del knobs, place
    return not np.any(pattern(draft) & ~pattern(stored))


encoded = jax.jit(bit_slices.encode)


def has_the_upper_bits(draft, stored, knobs, place):
    """Whether the draft's integers, on the target's own scales, begin with the bits of the target's integers."""
    columns = stored.shape[-1]
    groups = encoded(np.pad(stored, ((0, 0), (0, 0), (0, -columns % 32))))
    scales = np.repeat(np.asarray(groups.scales, np.float32), 32, axis=-1)[..., :columns]
    integers = np.asarray(draft) / scales
    assert np.all(integers == np.round(integers))
    low_bits = 8 - np.asarray(knobs.values["slice_bits"], int)[:, place, None, None]
    target = np.asarray(groups.values, int)[..., :columns]
    return np.array_equal(integers.astype(int) >> low_bits, target >> low_bits)


#: How a draft is a part of its target, where it is not by the patterns of bfloat16 values.
PART_OF = dict.fromkeys(("elastic", "bit-slices", "any-precision"), has_the_upper_bits)


def pattern(x):
    return np.asarray(x).astype(ml_dtypes.bfloat16).view(np.uint16)


@ONE_OF_EACH
@every_running_scheme
def test_the_hard_draft_is_a_part_of_the_target(jit, scheme, target, norms):
    knobs = harden(odd_knobs(scheme, 1, whole=True))
    prepared = prepare_at_once(scheme, target, norms)
    draft = hard_weights(target, prepared, knobs)
    targets = jit(lambda layers: {kind: scheme.of_kind(kind).target(layers[kind]) for kind in CONFIG.matrix_kinds})
    stored = targets(target["layers"])
    values = jit(lambda layers: {kind: layers[kind].values() for kind in CONFIG.matrix_kinds})
    whole = values(hard_draft(target, prepared, knobs)["layers"])
    assert jax.tree.structure(draft.params) == jax.tree.structure(target)
    is_part = PART_OF.get(scheme.name, is_part_of_pattern)
    again = targets(stored)
    for place, kind in enumerate(CONFIG.matrix_kinds):
        made = draft.params["layers"][kind]
        assert is_part(made, stored[kind], knobs, place)
        assert np.asarray(whole[kind]).tobytes() == np.asarray(made).tobytes()
        # Rounded once: a target is its own target.
        np.testing.assert_array_equal(again[kind], stored[kind])
        if scheme.lossless:
            np.testing.assert_array_equal(pattern(stored[kind]), pattern(target["layers"][kind]))
    read = draft.footprint
    for kind in CONFIG.matrix_kinds:
        assert np.all(read.draft_weight_bits[kind] <= read.target_weight_bits[kind] + 1e-4)


@ONE_OF_EACH
@every_running_scheme
def test_soft_tends_to_hard(jit, scheme, target, norms, cache):
    knobs = odd_knobs(scheme, 2, whole=False)
    prepared, kv = prepare_at_once(scheme, target, norms), prepare_kv(scheme, cache)
    # The program of the test above.
    hard = (hard_weights(target, prepared, knobs), hard_kv(kv, knobs))
    softly = jit(lambda knobs, t: (soft_weights(target, prepared, knobs, t), soft_kv(kv, knobs, t)))
    gap = lambda a, b: max(
        float(np.max(np.abs(np.asarray(x, np.float32) - np.asarray(y, np.float32))))
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )
    assert gap(softly(knobs, 1e-5), hard) < 1e-3
    # Where there is something to choose, a warm draft lies between choices.
    assert gap(softly(knobs, 0.3), hard) > 0.1 if scheme.knob_specs else gap(softly(knobs, 0.3), hard) == 0


@ONE_OF_EACH
@every_running_scheme
def test_kv_seen_for_the_first_time_is_compressed_like_known_kv(jit, scheme, cache):
    knobs = odd_knobs(scheme, 3, whole=False)  # either rounds them
    prepared = hard_kv(prepare_kv(scheme, cache), knobs).cache
    jax.tree.map(np.testing.assert_array_equal, jit(compress_cache)(cache, knobs), prepared)


@ONE_OF_EACH
@every_running_scheme
def test_default_knobs_trace_once(scheme, target, norms):
    traces = []

    @jax.jit
    def run(knobs):
        traces.append(1)
        return jax.eval_shape(lambda: hard_draft(target, prepare_at_once(scheme, target, norms), knobs)) is not None

    run(uniform_knobs(scheme, CONFIG))
    run(harden(uniform_knobs(scheme, CONFIG, draft_length=2)))
    assert len(traces) == 1
