import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress.knobs import harden, knobs_from_json, knobs_to_json, uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.errors import InputError
from jaxspec.models.config import DecoderConfig
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH

CONFIG = DecoderConfig(
    vocab_size=7, hidden_size=18, intermediate_size=26, num_layers=3, num_heads=3, num_kv_heads=1, head_dim=6
)
MATRICES = (3, len(CONFIG.matrix_kinds))
RANGES = {spec.name: (spec.low, spec.high) for spec in CASSANDRA1.knob_specs}


def plain(**changes):
    return {"weight_prune": 0.25, "weight_cut_bits": 3, "kv_prune": 0, "kv_cut_bits": 2, "draft_length": 4} | changes


def error_of(function):
    with pytest.raises(InputError) as caught:
        function()
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_defaults_are_the_papers_point():
    knobs = uniform_knobs(CASSANDRA1, CONFIG)
    np.testing.assert_allclose(knobs.values["weight_prune"], np.full(MATRICES, 0.4))
    np.testing.assert_array_equal(knobs.values["weight_cut_bits"], np.full(MATRICES, 4))
    np.testing.assert_array_equal(knobs.values["kv_prune"], [0, 0, 0])
    np.testing.assert_array_equal(knobs.values["kv_cut_bits"], [4, 4, 4])
    assert knobs.draft_length == 5


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("outside", [-0.01, 7.5, float("nan"), float("inf")])
def test_a_value_out_of_range_names_knob_value_and_range(name, outside):
    low, high = RANGES[name]
    for make in (
        lambda: uniform_knobs(CASSANDRA1, CONFIG, **{name: outside}),
        lambda: knobs_from_json(plain(**{name: outside}), CASSANDRA1, CONFIG),
    ):
        message = error_of(make)
        assert name in message
        assert f"{outside:g}" in message
        assert f"{low:g} to {high:g}" in message


@pytest.mark.parametrize("length", [0, -1, MAX_DRAFT_LENGTH + 1])
def test_a_draft_length_out_of_range(length):
    for make in (
        lambda: uniform_knobs(CASSANDRA1, CONFIG, draft_length=length),
        lambda: knobs_from_json(plain(draft_length=length), CASSANDRA1, CONFIG),
    ):
        message = error_of(make)
        assert f"{length}" in message
        assert f"1 to {MAX_DRAFT_LENGTH}" in message


def test_keys_unknown_and_missing():
    assert "'weight_prun'" in error_of(lambda: knobs_from_json(plain(weight_prun=1), CASSANDRA1, CONFIG))
    incomplete = plain()
    del incomplete["kv_prune"]
    assert "'kv_prune' is missing" in error_of(lambda: knobs_from_json(incomplete, CASSANDRA1, CONFIG))
    for other in (None, [1], "x"):
        assert f"knobs are {other!r}; needed is a JSON object" in error_of(
            lambda other=other: knobs_from_json(other, CASSANDRA1, CONFIG)
        )
    some_kinds = {"q": 0.1, "k": 0.1, "x": 0.1}
    assert "weight_prune" in error_of(lambda: knobs_from_json(plain(weight_prune=some_kinds), CASSANDRA1, CONFIG))


@pytest.mark.parametrize(
    "value",
    [[0.1, 0.2], [[0.1] * 7] * 2, "0.4", None, {kind: [0.1, 0.2] for kind in CONFIG.matrix_kinds}, [[0.1], [0.2, 0.3]]],
)
def test_values_of_a_wrong_shape_or_kind(value):
    message = error_of(lambda: knobs_from_json(plain(weight_prune=value), CASSANDRA1, CONFIG))
    assert message.startswith("knob weight_prune is ")
    assert "needed is one number, or " in message
    assert message.endswith("for a network of 3 layers")


def test_hardening_rounds_bits_and_settles_the_draft_length():
    knobs = uniform_knobs(CASSANDRA1, CONFIG, weight_prune=0.33, weight_cut_bits=3.6, kv_cut_bits=1.2)
    knobs = knobs.replace(draft_length_logits=jnp.array([0.1, 0.0, 0.3, 0.2, 0, 0, 0, 0]))
    hard = harden(knobs)
    np.testing.assert_array_equal(hard.values["weight_cut_bits"], 4)
    np.testing.assert_array_equal(hard.values["kv_cut_bits"], 1)
    np.testing.assert_array_equal(hard.values["weight_prune"], knobs.values["weight_prune"])
    assert hard.draft_length == 3
    assert harden(knobs, 6).draft_length == 6


def test_knobs_from_any_source_are_of_one_kind():
    # A compiled function would be traced again for integers or for weakly typed numbers.
    sources = [
        uniform_knobs(CASSANDRA1, CONFIG),
        uniform_knobs(CASSANDRA1, CONFIG, weight_prune=0, weight_cut_bits=4, kv_prune=0, kv_cut_bits=7),
        harden(uniform_knobs(CASSANDRA1, CONFIG)),
        knobs_from_json(plain(), CASSANDRA1, CONFIG),
    ]
    kinds = [jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), knobs) for knobs in sources]
    assert all(kind == kinds[0] for kind in kinds)
    assert all(x.dtype == jnp.float32 and not x.weak_type for x in jax.tree.leaves(sources[0]))


def test_knobs_survive_their_file_bit_for_bit():
    # Neighbours in float32, of which six digits are the same.
    share = np.nextafter(np.float32(0.4), np.float32(1), dtype=np.float32)
    prune = np.linspace(share, 0.95, 21, dtype=np.float32).reshape(MATRICES)
    knobs = uniform_knobs(CASSANDRA1, CONFIG).replace_values(weight_prune=jnp.asarray(prune))
    found = knobs_from_json(json.loads(json.dumps(knobs_to_json(knobs, CONFIG.matrix_kinds))), CASSANDRA1, CONFIG)
    np.testing.assert_array_equal(found.values["weight_prune"], prune)
    assert knobs_to_json(uniform_knobs(CASSANDRA1, CONFIG), CONFIG.matrix_kinds)["weight_prune"]["q"] == [0.4] * 3
