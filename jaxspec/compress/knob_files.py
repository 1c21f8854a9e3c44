"""Knobs as result.json and configuration files hold them: plain lists, by layer and kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from jaxspec.compress.knobs import Knobs, check_knobs, knob_shape, uniform_knobs
from jaxspec.errors import InputError
from jaxspec.files import read_json
from jaxspec.models.config import DecoderConfig
from jaxspec.settings.coercion import shown
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH, KnobSpec

if TYPE_CHECKING:
    from jaxspec.compress.schemes.scheme import Scheme

_LENGTH = "draft_length"


def knobs_to_json(knobs: Knobs, kinds: Sequence[str]) -> dict[str, Any]:
    """Plain lists: knobs of matrices by kind and layer, knobs of layers by layer; numbers: knobs of the head.

    Numbers have as many digits as tell them from every other one of float32, so that the draft can be made again bit for bit.

    Args:
        kinds: the network's (`DecoderConfig.matrix_kinds`).
    """

    def plain(spec: KnobSpec) -> Any:
        value = np.asarray(knobs.values[spec.name], np.float32).astype(str).astype(np.float64)
        if spec.per == "matrix":
            return dict(zip(kinds, value.T.tolist(), strict=True))
        return value.tolist()

    return {spec.name: plain(spec) for spec in knobs.scheme.knob_specs} | {_LENGTH: knobs.draft_length}


def knobs_from_json(raw: Any, scheme: Scheme, config: DecoderConfig) -> Knobs:
    """Inverse of `knobs_to_json`; a number stands for the same value everywhere.

    Raises:
        InputError: no JSON object, a missing or unknown key, a wrong shape, a value out of range or not whole where it must be.
    """
    scheme = scheme.of_dtype(config.stored_dtype)
    specs = {spec.name: spec for spec in scheme.knob_specs}
    allowed = {*specs, _LENGTH}
    if not isinstance(raw, Mapping):
        raise InputError(f"knobs are {shown(raw)}; needed is a JSON object with {', '.join(sorted(allowed))}")
    if unknown := set(raw) - allowed:
        raise InputError(f"unknown knob {sorted(unknown)[0]!r}; allowed are {', '.join(sorted(allowed))}")
    if missing := allowed - set(raw):
        raise InputError(f"knob {sorted(missing)[0]!r} is missing; needed are {', '.join(sorted(allowed))}")
    length = raw[_LENGTH]
    if isinstance(length, bool) or not (isinstance(length, int) or (isinstance(length, float) and length.is_integer())):
        raise InputError(f"knob {_LENGTH} is {length!r}; allowed are whole numbers, 1 to {MAX_DRAFT_LENGTH}")
    knobs = uniform_knobs(scheme, config, draft_length=int(length))
    arrays = {name: _array(spec, raw[name], config) for name, spec in specs.items()}
    knobs = knobs.replace_values(**{name: jnp.asarray(array, jnp.float32) for name, array in arrays.items()})
    check_knobs(knobs, config)
    for name, array in arrays.items():
        if specs[name].whole and (broken := array[array != np.round(array)]).size:
            raise InputError(f"knob {name} is {broken.flat[0]:g} in some place; allowed are whole numbers")
    return knobs


def knobs_of_result(path: str, scheme: Scheme, config: DecoderConfig) -> Knobs:
    """The knobs of the first device in a result.json: tuned, or given to a run of `jaxspec evaluate`.

    Raises:
        InputError: no such file, no such configuration in it, or knobs of another network.
    """
    try:
        configurations = read_json(path)[0]["configurations"]
        raw = configurations["tuned" if "tuned" in configurations else "given"]["knobs"]
    except OSError as error:
        raise InputError(f"knobs {path!r} cannot be read ({error.strerror}); give a result.json") from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise InputError(
            f"{path!r} holds no knobs of a draft; give the result.json of `jaxspec tune` or `jaxspec evaluate`"
        ) from error
    return knobs_from_json(raw, scheme, config)


def _array(spec: KnobSpec, raw: Any, config: DecoderConfig) -> np.ndarray:
    """A knob's numbers in the shape that a network needs."""
    if spec.per != "matrix" or not isinstance(raw, dict):
        return _spread(spec.name, raw, knob_shape(spec, config))
    kinds = config.matrix_kinds
    if set(raw) != set(kinds):
        raise InputError(f"knob {spec.name} names {sorted(raw)}; needed are {', '.join(kinds)}")
    return np.transpose([_spread(spec.name, raw[kind], (config.num_layers,)) for kind in kinds])


def _spread(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        numbers = np.asarray(value)
        if numbers.dtype.kind in "iuf":
            return np.broadcast_to(numbers, shape)
    except ValueError:  # lists of unequal lengths, or of another one than needed
        pass
    if not shape:
        raise InputError(f"knob {name} is {shown(value)}; needed is one number")
    form = f"a list of {shape[0]} numbers" if len(shape) == 1 else f"{shape[0]} lists of {shape[1]} numbers"
    raise InputError(
        f"knob {name} is {shown(value)}; needed is one number, or {form} for a network of {shape[0]} layers"
    )
