"""The knobs of a compressed draft: one definition for the soft network, the hard one, the footprint and the configuration."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

from jaxspec.errors import InputError
from jaxspec.models.config import MATRIX_KINDS, DecoderConfig
from jaxspec.settings.draft import DEFAULT_KNOBS, KNOB_RANGES, MAX_DRAFT_LENGTH

#: Lowest and highest value of each knob.
RANGES = KNOB_RANGES


@struct.dataclass
class Knobs:
    """What decides a draft.

    Attributes:
        weight_prune: share of each row's values that the draft does not read, in [0, 0.95].
        weight_cut_bits: low mantissa bits that the draft does not read, in [0, 7]; whole in a hard configuration.
        kv_prune, kv_cut_bits: the same of each token's keys and of its values.
        draft_length_logits: preference for draft lengths 1, 2, ...; the softmax weighs them in the objective and the
            largest is the hard draft length.
    """

    weight_prune: Float[Array, "layer kind"]
    weight_cut_bits: Float[Array, "layer kind"]
    kv_prune: Float[Array, " layer"]
    kv_cut_bits: Float[Array, " layer"]
    draft_length_logits: Float[Array, " gamma"]

    @property
    def draft_length(self) -> int:
        """The hard draft length (host side)."""
        return int(np.argmax(np.asarray(self.draft_length_logits))) + 1


def uniform_knobs(
    config: DecoderConfig,
    *,
    weight_prune: float = DEFAULT_KNOBS["weight_prune"],
    weight_cut_bits: float = DEFAULT_KNOBS["weight_cut_bits"],
    kv_prune: float = DEFAULT_KNOBS["kv_prune"],
    kv_cut_bits: float = DEFAULT_KNOBS["kv_cut_bits"],
    draft_length: int = 5,
) -> Knobs:
    """The same knobs for all matrices; the defaults are Cassandra's "40 %/4 bits" (VI-A).

    Raises:
        InputError: a value outside its range.
    """
    if not 1 <= draft_length <= MAX_DRAFT_LENGTH:
        raise InputError(f"draft length {draft_length} is out of range; allowed are 1 to {MAX_DRAFT_LENGTH}")
    matrices = (config.num_layers, len(MATRIX_KINDS))
    knobs = Knobs(
        weight_prune=jnp.full(matrices, weight_prune, float),
        weight_cut_bits=jnp.full(matrices, weight_cut_bits, float),
        kv_prune=jnp.full(config.num_layers, kv_prune, float),
        kv_cut_bits=jnp.full(config.num_layers, kv_cut_bits, float),
        draft_length_logits=10.0 * jax.nn.one_hot(draft_length - 1, MAX_DRAFT_LENGTH),
    )
    check_knobs(knobs, config)
    return knobs


def check_knobs(knobs: Knobs, config: DecoderConfig) -> None:
    """Raise InputError where a knob has the wrong shape, is no number or lies outside its range (host side)."""
    shapes = {
        "weight_prune": (config.num_layers, len(MATRIX_KINDS)),
        "weight_cut_bits": (config.num_layers, len(MATRIX_KINDS)),
        "kv_prune": (config.num_layers,),
        "kv_cut_bits": (config.num_layers,),
    }
    for name, (low, high) in RANGES.items():
        value = np.asarray(getattr(knobs, name))
        if value.shape != shapes[name]:
            raise InputError(f"knob {name} has shape {value.shape}; this model needs {shapes[name]} (layer, kind)")
        bad = value[~((value >= low) & (value <= high))]
        if bad.size:
            raise InputError(f"knob {name} is {bad.flat[0]:g}; allowed is {low:g} to {high:g}")


def clip_knobs(knobs: Knobs) -> Knobs:
    """Each knob moved into its range."""
    clipped = {name: jnp.clip(getattr(knobs, name), *limits) for name, limits in RANGES.items()}
    return dataclasses.replace(knobs, **clipped)


def harden(knobs: Knobs, draft_length: int | None = None) -> Knobs:
    """The hard configuration next to soft knobs: whole bits, one draft length."""
    length = knobs.draft_length if draft_length is None else draft_length
    return dataclasses.replace(
        knobs,
        weight_cut_bits=jnp.round(knobs.weight_cut_bits),
        kv_cut_bits=jnp.round(knobs.kv_cut_bits),
        draft_length_logits=10.0 * jax.nn.one_hot(length - 1, knobs.draft_length_logits.shape[0]),
    )


def knobs_to_json(knobs: Knobs) -> dict:
    """Plain lists, by layer and kind, for result.json and configuration files."""
    rounded = lambda x: np.asarray(x, np.float64).round(6).tolist()
    return {
        "weight_prune": dict(zip(MATRIX_KINDS, rounded(knobs.weight_prune.T), strict=True)),
        "weight_cut_bits": dict(zip(MATRIX_KINDS, rounded(knobs.weight_cut_bits.T), strict=True)),
        "kv_prune": rounded(knobs.kv_prune),
        "kv_cut_bits": rounded(knobs.kv_cut_bits),
        "draft_length": knobs.draft_length,
    }


def knobs_from_json(raw: dict, config: DecoderConfig) -> Knobs:
    """Inverse of `knobs_to_json`; a number stands for the same value everywhere.

    Raises:
        InputError: a missing or unknown key, a wrong shape, a value out of range.
    """
    allowed = {*RANGES, "draft_length"}
    if unknown := set(raw) - allowed:
        raise InputError(f"unknown knob {sorted(unknown)[0]!r}; allowed are {', '.join(sorted(allowed))}")
    if missing := allowed - set(raw):
        raise InputError(f"knob {sorted(missing)[0]!r} is missing; needed are {', '.join(sorted(allowed))}")

    length = raw["draft_length"]
    if isinstance(length, bool) or not (isinstance(length, int) or (isinstance(length, float) and length.is_integer())):
        raise InputError(f"knob draft_length is {length!r}; allowed are whole numbers, 1 to {MAX_DRAFT_LENGTH}")

    def spread(name: str, value, shape: tuple[int, ...]) -> np.ndarray:
        try:
            numbers = np.asarray(value)
            if numbers.dtype.kind not in "iuf":
                raise TypeError("not all of it is numbers")
            return np.broadcast_to(numbers, shape)
        except (TypeError, ValueError) as error:
            layers = config.num_layers
            raise InputError(
                f"knob {name} does not fit a model of {layers} layers ({error}); give one number"
            ) from error

    def per_layer(name: str) -> Array:
        return jnp.asarray(spread(name, raw[name], (config.num_layers,)), jnp.float32)

    def per_matrix(name: str) -> Array:
        value = raw[name]
        if isinstance(value, dict):
            if set(value) != set(MATRIX_KINDS):
                raise InputError(f"knob {name} names {sorted(value)}; needed are {', '.join(MATRIX_KINDS)}")
            value = np.transpose([spread(name, value[kind], (config.num_layers,)) for kind in MATRIX_KINDS])
        return jnp.asarray(spread(name, value, (config.num_layers, len(MATRIX_KINDS))), jnp.float32)

    knobs = dataclasses.replace(
        uniform_knobs(config, draft_length=int(length)),
        weight_prune=per_matrix("weight_prune"),
        weight_cut_bits=per_matrix("weight_cut_bits"),
        kv_prune=per_layer("kv_prune"),
        kv_cut_bits=per_layer("kv_cut_bits"),
    )
    check_knobs(knobs, config)
    return knobs
