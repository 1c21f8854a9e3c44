import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress.knobs import Knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1, CASSANDRA1_CODED
from jaxspec.compress.weights import sum_of_squares
from jaxspec.models.config import DecoderConfig
from jaxspec.testing.schemes import by_kind, hard_weights, prepare_at_once, soft_weights

# No two matrix shapes are equal but q's and o's, and no row has a power of two of columns.
CONFIG = DecoderConfig(
    vocab_size=7, hidden_size=18, intermediate_size=26, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=6
)
INPUT_SIZE = {"qkv": 18, "o": 18, "gate_up": 18, "down": 26}


def random_knobs(seed, *, whole, scheme=CASSANDRA1):
    """Ratios away from half-way values of 18 and 26 columns, widths away from half-integers."""
    rng = np.random.default_rng(seed)
    matrices = (CONFIG.num_layers, len(CONFIG.matrix_kinds))
    cut = rng.integers(0, 8, matrices).astype(float)
    columns = np.array([18, 18, 18, 18, 18, 18, 26])
    # Either nothing at all or at least one value of a row: see `soft_bitmap` for what lies between.
    pruned = np.floor(rng.uniform(0, 0.9, matrices) * columns)
    pruned += 0 if whole else np.where(pruned > 0, rng.uniform(-0.3, 0.3, matrices), 0)
    cut = np.clip(cut + (0 if whole else rng.uniform(-0.3, 0.3, matrices)), 0, 7)
    values = {
        "weight_prune": jnp.asarray(pruned / columns, jnp.float32),
        "weight_cut_bits": jnp.asarray(cut, jnp.float32),
        "kv_prune": jnp.zeros(CONFIG.num_layers),
        "kv_cut_bits": jnp.zeros(CONFIG.num_layers),
    }
    return Knobs(values=values, draft_length_logits=jnp.zeros(3), scheme=scheme)


@pytest.fixture(scope="module")
def norms():
    rng = np.random.default_rng(4)
    return {name: jnp.asarray(rng.uniform(0.3, 3, (2, size)), jnp.float32) for name, size in INPUT_SIZE.items()}


@pytest.fixture(scope="module")
def target(random_network):
    return random_network(CONFIG, 0)


@pytest.fixture(scope="module")
def ranked(target, norms):
    return jax.jit(lambda target, norms: prepare_at_once(CASSANDRA1, target, norms))(target, norms)


@pytest.fixture(scope="module")
def harden(target, ranked):
    """The hard draft of given knobs."""
    compiled = jax.jit(hard_weights)
    return lambda knobs: compiled(target, ranked, knobs)


def bits_of(x):
    return np.asarray(x.astype(jnp.bfloat16)).view(np.uint16)


@pytest.mark.scheme_matrix
def test_wanda_ranks_by_hand():
    # |W| x norm: [3 x 1, 1 x 2, 0.5 x 8] = [3, 2, 4] and [0.25 x 1, 2 x 2, 0.125 x 8] = [0.25, 4, 1]: magnitude alone would
    # rank the rows (1, 0.5 below) and (0.125, 0.25 below) otherwise.
    weight = jnp.array([[[3.0, -1.0, 0.5], [0.25, 2.0, -0.125]]])
    params = {"layers": dict.fromkeys(CONFIG.matrix_kinds, weight)}
    norm = dict.fromkeys(INPUT_SIZE, jnp.array([[1.0, 2.0, 8.0]]))
    values = {"weight_prune": jnp.full((1, 7), 1 / 3), "weight_cut_bits": jnp.zeros((1, 7))}
    knobs = Knobs(values=values, draft_length_logits=jnp.zeros(3), scheme=CASSANDRA1)
    draft = hard_weights(params, prepare_at_once(CASSANDRA1, params, norm), knobs).params["layers"]["q"]
    assert np.asarray(draft != 0)[0].astype(int).tolist() == [[1, 0, 1], [0, 1, 1]]


@pytest.mark.scheme_matrix
def test_each_matrix_is_ranked_with_the_norms_of_its_own_input():
    weight = jnp.ones((1, 1, 3))
    order = {"qkv": [0, 1, 2], "o": [1, 2, 0], "gate_up": [2, 0, 1], "down": [2, 1, 0]}
    norms = {name: jnp.asarray([ranks], jnp.float32) + 1 for name, ranks in order.items()}
    prepared = prepare_at_once(CASSANDRA1, {"layers": dict.fromkeys(CONFIG.matrix_kinds, weight)}, norms)
    feeds = {"q": "qkv", "k": "qkv", "v": "qkv", "o": "o", "gate": "gate_up", "up": "gate_up", "down": "down"}
    one_of_three = {"weight_prune": jnp.full((1, 7), 1 / 3), "weight_cut_bits": jnp.zeros((1, 7))}
    knobs = Knobs(values=one_of_three, draft_length_logits=jnp.zeros(3), scheme=CASSANDRA1)
    draft = hard_weights({"layers": dict.fromkeys(CONFIG.matrix_kinds, weight)}, prepared, knobs).params["layers"]
    for kind, name in feeds.items():
        np.testing.assert_array_equal(draft[kind][0, 0] == 0, np.array(order[name]) == 0)


def test_sums_of_squares_by_hand():
    # Two sequences of two tokens: channel 0 sees 3, 0, 4, 0, channel 1 sees 1, 1, 1, 1.
    inputs = jnp.array([[[3.0, 1.0], [0.0, 1.0]], [[4.0, 1.0], [0.0, 1.0]]])
    np.testing.assert_allclose(sum_of_squares(inputs), [25.0, 4.0], rtol=1e-6)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_hard_draft_is_a_bitwise_part_of_the_target(target, norms, harden, seed):
    knobs = random_knobs(seed, whole=True)
    draft = harden(knobs).params
    for i, kind in enumerate(CONFIG.matrix_kinds):
        stored, read = bits_of(target["layers"][kind]), bits_of(draft["layers"][kind])
        np.testing.assert_array_equal(read & ~stored, 0)
        score = (
            np.abs(target["layers"][kind])
            * {"o": norms["o"], "gate": norms["gate_up"], "up": norms["gate_up"], "down": norms["down"]}.get(
                kind, norms["qkv"]
            )[:, None]
        )
        rank = np.argsort(np.argsort(score, axis=-1, kind="stable"), axis=-1)
        columns = stored.shape[-1]
        for layer in range(2):
            pruned = rank[layer] < round(float(knobs.values["weight_prune"][layer, i]) * columns)
            assert not np.any(read[layer][pruned])
            cut = int(knobs.values["weight_cut_bits"][layer, i])
            np.testing.assert_array_equal(read[layer][~pruned], stored[layer][~pruned] >> cut << cut)


@pytest.mark.scheme_matrix
@pytest.mark.parametrize("scheme", [CASSANDRA1, CASSANDRA1_CODED], ids=lambda scheme: scheme.name)
def test_soft_draft_tends_to_the_hard_one(target, ranked, harden, scheme):
    softly = jax.jit(soft_weights)
    for seed in (5, 6):
        knobs = random_knobs(seed, whole=False, scheme=scheme)
        hard = harden(knobs)
        hard_values = jax.tree.map(lambda x: np.asarray(x, np.float32), hard.params)
        distances = []
        for temperature in (0.3, 1e-5):
            soft = softly(target, ranked, knobs, temperature)
            gap = jax.tree.map(
                lambda s, h: float(np.max(np.abs(s - h))), (soft.params, soft.footprint), (hard_values, hard.footprint)
            )
            distances.append((max(jax.tree.leaves(gap[0])), max(jax.tree.leaves(gap[1]))))
        assert distances[-1][0] < 1e-6 < 0.1 < distances[0][0]
        assert distances[-1][1] < 1e-4 < 0.1 < distances[0][1]


def test_bits_are_those_of_the_matrix_alone(harden):
    knobs = random_knobs(7, whole=True)
    footprint = harden(knobs).footprint
    assert set(footprint.draft_weight_bits) == set(footprint.target_weight_bits) == set(CONFIG.matrix_kinds)
    draft, target = by_kind(footprint.draft_weight_bits), by_kind(footprint.target_weight_bits)
    assert draft.shape == target.shape == (2, len(CONFIG.matrix_kinds))
    # The target reads bitmap, sign, mantissa and code of what is kept, and 16 bits of what is pruned; the draft less.
    columns = np.array([CONFIG.matrix_shape(kind)[1] for kind in CONFIG.matrix_kinds])
    share = 1 - np.round(np.asarray(knobs.values["weight_prune"]) * columns) / columns
    np.testing.assert_allclose(
        target - draft, share * np.asarray(knobs.values["weight_cut_bits"]) + (1 - share) * 16, rtol=1e-5
    )


@pytest.mark.scheme_matrix
def test_a_float16_network_keeps_its_own_bits(random_network, norms):
    # Magnitudes from float16's subnormal numbers to its largest, in one matrix.
    spread = lambda x: (x * 2.0 ** jnp.linspace(-20, 14, x.shape[-1])[None, None]).astype(jnp.float16)
    network = random_network(CONFIG, 5)
    target = network | {
        "layers": network["layers"] | {kind: spread(network["layers"][kind]) for kind in CONFIG.matrix_kinds}
    }
    prepared, knobs = prepare_at_once(CASSANDRA1, target, norms), random_knobs(8, whole=True)
    harden = jax.jit(hard_weights)
    draft = harden(target, prepared, knobs)
    soft = jax.jit(soft_weights)(target, prepared, knobs, 1e-5)
    for i, kind in enumerate(CONFIG.matrix_kinds):
        stored, read = (np.asarray(x).view(np.uint16) for x in (target["layers"][kind], draft.params["layers"][kind]))
        assert draft.params["layers"][kind].dtype == jnp.float16
        np.testing.assert_array_equal(read & ~stored, 0)
        for layer in range(2):
            cut = int(knobs.values["weight_cut_bits"][layer, i])
            kept = read[layer] != 0
            np.testing.assert_array_equal(read[layer][kept], (stored[layer] >> cut << cut)[kept])
        np.testing.assert_allclose(
            soft.params["layers"][kind], draft.params["layers"][kind].astype(np.float32), rtol=1e-3
        )
    # Without any compression a value has its sign, 10 bits of mantissa and its exponent's code.
    whole = harden(target, prepared, jax.tree.map(jnp.zeros_like, knobs)).footprint.draft_weight_bits["q"]
    assert np.all(np.asarray(whole) > 1 + 10 + 1)
