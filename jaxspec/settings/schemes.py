"""The registry of storage schemes: what each is, which knobs it has, what it can do, and where its numerics are.

A new scheme is a file under `compress/schemes/` and an entry here, or an entry point of a package. Configurations, command
line, help and reports read the entries, so that none of them has to load JAX; `jaxspec.compress.schemes` has the objects.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from jaxspec.registries import Registry
from jaxspec.settings.fields import Among
from jaxspec.settings.knobs import CUT_AND_PRUNE, EXPERT_POOL, HEAD_KNOBS, SLICE_BITS, KnobSpec, SharedExponents

__all__ = [
    "DEFAULT_SCHEME_NAME",
    "KNOBS",
    "OWN_SCHEMES",
    "RELEASED",
    "SCHEME_FACTS",
    "SCHEME_OBJECTS",
    "SchemeFacts",
    "all_knobs",
    "names_that",
    "scheme_facts",
]


@dataclasses.dataclass(frozen=True)
class SchemeFacts:
    """What is known of a scheme without its numerics.

    Attributes:
        place: "module:object"; in the table below, the module is in `jaxspec.compress.schemes`. Empty: the object is
            registered.
        lossless: whether the target is the uncompressed network's, bit for bit.
        knob_specs: what may be set; empty for a scheme without choices.
        has_draft: whether a draft step reads less than the target does.
        runs: whether drafts can be made and run, not only priced and packed.
        codec: of its matrices in a container; None: no container can hold it.
        cut_to: what the draft takes cut bits for, in words.
        shared_exponents: form of the target's matrices and KV cache; None: neither is in blocks that share exponents.
    """

    name: str
    title: str
    place: str
    lossless: bool
    knob_specs: tuple[KnobSpec, ...] = ()
    has_draft: bool = False
    runs: bool = False
    codec: str | None = None
    cut_to: str = "zero"
    shared_exponents: SharedExponents | None = None

    @property
    def takes_bits(self) -> bool:
        """Whether its draft or its target is made of the bits of 16-bit weights, which a network held in codes lacks."""
        return self.has_draft or not self.lossless

    @property
    def prunes_and_cuts(self) -> bool:
        """Whether the draft prunes and cuts both weights and KV cache, as Cassandra's does."""
        return {spec.name for spec in CUT_AND_PRUNE} <= {spec.name for spec in self.knob_specs}

    @property
    def prunes(self) -> bool:
        """Whether the draft leaves out the weights of a row that rank lowest."""
        return any(spec.name == "weight_prune" for spec in self.knob_specs)

    @property
    def packs(self) -> bool:
        """Whether a container can hold it."""
        return self.codec is not None

    @property
    def head(self) -> bool:
        """Whether the draft's LM head is compressed too; otherwise it is the target's, in 16 bits."""
        return any(spec.per == "head" for spec in self.knob_specs)


_CASSANDRA: dict[str, Any] = {"knob_specs": CUT_AND_PRUNE, "has_draft": True, "runs": True}

_WITH_HEAD: dict[str, Any] = _CASSANDRA | {"knob_specs": CUT_AND_PRUNE + HEAD_KNOBS}

_QUANTIZED: dict[str, Any] = {"lossless": False, "runs": True}

_ALL = (
    SchemeFacts(
        "cassandra1",
        "a draft of pruned, truncated values with unary exponents; lossless",
        "cassandra1:CASSANDRA1",
        lossless=True,
        codec="cassandra1",
        **_CASSANDRA,
    ),
    SchemeFacts(
        "cassandra1-coded",
        "the same, exponents of pruned values coded too; lossless",
        "cassandra1:CASSANDRA1_CODED",
        lossless=True,
        codec="cassandra1-coded",
        **_CASSANDRA,
    ),
    SchemeFacts(
        "cassandra1-midpoint",
        "cassandra1 whose draft takes truncated values for the middle of what they can stand for; lossless",
        "cassandra1:CASSANDRA1_MIDPOINT",
        lossless=True,
        codec="cassandra1-midpoint",
        cut_to="the middle of what they can stand for",
        **_CASSANDRA,
    ),
    SchemeFacts(
        "cassandra1-head",
        "cassandra1 whose draft prunes and truncates the LM head too; lossless",
        "cassandra1:CASSANDRA1_HEAD",
        lossless=True,
        codec="cassandra1",
        **_WITH_HEAD,
    ),
    SchemeFacts(
        "cassandra2",
        "the target with shared MX exponents, which changes it a little (not lossless); the draft pruned and truncated",
        "cassandra2:CASSANDRA2",
        lossless=False,
        codec="cassandra2",
        shared_exponents=SharedExponents(8, "toward_zero"),
        **_CASSANDRA,
    ),
    SchemeFacts(
        "cassandra2-head",
        "cassandra2 whose draft prunes and truncates the LM head too, as cassandra1 would; not lossless",
        "cassandra2:CASSANDRA2_HEAD",
        lossless=False,
        codec="cassandra2",
        shared_exponents=SharedExponents(8, "toward_zero"),
        **_WITH_HEAD,
    ),
    SchemeFacts(
        "mxint8",
        "the target in MXINT8, the draft pruned and truncated (Cassandra, VII-A.3); not lossless",
        "cassandra2:MXINT8",
        lossless=False,
        codec="mxint8",
        shared_exponents=SharedExponents(7, "nearest_even"),
        **_CASSANDRA,
    ),
    SchemeFacts(
        "huffman",
        "exponents by Huffman codes; lossless, decodes fastest",
        "huffman:HUFFMAN",
        lossless=True,
        codec="huffman",
    ),
    SchemeFacts(
        "huffllm",
        "Huff-LLM's fields (float16 1-5-5-5, bfloat16 1-4-4-7), each Huffman-coded; lossless",
        "huffman:HUFFLLM",
        lossless=True,
        codec="huffllm",
    ),
    SchemeFacts(
        "elastic",
        "8-bit weights; the draft reads their upper bits and chooses among few experts (ELMoE-3D)",
        "elastic:ELASTIC",
        lossless=False,
        codec="bit-slices",
        knob_specs=(SLICE_BITS, EXPERT_POOL),
        has_draft=True,
        runs=True,
    ),
    SchemeFacts(
        "bit-slices",
        "the same, choosing among all experts",
        "elastic:BIT_SLICES",
        lossless=False,
        codec="bit-slices",
        knob_specs=(SLICE_BITS,),
        has_draft=True,
        runs=True,
    ),
    SchemeFacts(
        "any-precision",
        "8-bit weights, of which the draft reads the upper bits as a narrower integer (Any-Precision LLM)",
        "elastic:ANY_PRECISION",
        lossless=False,
        codec="any-precision",
        knob_specs=(SLICE_BITS,),
        has_draft=True,
        runs=True,
    ),
    SchemeFacts("q8_0", "8-bit groups of 32", "quantized:Q8_0", **_QUANTIZED),
    SchemeFacts("q4_0", "4-bit groups of 32", "quantized:Q4_0", **_QUANTIZED),
    SchemeFacts("q4_0-down8", "4-bit groups of 32, FFN down in 8 bits", "quantized:Q4_0_DOWN8", **_QUANTIZED),
    SchemeFacts("tile-q8_0", "8-bit groups of 2 x 16 in tiles of an NPU", "quantized:TILE_Q8_0", **_QUANTIZED),
    SchemeFacts("tile-q4_0", "4-bit groups of 2 x 16 in tiles of an NPU", "quantized:TILE_Q4_0", **_QUANTIZED),
    SchemeFacts(
        "tile-q4_0-down8",
        "4-bit groups of 2 x 16 in tiles of an NPU, FFN down in 8 bits",
        "quantized:TILE_Q4_0_DOWN8",
        **_QUANTIZED,
    ),
    SchemeFacts("int8-channel", "8 bits, one scale per output channel", "quantized:INT8_CHANNEL", **_QUANTIZED),
    SchemeFacts("int4-channel", "4 bits, one scale per output channel", "quantized:INT4_CHANNEL", **_QUANTIZED),
    SchemeFacts("mxfp8", "8-bit MX elements", "quantized:MXFP8", **_QUANTIZED),
    SchemeFacts("mxfp4", "4-bit MX elements", "quantized:MXFP4", **_QUANTIZED),
    SchemeFacts("bf16", "nothing compressed; the draft is the target", "scheme:BF16", lossless=True),
    SchemeFacts("raw", "every tensor as it is, checksummed", "scheme:RAW", lossless=True, codec="raw"),
)

#: Our own schemes.
OWN_SCHEMES = tuple(dataclasses.replace(facts, place=f"jaxspec.compress.schemes.{facts.place}") for facts in _ALL)

#: The knobs of our own schemes by name; schemes that share a name share the knob.
KNOBS: dict[str, KnobSpec] = {spec.name: spec for facts in OWN_SCHEMES for spec in facts.knob_specs}

#: Objects of schemes that were registered themselves, and not their facts.
SCHEME_OBJECTS: dict[str, Any] = {}


def _accept(name: str, given: Any) -> SchemeFacts:
    """The facts, or the scheme that has them."""
    facts = given if isinstance(given, SchemeFacts) else getattr(given, "facts", None)
    if not isinstance(facts, SchemeFacts):
        raise ValueError(f"scheme {name!r} is of type {type(given).__name__}; give a Scheme, or its SchemeFacts")
    if facts.name != name:
        raise ValueError(f"scheme {name!r} is called {facts.name!r} by its facts; give it one name")
    for spec in facts.knob_specs:
        known = next((one for own in SCHEME_FACTS.values() for one in own.knob_specs if one.name == spec.name), spec)
        if known != spec:
            raise ValueError(
                f"scheme {name!r} has another knob {spec.name!r} than other schemes; give it a name of its own"
            )
    # Its settings, which are made of this module.
    importlib.import_module("jaxspec.settings.draft_kinds").add_knobs(facts)
    if given is not facts:
        SCHEME_OBJECTS[name] = given
    return facts


#: Every scheme by the name that users give.
SCHEME_FACTS: Registry[SchemeFacts] = Registry("scheme", {facts.name: facts for facts in OWN_SCHEMES}, _accept)

#: The form in which the release of a priced network stores it: no scheme of a network that runs.
RELEASED = SchemeFacts(
    "released", "as the release of the priced network stores it; the draft is the target", place="", lossless=True
)

#: What a user gets who names none.
DEFAULT_SCHEME_NAME = "cassandra1"


def all_knobs() -> dict[str, KnobSpec]:
    """The same of all schemes."""
    return {spec.name: spec for facts in SCHEME_FACTS.values() for spec in facts.knob_specs}


def names_that(able: Callable[[SchemeFacts], bool]) -> tuple[str, ...]:
    """Schemes that can do something."""
    return tuple(name for name, facts in SCHEME_FACTS.items() if able(facts))


if TYPE_CHECKING:
    #: How a network that runs can be stored.
    NetworkScheme = str
    #: What a checkpoint can be packed with.
    PackScheme = str
    #: What can be priced without a network.
    WidthScheme = str
    #: The same, or the release's own form.
    PricedScheme = str
else:
    NetworkScheme = Annotated[str, Among(lambda: names_that(lambda facts: facts.runs))]
    PackScheme = Annotated[str, Among(lambda: names_that(lambda facts: facts.packs))]
    WidthScheme = Annotated[str, Among(lambda: tuple(SCHEME_FACTS))]
    PricedScheme = Annotated[str, Among(lambda: (*SCHEME_FACTS, RELEASED.name))]


def scheme_facts(name: str) -> SchemeFacts | None:
    """What is known of a scheme, the release's own form among them; None: there is none of that name."""
    return RELEASED if name == RELEASED.name else SCHEME_FACTS.get(name)
