"""The registry of storage schemes: what each is, which knobs it has, what it can do, and where its numerics are.

A new scheme is a file under `compress/schemes/` and an entry of `schemes.toml`, or an entry point of a package.
Configurations, command line, help and reports read the entries, so that none of them has to load JAX;
`jaxspec.compress.schemes` has the objects.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

from jaxspec.partial_files import read_toml_beside
from jaxspec.registries import Registry
from jaxspec.settings.fields import Among
from jaxspec.settings.knobs import CUT_AND_PRUNE, KNOB_GROUPS, KnobSpec, SharedExponents

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
        place: "module:object"; in `schemes.toml`, the module is in `jaxspec.compress.schemes`. Empty: the object is
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


def _own(
    name: str, *, place: str, knobs: Iterable[str] = (), shared_exponents: Any = None, **facts: Any
) -> SchemeFacts:
    """A scheme of `schemes.toml`."""
    return SchemeFacts(
        name,
        place=f"jaxspec.compress.schemes.{place}",
        knob_specs=tuple(spec for group in knobs for spec in KNOB_GROUPS[group]),
        shared_exponents=shared_exponents and SharedExponents(**shared_exponents),
        **facts,
    )


#: Our own schemes.
OWN_SCHEMES = tuple(_own(name, **facts) for name, facts in read_toml_beside(__file__, "schemes.toml").items())

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
