"""What every storage scheme keeps to, whichever it is.

A small network with odd sizes is what schemes are tried on, so that no two axes have the same extent.

Drafts of a whole network at once, as `draft_view` makes them matrix by matrix: for networks that are small enough.

Each is one program: outside of one it would be hundreds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jaxtyping import Array

from hwmodels import Footprint
from jaxspec.compress.footprint import measured_footprint
from jaxspec.compress.knobs import Knobs, checked_values, harden, knob_defaults, knob_shape, uniform_knobs
from jaxspec.compress.kv import PreparedKV, as_cache, compress_cache, prepare_kv, round_kv
from jaxspec.compress.schemes import Scheme
from jaxspec.compress.weights import hard_draft, knobs_of_matrix, prepare
from jaxspec.models.config import MATRIX_KINDS, DecoderConfig, kinds_of
from jaxspec.models.decoder import Params, abstract_params
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.matrix import stack_of
from jaxspec.settings.schemes import all_knobs

__all__ = [
    "CONFIG",
    "PRICED_CHECKS",
    "RUNNING_CHECKS",
    "by_kind",
    "cache",
    "check_scheme",
    "hard_kv",
    "hard_weights",
    "network",
    "norms",
    "odd_knobs",
    "prepare_at_once",
    "random_network",
    "soft_kv",
    "soft_weights",
]

#: Sizes of the network.
CONFIG = DecoderConfig(
    vocab_size=7, hidden_size=18, intermediate_size=26, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=6
)


def random_network(config: DecoderConfig, seed: int, *, sharpness: float = 1.0) -> Params:
    """Random float32 parameters with bfloat16 values; from NumPy, because `init_params` compiles for seconds.

    Args:
        sharpness: size of the logits: 0 for a uniform distribution, 3 for a confident one.
    """
    rng = np.random.default_rng(seed)

    def draw(path: Any, leaf: Any) -> Array:
        name, value = path[-1].key, rng.standard_normal(leaf.shape, np.float32)
        if name.endswith("norm"):
            value = 1 + 0.2 * value
        elif name != "embed":
            value *= leaf.shape[-1] ** -0.5 * (sharpness if name == "lm_head" else 1.0)
        return jnp.asarray(value.astype(jnp.bfloat16).astype(np.float32))

    return jax.tree_util.tree_map_with_path(draw, abstract_params(config))


@functools.cache
def network() -> Params:
    """Its weights."""
    return random_network(CONFIG, 0)


@functools.cache
def norms() -> dict[str, Array]:
    """L2 norms of its input channels."""
    rng = np.random.default_rng(4)
    sizes = {"qkv": 18, "o": 18, "gate_up": 18, "down": 26}
    drawn = {name: jnp.asarray(rng.uniform(0.3, 3, (2, size)), jnp.float32) for name, size in sizes.items()}
    return drawn | {"lm_head": jnp.asarray(rng.uniform(0.3, 3, 18), jnp.float32)}


@functools.cache
def cache() -> KVCache:
    """Its keys and values."""
    rng = np.random.default_rng(5)

    def rows() -> np.ndarray:
        """Six magnitudes in any order, so far apart that no coding makes two of a token equal."""
        magnitude = rng.permuted(np.tile(0.4 + 0.35 * np.arange(6), (2, 3, 1, 5, 1)), axis=-1)
        return magnitude * rng.choice([-1, 1], magnitude.shape) + rng.uniform(-0.1, 0.1, magnitude.shape)

    stored = lambda values: round_kv(jnp.asarray(values, jnp.float32))
    return KVCache(key=stored(rows().swapaxes(-1, -2)), value=stored(rows()))


def says_what_it_is(scheme: Scheme) -> None:
    """It has a title of one line, and a codec that is as lossless as it is."""
    assert scheme.title
    assert "\n" not in scheme.title
    assert isinstance(hash(scheme), int)
    if scheme.codec is not None:
        assert scheme.codec.lossless == scheme.lossless


def states_each_knob_once(scheme: Scheme) -> None:
    """Each knob has a default within its range, and a help."""
    names = [spec.name for spec in scheme.knob_specs]
    assert len(names) == len(set(names))
    for spec in scheme.knob_specs:
        assert all_knobs().get(spec.name, spec) == spec
        assert spec.help
        assert spec.low < spec.high
        assert all(spec.low <= value <= spec.high for value in (spec.default, *spec.grid))
        assert not spec.whole or all(
            float(value).is_integer() for value in (spec.low, spec.high, spec.default, *spec.grid)
        )


def has_the_same_knobs_apart(scheme: Scheme) -> None:
    """What stores a kind of matrix has the same knobs."""
    for kind in MATRIX_KINDS:
        own = scheme.of_kind(kind)
        assert own.knob_specs == scheme.knob_specs
        assert own.of_kind(kind) is own


def reads_no_more_than_its_target(scheme: Scheme) -> None:
    """The expected draft reads no more than the target, and this no more than 16 bits."""
    footprint = scheme.expected_footprint(knob_defaults(scheme))
    for kind in CONFIG.matrix_kinds:
        assert 0 < footprint.draft_weight_bits[kind] <= footprint.target_weight_bits[kind] <= 16
    assert 0 < footprint.draft_kv_bits <= footprint.target_kv_bits <= 16
    assert scheme.facts.has_draft == (footprint.draft_weight_bits["q"] < footprint.target_weight_bits["q"])


def feels_every_knob(scheme: Scheme) -> None:
    """Every knob changes the expected footprint."""
    for spec in scheme.knob_specs:
        if spec.per == "experts":
            continue  # decides which weights are read, not their width
        low, high = (
            jax.tree.leaves(scheme.expected_footprint(checked_values(scheme, {spec.name: value})))
            for value in (spec.low, spec.high)
        )
        assert max(abs(float(a - b)) for a, b in zip(low, high, strict=True)) > 0.5


def says_that_it_cannot_run(scheme: Scheme) -> None:
    """Its matrices are refused by name."""
    try:
        codec: Any = scheme.matrix
    except NotImplementedError as error:
        codec = error
    assert f"scheme {scheme.name}" in str(codec)


#: Shares of 6, 18 and 26 columns that are far from half-way between two counts.
SHARES = (1 / 6, 1 / 3, 1 / 2, 2 / 3)


def odd_knobs(scheme: Scheme, seed: int, *, whole: bool) -> Knobs:
    """Inside every range, away from half-way values."""
    rng = np.random.default_rng(seed)
    values = {}
    for spec in scheme.knob_specs:
        shape = knob_shape(spec, CONFIG)
        value = rng.choice([share for share in SHARES if spec.low < share < spec.high] or [spec.low], shape)
        if spec.whole:
            value = rng.integers(int(spec.low) + 1, int(spec.high), shape) + (
                0 if whole else rng.uniform(-0.3, 0.3, shape)
            )
        values[spec.name] = jnp.asarray(value, jnp.float32)
    return Knobs(values=values, draft_length_logits=jnp.zeros(3), scheme=scheme)


def pattern(x: Any) -> np.ndarray:
    """Bits of values in bfloat16."""
    return np.asarray(x).astype(ml_dtypes.bfloat16).view(np.uint16)


def is_part_of_pattern(draft: Array, stored: Array, knobs: Knobs, place: int) -> bool:
    """Whether the draft's bfloat16 patterns have no bit that the target's lack."""
    del knobs, place
    return not np.any(pattern(draft) & ~pattern(stored))


def drafts_a_part_of_the_target(
    scheme: Scheme, is_part: Callable[[Array, Array, Knobs, int], bool] = is_part_of_pattern
) -> None:
    """The hard draft is a part of the target, rounded once and read in no more bits.

    Args:
        is_part: whether matrices of a draft are a part of those of the target, by knobs and the place of their kind.
    """
    target = network()
    knobs = harden(odd_knobs(scheme, 1, whole=True))
    prepared = prepare_at_once(scheme, target, norms())
    draft = hard_weights(target, prepared, knobs)
    targets = jax.jit(
        lambda layers: {kind: scheme.of_kind(kind).matrix.target(layers[kind]) for kind in CONFIG.matrix_kinds}
    )
    stored = targets(target["layers"])
    values = jax.jit(lambda layers: {kind: layers[kind].values() for kind in CONFIG.matrix_kinds})
    whole = values(hard_draft(target, prepared, knobs)["layers"])
    assert jax.tree.structure(draft.params) == jax.tree.structure(target)
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


def softens(scheme: Scheme) -> None:
    """The soft draft tends to the hard one as the temperature falls."""
    target = network()
    knobs = odd_knobs(scheme, 2, whole=False)
    prepared, kv = prepare_at_once(scheme, target, norms()), prepare_kv(scheme, cache())
    # The program of the check above.
    hard = (hard_weights(target, prepared, knobs), hard_kv(kv, knobs))
    softly = jax.jit(lambda knobs, t: (soft_weights(target, prepared, knobs, t), soft_kv(kv, knobs, t)))
    gap = lambda a, b: max(
        float(np.max(np.abs(np.asarray(x, np.float32) - np.asarray(y, np.float32))))
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )
    assert gap(softly(knobs, 1e-5), hard) < 1e-3
    # Where there is something to choose, a warm draft lies between choices.
    assert gap(softly(knobs, 0.3), hard) > 0.1 if scheme.knob_specs else gap(softly(knobs, 0.3), hard) == 0


def encodes_kv_as_known_kv(scheme: Scheme) -> None:
    """KV seen for the first time is compressed like known KV."""
    knobs = odd_knobs(scheme, 3, whole=False)  # either rounds them
    prepared = hard_kv(prepare_kv(scheme, cache()), knobs).cache
    jax.tree.map(np.testing.assert_array_equal, jax.jit(compress_cache)(cache(), knobs), prepared)


def traces_once(scheme: Scheme) -> None:
    """Other knobs do not trace again."""
    target: Params = network()
    traces: list[int] = []

    @jax.jit
    def run(knobs: Knobs) -> bool:
        traces.append(1)
        return jax.eval_shape(lambda: hard_draft(target, prepare_at_once(scheme, target, norms()), knobs)) is not None

    run(uniform_knobs(scheme, CONFIG))
    run(harden(uniform_knobs(scheme, CONFIG, draft_length=2)))
    assert len(traces) == 1


#: What schemes that cannot run are held to,
PRICED_CHECKS = (
    says_what_it_is,
    states_each_knob_once,
    has_the_same_knobs_apart,
    reads_no_more_than_its_target,
    feels_every_knob,
)

#: and what those that can are, too.
RUNNING_CHECKS = (softens, encodes_kv_as_known_kv, traces_once)


def check_scheme(scheme: Scheme, is_part: Callable[[Array, Array, Knobs, int], bool] = is_part_of_pattern) -> None:
    """Hold a scheme to all that a member of the registry keeps to.

    Args:
        is_part: see `drafts_a_part_of_the_target`.
    Raises:
        AssertionError: it does not.
    """
    for check in PRICED_CHECKS:
        check(scheme)
    if not scheme.facts.runs:
        says_that_it_cannot_run(scheme)
        return
    drafts_a_part_of_the_target(scheme, is_part)
    for check in RUNNING_CHECKS:
        check(scheme)


#: `prepare` as one program, as calibration runs it.
prepare_at_once = partial(jax.jit, static_argnames="scheme")(prepare)


def by_kind(bits: Mapping[str, Array]) -> Array:
    """Bits of a network whose layers all have the same matrices, as one array "layer kind"."""
    return jnp.stack([bits[kind] for kind in kinds_of(bits)], axis=-1)


class WholeDraft(NamedTuple):
    """A draft with the bits that it reads."""

    params: Params
    footprint: Footprint


class WholeCache(NamedTuple):
    """A cache with the bits that are read of it."""

    cache: KVCache
    footprint: Footprint


def _weights(params: Params, prepared: Any, knobs: Knobs, make: Callable[[Any], Any]) -> WholeDraft:
    made = {
        kind: jax.vmap(make(knobs.scheme.of_kind(kind).matrix))(
            stack_of(params["layers"][kind]).values(),
            prepared[kind],
            knobs_of_matrix(knobs.values, knobs.scheme, place),
        )
        for place, kind in enumerate(kinds_of(params["layers"]))
    }
    matrices = {kind: matrix.values for kind, matrix in made.items()}
    # Bits of a cache are not checked here.
    footprint = measured_footprint({kind: matrix.bits for kind, matrix in made.items()}, made["q"].bits)
    return WholeDraft(params | {"layers": params["layers"] | matrices}, footprint)


@jax.jit
def hard_weights(params: Params, prepared: Any, knobs: Knobs) -> WholeDraft:
    """Values and footprint of the hard draft."""
    return _weights(params, prepared, knobs, lambda codec: codec.hard)


@jax.jit
def soft_weights(params: Params, prepared: Any, knobs: Knobs, temperature: Any) -> WholeDraft:
    """Values and footprint of the soft draft."""
    return _weights(params, prepared, knobs, lambda codec: lambda *of: codec.soft(*of, temperature))


def _kv(kv: PreparedKV, knobs: Knobs, make: Any) -> WholeCache:
    made = jax.vmap(make)(kv.rows, knobs.of_layers)
    cache = jax.vmap(lambda rows: as_cache(rows, kv.shape))(made.rows)
    return WholeCache(cache, measured_footprint({}, made.bits))


@jax.jit
def hard_kv(kv: PreparedKV, knobs: Knobs) -> WholeCache:
    """The cache as the hard draft reads it."""
    return _kv(kv, knobs, knobs.scheme.kv.hard)


def soft_kv(kv: PreparedKV, knobs: Knobs, temperature: Any) -> WholeCache:
    """The cache as the soft draft reads it."""
    return _kv(kv, knobs, lambda rows, own: knobs.scheme.kv.soft(rows, own, temperature))
