"""The registry of lossy compressions that are fitted to calibration text and compared with speculation.

A new one is a function, here or in another package, and an entry. None of them has a draft. Storage schemes, which need no
text for their target, stand in `jaxspec.settings.schemes`.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

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


#: Module of the methods.
_FITTED = "jaxspec.compress.fitted.methods:"

_DUQUANT = (
    "DuQuant, Lin et al. 2024, arXiv:2406.01721, without learned clipping (LWC, which the paper adds as a variant); one "
    "rotation for all blocks of a row, as in the authors' program, and a sample of 128 tokens"
)

#: DuQuant's activations, with the paper's share of the range.
_SPREAD = RoundedInputs(4, scaled=True, spread=True, range_share=0.9)

_ALL = (
    CompressionFacts(
        "wanda-50",
        "half of each row's weights pruned by size times input norm, a bitmap stored",
        _FITTED + "wanda_half",
        "Sun et al. 2023, arXiv:2306.11695; one pass over the stored network's inputs, not layer after layer",
    ),
    CompressionFacts(
        "smoothquant-w8",
        "8 bits per output channel, input channels smoothed by their norms",
        _FITTED + "smoothquant_w8",
        "Xiao et al. 2022, arXiv:2211.10438; weights alone: activations are smoothed and stay in 16 bits",
    ),
    CompressionFacts(
        "smoothquant-w8a8",
        "W8A8: weights of smoothquant-w8, smoothed activations rounded to 8 bits per token",
        _FITTED + "smoothquant_w8",
        "Xiao et al. 2022, arXiv:2211.10438, with scales per token (O1); smoothed by norms, not by largest values, and each "
        "matrix by scales of its own; attention computes in 16 bits",
        inputs=RoundedInputs(8, scaled=True),
        scales=_FITTED + "smoothing_scale",
        kernels="sq",
    ),
    CompressionFacts(
        "awq-int4",
        "4-bit groups of 32, input channels scaled by a searched power of their norms",
        _FITTED + "awq_int4",
        "Lin et al. 2023, arXiv:2306.00978; the error is weighted by the norms, not measured on outputs",
    ),
    CompressionFacts(
        "squeezellm-4",
        "16 values per row, placed by weighted k-means",
        _FITTED + "squeezellm_4",
        "Kim et al. 2023, arXiv:2306.07629; weighted by squared input norms in place of Fisher information, no sparse part",
    ),
    CompressionFacts(
        "rotated-int4",
        "4-bit groups of 32 of rows rotated by Hadamard blocks",
        _FITTED + "rotated_int4",
        "DuQuant, Lin et al. 2024, arXiv:2406.01721, and QuaRot; weights alone, random signs, no permutation",
    ),
    CompressionFacts(
        "rotated-w4a8",
        "W4A8: weights of rotated-int4, rotated activations rounded to 8 bits per token",
        _FITTED + "rotated_int4",
        "QoQ, Lin et al. 2024, arXiv:2405.04532; groups of 32 with one level of scales, all inputs rotated and none smoothed, "
        "keys and values in 16 bits (QoQ: 4)",
        inputs=RoundedInputs(8, rotated=True),
    ),
    CompressionFacts(
        "rotated-w4a4",
        "W4A4: weights of rotated-int4, rotated activations rounded to 4 bits per token",
        _FITTED + "rotated_int4",
        "DuQuant, Lin et al. 2024, arXiv:2406.01721; Hadamard blocks with random signs in place of its greedy rotations and "
        "its permutation, groups of 32 in place of output channels, nothing clipped, keys and values in 16 bits",
        inputs=RoundedInputs(4, rotated=True),
    ),
    CompressionFacts(
        "rotated-w4a4kv4",
        "W4A4KV4: rotated-w4a4 with keys and values rounded to 4 bits per token and head",
        _FITTED + "rotated_int4",
        "as rotated-w4a4; keys and values in asymmetric integers after rotary embeddings",
        inputs=RoundedInputs(4, rotated=True),
        kv=IntegerKV(4),
    ),
    CompressionFacts(
        "qoq-w4a8kv4",
        "W4A8KV4: weights in two levels of integers, inputs of blocks rotated, those of o and down smoothed and reordered, "
        "activations rounded to 8 bits per token, keys and values to 4 bits per token and head, keys smoothed",
        _FITTED + "qoq_w4",
        "QoQ, Lin et al. 2024, arXiv:2405.04532; ranges of groups clipped by the error weighted with input norms, not by that "
        "of outputs, and no GPTQ; a sample of 128 tokens; scales of o are each query head's own",
        inputs=RoundedInputs(8, rotated=True, residual=RoundedInputs(8, scaled=True)),
        residual=MatrixFacts(_FITTED + "qoq_residual_w4", _FITTED + "qoq_smoothing"),
        kv=IntegerKV(4, smoothed_keys=True),
    ),
    CompressionFacts(
        "duquant-w4a4",
        "W4A4: inputs smoothed, rotated, reordered and rotated again; weights rounded to 4 bits per row, activations per token",
        _FITTED + "duquant_w4",
        _DUQUANT + "; queries, keys and values in 16 bits",
        inputs=_SPREAD,
        spaces=_FITTED + "duquant_space",
    ),
    CompressionFacts(
        "duquant-w4a4kv4",
        "W4A4KV4: duquant-w4a4 with queries, keys and values rounded to 4 bits per token and head, queries and keys in "
        "Hadamard blocks",
        _FITTED + "duquant_w4",
        _DUQUANT + "; the Hadamard blocks of queries and keys have random signs",
        inputs=_SPREAD,
        spaces=_FITTED + "duquant_space",
        kv=IntegerKV(4, rotated_keys=True, queries=True, key_share=0.9),
    ),
)

#: Every fitted compression by the name that users give.
COMPRESSIONS: dict[str, CompressionFacts] = {facts.name: facts for facts in _ALL}


def lossy_names() -> tuple[str, ...]:
    """What compresses a network and leaves no draft in it: these, and the storage schemes of that kind."""
    return (*COMPRESSIONS, *names_that(_is_lossy))


def _is_lossy(facts: SchemeFacts) -> bool:
    return facts.runs and not facts.lossless and not facts.has_draft


#: Our own ones.
LOSSY_NAMES = (*COMPRESSIONS, *(facts.name for facts in OWN_SCHEMES if _is_lossy(facts)))
