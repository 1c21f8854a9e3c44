"""What is compared with what: schemes that store the weights, and attention."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import SCHEMES, find_scheme
from jaxspec.compress.weights import rows_of, target_network
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.fp16_attention import attend_fp16
from jaxspec.models.stored import as_computed, stack_of

__all__ = ["COMPARISONS", "FLOAT", "VARIANTS", "Variant", "bits_per_weight"]

#: Bits per weight of the network as it was trained.
_FLOAT_BITS = 16.0


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to run a network.

    Attributes:
        scheme: that stores the matrices of the layers; empty: they are as they were loaded.
        fp16_attention: in tiles, with exponentials from a table, instead of float32.
    """

    scheme: str = ""
    fp16_attention: bool = False

    @property
    def name(self) -> str:
        """For tables and figures."""
        return (self.scheme or "float") + (" + fp16 attention" if self.fp16_attention else "")

    @property
    def attend(self) -> Any:
        """As `forward_text` takes it."""
        return attend_fp16 if self.fp16_attention else None

    def params(self, stored: Params) -> Params:
        """Parameters to compute with.

        Args:
            stored: from `target_params`.
        """
        return as_computed(target_network(find_scheme(self.scheme), stored) if self.scheme else stored)


#: What all others are compared with.
FLOAT = Variant()

#: What the paper's system runs, but for its attention: 4-bit tile groups, FFN down in 8 bits.
_OURS = "tile-q4_0-down8"

#: The target of every scheme that changes it, and float16 attention on two of them.
VARIANTS = (
    FLOAT,
    *(Variant(scheme.name) for scheme in SCHEMES.values() if scheme.facts.runs and not scheme.lossless),
    Variant(fp16_attention=True),
    Variant(_OURS, fp16_attention=True),
)

#: Pairs of variants, each with what it is compared with.
COMPARISONS = (
    (Variant("tile-q4_0"), Variant("q4_0")),
    (Variant("tile-q8_0"), Variant("q8_0")),
    (Variant(_OURS), Variant("q4_0-down8")),
    (Variant("int4-channel"), Variant("q4_0")),
    (Variant("int8-channel"), Variant("q8_0")),
    (Variant("q4_0-down8"), Variant("q4_0")),
    (Variant(fp16_attention=True), FLOAT),
    (Variant(_OURS, fp16_attention=True), Variant(_OURS)),
)


def bits_per_weight(variant: Variant, stored: Params, config: DecoderConfig) -> float:
    """Mean over the matrices of the layers, scales and padding included."""
    if not variant.scheme:
        return _FLOAT_BITS
    scheme, total, bits = find_scheme(variant.scheme), 0, 0.0
    defaults = {name: jnp.asarray(value, jnp.float32) for name, value in knob_defaults(scheme).items()}
    for kind in config.matrix_kinds:
        stack, own = stack_of(stored["layers"][kind]), scheme.of_kind(kind)

        @jax.jit
        def read(stack: Any, own: Any = own) -> jax.Array:
            rows = rows_of(stack.take(jnp.asarray(0)).values().astype(jnp.float32))
            return own.hard(rows, own.prepare(rows, jnp.ones(rows.shape[-1])), defaults).bits.target

        size = math.prod(stack.shape)
        total, bits = total + size, bits + size * float(read(stack))
    return bits / total
