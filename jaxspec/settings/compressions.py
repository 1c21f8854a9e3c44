"""The registry of lossy compressions that are fitted to calibration text and compared with speculation.

A new one is a function, here or in another package, and an entry of `compressions.toml`. None of them has a draft. Storage
schemes, which need no text for their target, are in `jaxspec.settings.schemes`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from jaxspec.partial_files import read_toml_beside
from jaxspec.settings.schemes import OWN_SCHEMES, SchemeFacts, names_that

__all__ = [
    "COMPRESSIONS",
    "LOSSY_NAMES",
    "RESIDUAL_KINDS",
    "UNROUNDED_BITS",
    "CompressionFacts",
    "IntegerKV",
    "MatrixFacts",
    "RoundedInputs",
    "lossy_names",
]

# The form to which inputs of matrix products are rounded, without the numerics behind it.

#: Bits of activations that nothing rounds.
UNROUNDED_BITS = 16

#: Matrices of which the outputs go to the residual stream. Their inputs are made within a block, so that no norm stands
#: before them: methods that rotate the residual stream treat them apart.
RESIDUAL_KINDS = ("o", "down", "expert_down", "shared_down")


@dataclasses.dataclass(frozen=True)
class RoundedInputs:
    """How activations are rounded before a layer's matrices multiply them (see `jaxspec.models.rounded_inputs`).

    Attributes:
        bits: of a signed integer, one for each element; each token has a scale of its own, by its largest element.
        scaled: rounded after a division by the matrix's scales of its input channels, which are parameters.
        rotated: rounded after a rotation (see `jaxspec.models.rounded_inputs`).
        spread: rounded in a space that is a parameter of each matrix (see `jaxspec.models.rounded_inputs`).
        range_share: None: integers are symmetric. A share: they are asymmetric, between the token's smallest and largest
            element times it.
        residual: another form for the matrices of `RESIDUAL_KINDS`; None: this one.
    """

    bits: Literal[4, 8]
    scaled: bool = False
    rotated: bool = False
    spread: bool = False
    range_share: float | None = None
    residual: RoundedInputs | None = None

    def of(self, kind: str) -> RoundedInputs:
        """The form of what enters one kind of matrix."""
        return self.residual if self.residual is not None and kind in RESIDUAL_KINDS else self


# The form of a KV cache of integers, without the numerics behind it.


@dataclasses.dataclass(frozen=True)
class IntegerKV:
    """How keys and values are rounded before anything reads them (see `jaxspec.models.rounded_inputs`).

    Attributes:
        bits: of an integer, one for each element; the key and the value of each token and head have a scale and a smallest
            value of their own.
        smoothed_keys: keys are divided by scales of their channels first, which are parameters.
        rotated_keys: keys are rounded after a rotation of each head (see `jaxspec.models.rounded_inputs`).
        queries: queries are rounded as keys are, when they are computed; no cache holds them.
        key_share: of the range between the smallest and the largest element of a key, or query, that integers span; of values
            they span all.
    """

    bits: Literal[4, 8]
    smoothed_keys: bool = False
    rotated_keys: bool = False
    queries: bool = False
    key_share: float = 1.0

    def __post_init__(self) -> None:
        if self.queries and self.smoothed_keys:
            raise ValueError(
                "queries and smoothed_keys are both given; scales of smoothed keys belong to queries too, which are rounded "
                "without them: give one of the two"
            )


@dataclasses.dataclass(frozen=True)
class MatrixFacts:
    """How some matrices are made.

    Attributes:
        place, spaces: as those of `CompressionFacts`.
    """

    place: str
    spaces: str | None = None


@dataclasses.dataclass(frozen=True)
class CompressionFacts:
    """What is known of a compression without its numerics.

    Attributes:
        place: "module:function" from a matrix "row column" and the L2 norms of its input
            channels over calibration tokens to a `CompressedMatrix`.
        source: where it comes from, and how this one departs.
        inputs: form to which activations are rounded before they meet a layer's matrices; None: they keep 16 bits.
        scales: "module:function" likewise, from the same two to the scales by which a matrix's inputs are divided before they
            are rounded; of forms that are scaled.
        spaces: "module:function" likewise, from the largest weights of the columns of all matrices that read some inputs, and a
            sample of these, to what `place` gets as third argument: the scales in which they are rounded as `scale`, and of
            forms that are spread the space (see `jaxspec.models.rounded_inputs`) as `space`.
        residual: how the matrices of `RESIDUAL_KINDS` are made; None: as all others.
        kv: integers to which keys and values are rounded as they are written; None: they keep 16 bits.
        kernels: of measured kernels that multiply so, as `--weight-format` calls them; None: none of the catalog does.
    """

    name: str
    title: str
    place: str
    source: str
    inputs: RoundedInputs | None = None
    scales: str | None = None
    spaces: str | None = None
    residual: MatrixFacts | None = None
    kv: IntegerKV | None = None
    kernels: str | None = None

    def of(self, kind: str) -> MatrixFacts:
        """How one kind of matrix is made."""
        if self.residual is not None and kind in RESIDUAL_KINDS:
            return self.residual
        return MatrixFacts(self.place, self.spaces)

    @property
    def activation_bits(self) -> int:
        """Bits of what enters the layers' matrix products."""
        return UNROUNDED_BITS if self.inputs is None else self.inputs.bits

    @property
    def needs_sample(self) -> bool:
        """Whether it is fitted to rows of inputs, or to keys, and not to norms alone."""
        of_inputs = self.spaces is not None or (self.residual is not None and self.residual.spaces is not None)
        return of_inputs or (self.kv is not None and self.kv.smoothed_keys)


def _method(name: str | None) -> str | None:
    return name and f"jaxspec.compress.fitted.methods:{name}"


def _matrices(entry: Mapping[str, str]) -> dict[str, Any]:
    """How matrices are made, with the module of what makes them."""
    return {name: _method(entry.get(name)) for name in ("place", "spaces")}


def _inputs(bits: Literal[4, 8], residual: Any = None, **form: Any) -> RoundedInputs:
    return RoundedInputs(bits, residual=residual and _inputs(**residual), **form)


def _own(name: str, entry: dict[str, Any]) -> CompressionFacts:
    """A compression of `compressions.toml`."""
    made = {"inputs": lambda form: _inputs(**form), "kv": lambda form: IntegerKV(**form), "scales": _method}
    made["residual"] = lambda form: MatrixFacts(**_matrices(form))
    read = {key: made[key](value) if key in made else value for key, value in entry.items()}
    return CompressionFacts(name, **read | _matrices(entry))


#: Every fitted compression by the name that users give.
COMPRESSIONS: dict[str, CompressionFacts] = {
    name: _own(name, entry) for name, entry in read_toml_beside(__file__, "compressions.toml").items()
}


def lossy_names() -> tuple[str, ...]:
    """What compresses a network and leaves no draft in it: these, and the storage schemes of that kind."""
    return (*COMPRESSIONS, *names_that(_is_lossy))


def _is_lossy(facts: SchemeFacts) -> bool:
    return facts.runs and not facts.lossless and not facts.has_draft


#: Our own ones.
LOSSY_NAMES = (*COMPRESSIONS, *(facts.name for facts in OWN_SCHEMES if _is_lossy(facts)))
