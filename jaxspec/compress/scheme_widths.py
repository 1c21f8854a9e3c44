"""Bits that a named storage scheme reads per value, without a network: counted on values drawn from a statistical model.

The model of values: Gaussian rows whose scales differ log-normally, rounded to bfloat16; pruning drops the smallest of a row.
Trained weights are close to it (exponent entropy 2.6 bits, mean unary codeword 2.85). What a network's own values take is
measured by `jaxspec evaluate`, `tune` and `pack`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.compress.footprint import PrunedExponents, bits_per_value
from jaxspec.compress.knobs import RANGES
from jaxspec.errors import InputError
from jaxspec.formats import bit_slices, group_quantization, huffman, mx, mx_truncated
from jaxspec.formats.fields import split
from jaxspec.settings.draft import DEFAULT_KNOBS

__all__ = ["WIDTH_SCHEMES", "Widths", "scheme_widths"]

#: Values of the model: enough for a hundredth of a bit, few enough for a blink.
_ROWS, _COLUMNS = 64, 2048
#: Spread of the logarithm of a row's scale. 0.25 gives the exponent entropy of 2.6 bits that trained networks show.
_ROW_SPREAD = 0.25
_SCALE = 0.02


class Widths(NamedTuple):
    """Bits read per value of one scheme.

    Attributes:
        draft_weight, target_weight: per weight of the layers' matrices; embeddings, norms and head stay at 16.
        draft_kv, target_kv: per cached element.
        lossless: whether the target is the uncompressed network's, bit for bit.
    """

    draft_weight: float
    target_weight: float
    draft_kv: float
    target_kv: float
    lossless: bool


class _Cut(NamedTuple):
    prune: float
    cut_bits: float


def scheme_widths(
    scheme: str,
    *,
    weight_prune: float = DEFAULT_KNOBS["weight_prune"],
    weight_cut_bits: float = DEFAULT_KNOBS["weight_cut_bits"],
    kv_prune: float = DEFAULT_KNOBS["kv_prune"],
    kv_cut_bits: float = DEFAULT_KNOBS["kv_cut_bits"],
) -> Widths:
    """Widths of a scheme of `WIDTH_SCHEMES`; the four knobs matter to schemes with a pruned or truncated draft.

    Args:
        weight_prune, kv_prune: share of values that the draft lacks, in [0, 0.95].
        weight_cut_bits, kv_cut_bits: mantissa bits that it lacks, in [0, 7]; fractions are means.
    Raises:
        InputError: an unknown scheme, or a knob out of range.
    """
    if scheme not in WIDTH_SCHEMES:
        raise InputError(f"scheme is {scheme!r}; allowed are {', '.join(WIDTH_SCHEMES)}")
    knobs = dict(weight_prune=weight_prune, weight_cut_bits=weight_cut_bits, kv_prune=kv_prune, kv_cut_bits=kv_cut_bits)
    for name, value in knobs.items():
        low, high = RANGES[name]
        if not low <= value <= high:
            raise InputError(f"{name.replace('_', ' ')} is {value:g}; allowed is {low:g} to {high:g}")
    return WIDTH_SCHEMES[scheme].widths(_Cut(weight_prune, weight_cut_bits), _Cut(kv_prune, kv_cut_bits))


def _patterns() -> np.ndarray:
    """bfloat16 patterns of the model's values, "row column"."""
    rng = np.random.default_rng(0)
    scale = _SCALE * np.exp(_ROW_SPREAD * rng.standard_normal((_ROWS, 1)))
    values = jnp.asarray(scale * rng.standard_normal((_ROWS, _COLUMNS)), jnp.bfloat16)
    return np.asarray(jax.lax.bitcast_convert_type(values, jnp.uint16))


def _kept(bits: np.ndarray, prune: float) -> np.ndarray:
    """1.0 for the largest magnitudes of each row."""
    magnitude = bits & 0x7FFF
    rank = np.argsort(np.argsort(magnitude, axis=-1, kind="stable"), axis=-1, kind="stable")
    return (rank >= round(prune * bits.shape[-1])).astype(np.float32)


def _cassandra(cut: _Cut, pruned_exponents: PrunedExponents) -> tuple[float, float]:
    bits = _patterns()
    found = bits_per_value(
        jnp.asarray(bits.ravel()),
        jnp.asarray(_kept(bits, cut.prune).ravel()),
        jnp.asarray(cut.cut_bits, jnp.float32),
        jnp.asarray(float(cut.prune > 0), jnp.float32),
        pruned_exponents,
    )
    return float(found.draft), float(found.target)


def _cassandra2(cut: _Cut) -> tuple[float, float]:
    found = mx_truncated.expected_bits(1.0 - cut.prune, cut.cut_bits, bitmap=float(cut.prune > 0))
    return float(found.draft), float(found.target)


def _huffman(widths: tuple[int, ...], coded: tuple[int, ...]) -> float:
    """Bits per bfloat16 value with some fields Huffman-coded."""
    total = 0.0
    for i, field in enumerate(split(jnp.asarray(_patterns()), widths)):
        if i in coded:
            counts = np.bincount(np.asarray(field).ravel(), minlength=1 << widths[i])
            total += huffman.num_bits(counts, huffman.code_lengths(counts)) / field.size
        else:
            total += widths[i]
    return total


class _Scheme(NamedTuple):
    title: str
    widths: Callable[[_Cut, _Cut], Widths]


def _with_draft(
    code: Callable[[_Cut], tuple[float, float]], *, lossless: bool = True
) -> Callable[[_Cut, _Cut], Widths]:
    """Draft and target, of weights and KV, by the same coder."""

    def widths(weight: _Cut, kv: _Cut) -> Widths:
        (draft, target), (draft_kv, target_kv) = code(weight), code(kv)
        return Widths(draft, target, draft_kv, target_kv, lossless)

    return widths


def _weights_only(bits: Callable[[], float], *, lossless: bool) -> Callable[[_Cut, _Cut], Widths]:
    """Weights coded in one form for every step; the cache stays as it is."""

    def widths(weight: _Cut, kv: _Cut) -> Widths:
        del weight, kv
        return Widths(bits(), bits(), 16.0, 16.0, lossless)

    return widths


def _sliced(weight: _Cut, kv: _Cut) -> Widths:
    del weight, kv
    draft, rest = (float(x) for x in bit_slices.expected_bits(1.0, 4.0))  # type: ignore[arg-type]
    return Widths(draft, draft + rest, 16.0, 16.0, lossless=False)


#: Scheme -> what it is and how its widths follow.
WIDTH_SCHEMES = {
    "bf16": _Scheme("nothing compressed; the draft is the target", _weights_only(lambda: 16.0, lossless=True)),
    "cassandra1": _Scheme(
        "pruned and truncated draft inside the target, unary exponents", _with_draft(lambda c: _cassandra(c, "raw"))
    ),
    "cassandra1-coded": _Scheme(
        "the same, exponents of pruned values coded too", _with_draft(lambda c: _cassandra(c, "coded"))
    ),
    "cassandra2": _Scheme("the same with shared MX exponents (not lossless)", _with_draft(_cassandra2, lossless=False)),
    "huffman": _Scheme("exponents by Huffman codes", _weights_only(lambda: _huffman((1, 8, 7), (1,)), lossless=True)),
    "huffllm": _Scheme(
        "Huff-LLM's fields 1-4-4-7, exponents coded in halves",
        _weights_only(lambda: _huffman((1, 4, 4, 7), (1, 2)), lossless=True),
    ),
    "bit-slices": _Scheme("8-bit weights, the draft reads the upper half (ELMoE-3D)", _sliced),
    "q8_0": _Scheme(
        "8-bit groups of 32",
        _weights_only(lambda: float(group_quantization.expected_bits(1.0, 8.0)), lossless=False),  # type: ignore[arg-type]
    ),
    "q4_0": _Scheme(
        "4-bit groups of 32",
        _weights_only(lambda: float(group_quantization.expected_bits(1.0, 4.0)), lossless=False),  # type: ignore[arg-type]
    ),
    "mxfp8": _Scheme("8-bit MX elements", _weights_only(lambda: float(mx.expected_bits(8.0)), lossless=False)),
    "mxfp4": _Scheme("4-bit MX elements", _weights_only(lambda: float(mx.expected_bits(4.0)), lossless=False)),
}
