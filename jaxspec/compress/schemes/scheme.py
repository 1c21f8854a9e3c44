"""A storage scheme: its facts, and the codecs that it is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, Self

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels import Footprint
from jaxspec.compress.footprint import uniform
from jaxspec.errors import InputError, hint
from jaxspec.formats.container import Codec, codec_of
from jaxspec.formats.patterns import BitsRead
from jaxspec.registries import load_object
from jaxspec.settings.knobs import KnobSpec, StoredDtype
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME, SCHEME_FACTS, SCHEME_OBJECTS, SchemeFacts

__all__ = [
    "BF16",
    "DEFAULT_SCHEME",
    "KV_BITS",
    "RAW",
    "SCHEMES",
    "CompressedKV",
    "CompressedMatrix",
    "KVCodec",
    "MatrixCodec",
    "OwnKnobs",
    "PlainKV",
    "Scheme",
    "find_scheme",
]

# The codecs that a storage scheme is made of: how a draft is cut out of a target, and what reading either takes.

#: Knobs of one matrix, or of one layer's KV cache, by name.
OwnKnobs = dict[str, Float[Array, ""]]


class CompressedMatrix(NamedTuple):
    """One matrix of a draft.

    Attributes:
        values: what the draft computes with.
        bits: read per stored weight, by a draft step and by a verification.
    """

    values: Float[Array, "row column"]
    bits: BitsRead


class CompressedKV(NamedTuple):
    """KV of one layer as a draft reads it.

    Attributes:
        rows: "*b column", one row for the keys or the values of a token.
        bits: read per stored element, by a draft step and by a verification.
    """

    rows: Float[Array, "*b column"]
    bits: BitsRead


class MatrixCodec(Protocol):
    """How one matrix is stored: its target, and a draft as a part of it. Members are frozen, hashable and hold no arrays.

    Everything works on one matrix at a time and under `jit`, `vmap` and `grad`.
    """

    def prepare(self, matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> Any:
        """Whatever of a matrix is worth computing once for all knobs, and is much smaller than the matrix.

        Args:
            channel_norm: L2 norm of each input channel over calibration tokens.
        """
        ...

    def soft(
        self, matrix: Float[Array, "row column"], prepared: Any, knobs: OwnKnobs, temperature: Float[Array, ""] | float
    ) -> CompressedMatrix:
        """The differentiable draft; tends to `hard` as the temperature (> 0) falls, away from half-way knobs."""
        ...

    def hard(self, matrix: Float[Array, "row column"], prepared: Any, knobs: OwnKnobs) -> CompressedMatrix:
        """The bit-exact draft."""
        ...

    def target(self, matrix: Float[Array, "*b row column"]) -> Float[Array, "*b row column"]:
        """What the target computes with, of one matrix or of several; of a lossless scheme the stored values themselves."""
        ...


class KVCodec(Protocol):
    """How keys and values are stored; otherwise as `MatrixCodec`, of one layer's KV at a time."""

    def of_dtype(self, dtype: StoredDtype) -> Self:
        """The same of caches in a 16-bit type; that of bfloat16 unless asked for."""
        ...

    def prepare(self, rows: Float[Array, "*b slot column"]) -> Any:
        """Whatever of one layer's known KV, values of the type that networks are stored in, is worth computing once for all
        knobs."""
        ...

    def soft(
        self,
        prepared: Any,
        knobs: OwnKnobs,
        temperature: Float[Array, ""] | float,
        counted: Float[Array, " batch"] | None = None,
    ) -> CompressedKV:
        """The differentiable compressed KV.

        Args:
            counted: whether the bits are about a sequence, 0 or 1; None: about all. Rows of all are compressed.
        """
        ...

    def hard(self, prepared: Any, knobs: OwnKnobs, counted: Float[Array, " batch"] | None = None) -> CompressedKV:
        """The bit-exact compressed KV. Arguments as for `soft`."""
        ...

    def encode(self, rows: Float[Array, "*b column"], knobs: OwnKnobs) -> Float[Array, "*b column"]:
        """`hard` of rows seen for the first time, inside a decoding loop, without its footprint."""
        ...


#: Bits read per element of a KV cache as it is, by draft and target alike.
KV_BITS = 16.0


@dataclasses.dataclass(frozen=True)
class PlainKV:
    """A `KVCodec`: keys and values that draft and target read as the target wrote them, in 16 bits."""

    def of_dtype(self, dtype: StoredDtype) -> Self:
        """Itself."""
        del dtype
        return self

    def prepare(self, rows: Float[Array, "*b slot column"]) -> Float[Array, "*b slot column"]:
        """The cache as it is."""
        return rows

    def soft(
        self,
        prepared: Float[Array, "*b slot column"],
        knobs: OwnKnobs,
        temperature: Float[Array, ""] | float,
        counted: Float[Array, " batch"] | None = None,
    ) -> CompressedKV:
        """The cache as it is."""
        del temperature
        return self.hard(prepared, knobs, counted)

    def hard(
        self, prepared: Float[Array, "*b slot column"], knobs: OwnKnobs, counted: Float[Array, " batch"] | None = None
    ) -> CompressedKV:
        """The cache as it is."""
        del knobs, counted
        read = jnp.full((), KV_BITS)
        return CompressedKV(prepared, BitsRead(read, read))

    def encode(self, rows: Float[Array, "*b column"], knobs: OwnKnobs) -> Float[Array, "*b column"]:
        """The cache as it is."""
        del knobs
        return rows


@dataclasses.dataclass(frozen=True)
class Scheme:
    """A way to store a network so that a draft is a part of it: what is known of it, and the codecs that it is made of.

    Attributes:
        facts: its entry in the registry, `jaxspec.settings.schemes`.
        footprint: from knobs, one number each, and the type that the network is stored in to the bits read on Gaussian rows
            (see `gaussian_patterns`), the same knobs everywhere; experts as other matrices.
        matrix_codec: of weights; None: a scheme that can be priced and packed, but not run.
        kv: of keys and values.
        apart: kinds of matrix with the schemes by which they are stored instead, of the same knobs; the LM head has its own.
        stored_dtype: type in which networks are stored whose KV cache, and whose cuts, these are; see `of_dtype`.
    """

    facts: SchemeFacts
    footprint: Callable[[Mapping[str, float], StoredDtype], Footprint] = dataclasses.field(repr=False)
    matrix_codec: MatrixCodec | None = None
    kv: KVCodec = PlainKV()
    apart: tuple[tuple[str, Scheme], ...] = dataclasses.field(default=(), kw_only=True)
    stored_dtype: StoredDtype = dataclasses.field(default="bfloat16", kw_only=True)

    def of_dtype(self, dtype: StoredDtype) -> Self:
        """The same scheme of networks stored in a 16-bit type: knobs that cut mantissa bits range over those that it has,
        KV caches are in it, and so is what the expected footprint counts. The registry's are of bfloat16.

        A matrix has the type that it is stored in, whichever this is.
        """
        if dtype == self.stored_dtype:
            return self
        apart = tuple((kind, scheme.of_dtype(dtype)) for kind, scheme in self.apart)
        return dataclasses.replace(self, kv=self.kv.of_dtype(dtype), apart=apart, stored_dtype=dtype)

    def of_kind(self, kind: str) -> Scheme:
        """The scheme by which a kind of matrix is stored: itself, unless `apart` names another.

        Args:
            kind: of a network, see `MATRIX_KINDS`; "lm_head" where the scheme's facts say that it compresses the head.
        """
        return dict(self.apart).get(kind, self)

    @property
    def matrix(self) -> MatrixCodec:
        """The codec of weights.

        Raises:
            NotImplementedError: a scheme that cannot be run.
        """
        if self.matrix_codec is None:
            raise NotImplementedError(
                f"scheme {self.name}: drafts of this form are not run on a network yet, only priced and packed"
            )
        return self.matrix_codec

    @property
    def name(self) -> str:
        """As users give it."""
        return self.facts.name

    @property
    def title(self) -> str:
        """One line."""
        return self.facts.title

    @property
    def lossless(self) -> bool:
        """Whether the target is the uncompressed network's, bit for bit."""
        return self.facts.lossless

    @property
    def knob_specs(self) -> tuple[KnobSpec, ...]:
        """What may be set, in the range that the type has in which networks are stored."""
        # Elements of blocks that share exponents are the same whatever they are made of; the LM head is in none.
        in_blocks = self.facts.shared_exponents is not None
        return tuple(
            spec if in_blocks and spec.per != "head" else spec.of_dtype(self.stored_dtype)
            for spec in self.facts.knob_specs
        )

    @property
    def codec(self) -> Codec | None:
        """The container's, or None where no file of this scheme can be written yet."""
        return codec_of(self.name) if self.facts.packs else None

    def expected_footprint(self, knobs: Mapping[str, float]) -> Footprint:
        """Bits read on Gaussian rows.

        Args:
            knobs: one number for each of `knob_specs`.
        """
        return self.footprint(knobs, self.stored_dtype)


# Nothing compressed: the draft is the target.

#: 16 bits for everything.
BF16 = Scheme(SCHEME_FACTS["bf16"], lambda knobs, dtype: uniform(16.0, 16.0))

#: The same in a file, whatever the tensors' types.
RAW = Scheme(SCHEME_FACTS["raw"], lambda knobs, dtype: uniform(16.0, 16.0))


# The objects of all schemes, each loaded from where the registry says it is when it is first asked for.


class _Schemes(Mapping[str, Scheme]):
    def __getitem__(self, name: str) -> Scheme:
        facts = SCHEME_FACTS[name]
        return SCHEME_OBJECTS[name] if name in SCHEME_OBJECTS else load_object(facts.place)

    def __iter__(self) -> Iterator[str]:
        return iter(SCHEME_FACTS)

    def __len__(self) -> int:
        return len(SCHEME_FACTS)


#: Every scheme by the name that users give.
SCHEMES: Mapping[str, Scheme] = _Schemes()

#: What a user gets who names none.
DEFAULT_SCHEME = SCHEMES[DEFAULT_SCHEME_NAME]


def find_scheme(name: str, *, runs: bool = False, packs: bool = False) -> Scheme:
    """A scheme by name.

    Args:
        runs: it must run networks. packs: a container must be able to hold it.
    Raises:
        InputError: an unknown name, or a scheme that cannot do what is asked.
    """
    able = [s.name for s in SCHEME_FACTS.values() if (s.runs or not runs) and (s.packs or not packs)]
    if name not in able:
        other = isinstance(name, str) and name in SCHEMES
        why = f", which can be priced but not {'run' if runs else 'packed'} yet" if other else ""
        raise InputError(f"scheme is {name!r}{why}{hint(name, able)}")
    return SCHEMES[name]
