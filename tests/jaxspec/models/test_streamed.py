"""A network whose layers stay in its files is the same network: to calibration, measurement, gradients and decoding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress import hard_draft, uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models import DecoderConfig, init_params, load_directory, save_directory
from jaxspec.models.stored import as_computed
from jaxspec.models.streamed import Streamed, fetched, is_streamed
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import self_draft
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.sampling import Decoding
from jaxspec.tuning import calibrate, target_params
from jaxspec.tuning.compression_objective import measure_hard
from jaxspec.tuning.objective import measure

pytestmark = pytest.mark.network

CONFIG = DecoderConfig(
    vocab_size=40, hidden_size=16, intermediate_size=24, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=6
)
GREEDY = Decoding(greedy=True, temperature=1.0)


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    """The same network on the device, and streamed."""
    directory = tmp_path_factory.mktemp("models") / "tiny"
    save_directory(init_params(CONFIG, jax.random.key(3)), CONFIG, directory, max_positions=128)
    return [target_params(load_directory(directory, stream=stream).params) for stream in (False, True)]


@pytest.fixture(scope="module")
def calibrations(targets):
    tokens = np.random.default_rng(1).integers(40, size=(3, 30)).astype(np.int32)
    return [calibrate(params, CONFIG, tokens, scheme=CASSANDRA1, first=4) for params in targets]


def test_only_matrices_and_a_lone_embedding_stay_in_the_files(targets):
    streamed = targets[1]
    assert [is_streamed(target) for target in targets] == [False, True]
    assert {name for name, leaf in streamed["layers"].items() if isinstance(leaf, Streamed)} == set(CONFIG.matrix_kinds)
    assert isinstance(streamed["embed"], Streamed)
    assert streamed["embed"].shape == (40, 16)


def test_calibration_finds_the_same(calibrations):
    on_device, streamed = calibrations
    assert is_streamed(streamed.kv)
    for name in ("text", "prepared", "kv"):
        found, wanted = fetched(getattr(streamed, name)), getattr(on_device, name)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6), found, wanted)


def test_hard_drafts_measure_the_same(calibrations):
    knobs = uniform_knobs(CASSANDRA1, CONFIG)
    on_device, streamed = (measure_hard(calibration, knobs, GREEDY) for calibration in calibrations)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7), streamed, on_device)


def test_gradients_are_the_same(calibrations):
    knobs = uniform_knobs(CASSANDRA1, CONFIG, {"weight_prune": 0.35, "weight_cut_bits": 3.4, "kv_cut_bits": 2.6})

    @jax.jit
    def climb(values, calibration):
        def loss(values):
            found = measure(
                calibration,
                knobs.replace_values(**values),
                windows=jnp.array([2, 0]),
                offset=1,
                soft_temperature=0.2,
            )
            return jnp.sum(found.survival) + found.kl + sum(map(jnp.mean, jax.tree.leaves(found.footprint)))

        return jax.value_and_grad(loss)(values)

    on_device, streamed = (climb(knobs.values, calibration) for calibration in calibrations)
    assert all(np.any(leaf != 0) for name, leaf in streamed[1].items() if name != "kv_prune")
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), streamed, on_device)


def test_hard_drafts_and_tokens_are_the_same(targets, calibrations):
    knobs = uniform_knobs(CASSANDRA1, CONFIG)
    prompts = np.random.default_rng(2).integers(40, size=(2, 7)).astype(np.int32)
    decoded, matrices = [], []
    for target, calibration in zip(targets, calibrations, strict=True):
        draft = hard_draft(target, calibration.prepared, knobs)
        last = draft["layers"]["down"].take(jnp.array(2))
        matrices.append(jax.jit(lambda stack: stack.values().astype(jnp.float32))(last))
        ready = self_draft(CONFIG, as_computed(draft), knobs)
        options = {"num_tokens": 9, "decoding": GREEDY, "seed": 0}
        decoded.append(decode_chains(as_computed(target), CONFIG, ready, Prompts(prompts, **options), 3))
    np.testing.assert_array_equal(*matrices)
    np.testing.assert_array_equal(decoded[0]["tokens"], decoded[1]["tokens"])
    np.testing.assert_array_equal(decoded[0]["cycles"], decoded[1]["cycles"])
