"""The knobs of a compressed draft: a scheme's own values and the draft length, for soft network, hard one and files."""

from __future__ import annotations

import dataclasses
import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxspec.errors import InputError
from jaxspec.html import html_table
from jaxspec.models.config import DecoderConfig
from jaxspec.partial_files import read_json, write_bytes
from jaxspec.settings.coercion import shown
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH, KnobSpec

if TYPE_CHECKING:
    from jaxspec.compress.schemes.scheme import Scheme

__all__ = [
    "NORMS_FILE",
    "Knobs",
    "check_knobs",
    "check_range",
    "check_stored_dtype",
    "checked_values",
    "harden",
    "knob_defaults",
    "knob_shape",
    "knobs_from_json",
    "knobs_of_result",
    "knobs_to_json",
    "read_norms",
    "uniform_knobs",
    "write_norms",
]

#: How strongly the logits of hard knobs prefer their draft length.
_CERTAIN = 10.0


def knob_shape(spec: KnobSpec, config: DecoderConfig) -> tuple[int, ...]:
    """Shape of a knob's array for a network."""
    if spec.per == "head":
        return ()
    return (config.num_layers, len(config.matrix_kinds)) if spec.per == "matrix" else (config.num_layers,)


def check_range(spec: KnobSpec, value: Any) -> None:
    """Raise InputError where a value, or one of an array, is not a number of the knob's range (host side)."""
    numbers = np.asarray(value)
    bad = numbers[~((numbers >= spec.low) & (numbers <= spec.high))]
    if bad.size:
        raise InputError(f"knob {spec.name} is {bad.flat[0]:g}; allowed is {spec.range_text}")


@struct.dataclass
class Knobs:
    """What decides a draft.

    Attributes:
        values: knob -> array, in the shapes that the scheme's specs state.
        draft_length_logits: preference for draft lengths 1, 2, ...; the softmax weighs them in the objective and the
            largest is the hard draft length.
        scheme: static; gives the values their meaning.
    """

    values: dict[str, Float[Array, ""] | Float[Array, " layer"] | Float[Array, "layer kind"]]
    draft_length_logits: Float[Array, " gamma"]
    scheme: Scheme = struct.field(pytree_node=False)

    @property
    def draft_length(self) -> int:
        """The hard draft length (host side)."""
        return int(np.argmax(np.asarray(self.draft_length_logits))) + 1

    @property
    def of_layers(self) -> dict[str, Array]:
        """The values that layers have, by knob; each leads with a layer axis."""
        return {spec.name: self.values[spec.name] for spec in self.scheme.knob_specs if spec.per != "head"}

    def __repr__(self) -> str:
        """Scheme, draft length and each knob, with its range where matrices or layers differ."""
        return f"<{_line(self)}>"

    def _repr_html_(self) -> str:
        rows = [((name, text), None) for name, text in _in_words(self).items()]
        return html_table([("knob", "left"), ("over the network", "left")], rows, title=_line(self).partition(";")[0])

    def replace_values(self, **values: Array) -> Knobs:
        """The same with other values of some knobs."""
        return dataclasses.replace(self, values=self.values | values)


def _in_words(knobs: Knobs) -> dict[str, str]:
    """Each knob and the draft length as text."""
    values = {**knobs.values, "draft_length": knobs.draft_length_logits}
    if any(isinstance(value, Tracer) for value in values.values()):
        return {name: f"traced {value.shape}" for name, value in values.items()}
    words = {}
    for name, value in knobs.values.items():
        low, high = f"{np.min(value):.4g}", f"{np.max(value):.4g}"
        words[name] = low if low == high else f"{low} to {high}, mean {np.mean(value):.4g}"
    return words | {"draft_length": str(knobs.draft_length)}


def _line(knobs: Knobs) -> str:
    numbers = ", ".join(f"{name} {text}" for name, text in _in_words(knobs).items())
    return f"knobs of {knobs.scheme.name}; {numbers}"


def knob_defaults(scheme: Scheme) -> dict[str, float]:
    """Default of each knob."""
    return {spec.name: spec.default for spec in scheme.knob_specs}


def checked_values(scheme: Scheme, given: Mapping[str, float]) -> dict[str, float]:
    """One number for each knob of a scheme: given ones over defaults.

    Raises:
        InputError: a knob that the scheme does not have, or a value out of range.
    """
    specs = {spec.name: spec for spec in scheme.knob_specs}
    if unknown := sorted(set(given) - set(specs)):
        known = f"its knobs are {', '.join(specs)}" if specs else "it has none"
        raise InputError(f"scheme {scheme.name} has no knob {unknown[0]!r}; {known}")
    for name, value in given.items():
        check_range(specs[name], value)
    return knob_defaults(scheme) | dict(given)


def check_stored_dtype(scheme: Scheme, config: DecoderConfig) -> None:
    """A scheme stores a network in widths that a container can have, and has its 16-bit numbers.

    Raises:
        InputError: it stores values of bfloat16 in blocks that share exponents, and the network is in float16; it drafts with
            the bits of 16-bit weights, or changes these, and the network is stored in codes of fewer bits.
    """
    if config.in_codes and scheme.facts.takes_bits:
        raise InputError(
            f"scheme {scheme.name} is made of the bits of 16-bit weights, and this network's are stored in codes of fewer bits "
            "(quantization_config); give jaxspec tree or compare another draft (--draft ngram, a network, a head), or take the "
            "checkpoint in 16 bits"
        )
    if scheme.facts.shared_exponents is not None and config.stored_dtype == "float16":
        raise InputError(
            f"scheme {scheme.name} stores bfloat16 values in blocks that share exponents, and this network is stored in "
            "float16, which no container holds so; use cassandra1, or convert the checkpoint to bfloat16"
        )


def uniform_knobs(
    scheme: Scheme,
    config: DecoderConfig,
    values: Mapping[str, float] | None = None,
    *,
    draft_length: int = 5,
    **more: float,
) -> Knobs:
    """The same knobs for all matrices and layers; those not given keep the scheme's defaults.

    Args:
        scheme: the knobs are of this scheme for networks stored as this one is (see `Scheme.of_dtype`).
        values, more: knob -> value, as a mapping or by keyword.
    Raises:
        InputError: an unknown knob, a value outside its range, or see `check_stored_dtype`.
    """
    if not 1 <= draft_length <= MAX_DRAFT_LENGTH:
        raise InputError(f"draft length {draft_length} is out of range; allowed are 1 to {MAX_DRAFT_LENGTH}")
    check_stored_dtype(scheme, config)
    scheme = scheme.of_dtype(config.stored_dtype)
    numbers = checked_values(scheme, {**(values or {}), **more})
    return Knobs(
        values={spec.name: jnp.full(knob_shape(spec, config), numbers[spec.name], float) for spec in scheme.knob_specs},
        draft_length_logits=_logits(draft_length, MAX_DRAFT_LENGTH),
        scheme=scheme,
    )


def check_knobs(knobs: Knobs, config: DecoderConfig) -> None:
    """Raise InputError where a knob has the wrong shape, is no number or lies outside its range (host side)."""
    for spec in knobs.scheme.knob_specs:
        value, shape = np.asarray(knobs.values[spec.name]), knob_shape(spec, config)
        if value.shape != shape:
            axes = {"matrix": "(layer, kind)", "head": "(one number)"}.get(spec.per, "(layer)")
            raise InputError(f"knob {spec.name} has shape {value.shape}; this model needs {shape} {axes}")
        check_range(spec, value)


def harden(knobs: Knobs, draft_length: int | None = None) -> Knobs:
    """The hard configuration next to soft knobs: whole numbers where the scheme needs them, one draft length."""
    length = knobs.draft_length if draft_length is None else draft_length
    whole = {spec.name: jnp.round(knobs.values[spec.name]) for spec in knobs.scheme.knob_specs if spec.whole}
    logits = _logits(length, knobs.draft_length_logits.shape[0])
    return dataclasses.replace(knobs.replace_values(**whole), draft_length_logits=logits)


def _logits(draft_length: int, lengths: int) -> Array:
    return _CERTAIN * jax.nn.one_hot(draft_length - 1, lengths)


# Knobs as result.json and configuration files hold them: plain lists, by layer and kind.

# Channel norms that a run ranked weights with, in a file beside its result: a packed draft keeps the same values.

#: Name of the file in a run directory.
NORMS_FILE = "channel_norms.npz"


def write_norms(directory: Path, norms: Mapping[str, np.ndarray]) -> None:
    """Write norms by kind of matrix, "layer column"; layers are those that have the kind. Of the LM head, " column"."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{kind: np.asarray(values, np.float32) for kind, values in norms.items()})
    write_bytes(directory / NORMS_FILE, buffer.getvalue())


def read_norms(result: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray] | None:
    """The norms of the run whose result this is; None where no file of them lies beside it.

    Args:
        result: path of a result.json.
        shapes: kind -> layers and columns of the network that they are wanted for; of the LM head columns alone.
    Raises:
        InputError: a damaged file, or norms of another network.
    """
    path = Path(result).parent / NORMS_FILE
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            norms = {kind: stored[kind] for kind in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read ({error}); run the tuning again with --force") from error
    if {kind: values.shape for kind, values in norms.items()} != dict(shapes):
        raise InputError(f"{path} has channel norms of another network; give the result.json of a run of this one")
    return norms


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
