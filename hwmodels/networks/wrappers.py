"""Networks that see as well as read: where one keeps its text decoder, in config.json and among the tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from hwmodels.networks.families import family_called
from hwmodels.networks.family import Running
from hwmodels.tables import read_table

__all__ = ["STATED", "WRAPPERS", "Naming", "Wrapper", "nested_in", "nested_text", "text_config", "wrapper_of"]

#: Sizes that a release of a text decoder states: such a file without them is taken for damaged, whatever its family's defaults.
STATED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")

#: What the whole network's file says of its decoder beside the head.
_OF_THE_WHOLE = ("quantization_config", "bos_token_id", "eos_token_id", "pad_token_id")


@dataclasses.dataclass(frozen=True)
class Naming:
    """One way to name the tensors of a network and of its parts.

    Attributes:
        text: beginnings of the names in a checkpoint of the text decoder alone -> beginnings here.
        others: beginnings of the names of the other parts.
    """

    text: Mapping[str, str]
    others: tuple[str, ...]

    def name(self, alone: str) -> str:
        """What a tensor of the text decoder is called here."""
        for first, here in self.text.items():
            if alone.startswith(first):
                return here + alone.removeprefix(first)
        return alone

    def row(self, row: Running) -> Running:
        """The decoder's row with the names that its tensors have here."""
        renamed = lambda named: {self.name(tensor): value for tensor, value in named.items()}
        return dataclasses.replace(
            row,
            tensors={parameter: self.name(tensor) for parameter, tensor in row.tensors.items()},
            fused=renamed(row.fused),
            stacked=renamed(row.stacked),
            fused_by=renamed(row.fused_by),
            transposed=frozenset(map(self.name, row.transposed)),
            unit_axes=frozenset(map(self.name, row.unit_axes)),
        )


@dataclasses.dataclass(frozen=True)
class Wrapper:
    """A kind of network around a text decoder: a row of the table.

    Attributes:
        name: `model_type` of config.json.
        text: `model_type` of a `text_config` that states none.
        namings: of its checkpoints; which one a checkpoint has shows in its tensors.
        flat: files without a `text_config` have its keys beside those of the other parts.
    """

    name: str
    text: str
    namings: tuple[Naming, ...]
    flat: bool = False

    def naming(self, tensors: Iterable[str]) -> Naming:
        """The naming that most of the tensors follow; the first of equals."""
        names = list(tensors)
        share = lambda naming: sum(name.startswith((*naming.text.values(), *naming.others)) for name in names)
        return max(self.namings, key=share)


_TABLE = read_table(__package__, "wrappers.toml")
_NAMINGS = {name: Naming(row["text"], tuple(row["others"])) for name, row in _TABLE["namings"].items()}

#: `model_type` of config.json -> how the text decoder is kept.
WRAPPERS = {
    name: Wrapper(name, **row | {"namings": tuple(map(_NAMINGS.__getitem__, row["namings"]))})
    for name, row in _TABLE["wrappers"].items()
}


def wrapper_of(raw: Mapping[str, Any]) -> Wrapper | None:
    """The kind of network around a text decoder that a parsed config.json describes; None: no row of the table."""
    name = raw.get("model_type")
    return WRAPPERS.get(name) if isinstance(name, str) else None


def nested_in(raw: Mapping[str, Any]) -> Any:
    """What a config.json has as its `text_config`; None: nothing."""
    wrapper = wrapper_of(raw)
    if "text_config" in raw or wrapper is None or not wrapper.flat:
        return raw.get("text_config")
    scaling = raw.get("rope_scaling")
    plain = isinstance(scaling, Mapping) and scaling.get("type", scaling.get("rope_type")) in ("mrope", "default")
    # Positions of text have three equal coordinates.
    left = ("model_type", "architectures", *(("rope_scaling",) if plain else ()))
    return {key: value for key, value in raw.items() if key not in left and not key.endswith("_config")}


def nested_text(raw: Mapping[str, Any], nested: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """A `text_config` with what the whole network's config.json says of the decoder, and with its kind where none is stated.

    Args:
        others: keys that are taken from there beside those of the head, which belongs to the whole network.
    """
    outer = {key: raw[key] for key in ("tie_word_embeddings", *others) if raw.get(key) is not None}
    wrapper = wrapper_of(raw)
    return {**({} if wrapper is None else {"model_type": wrapper.text}), **nested, **outer}


def text_config(raw: dict[str, Any]) -> dict[str, Any]:
    """The config.json that a checkpoint of the text decoder alone would have; a decoder's own is returned as it is.

    A `text_config` states what differs from its family's defaults, sizes too, and so they are filled in.

    Raises:
        ValueError: `text_config` is missing, or is no object.
    """
    wrapper = wrapper_of(raw)
    if wrapper is None:
        return raw
    nested = nested_in(raw)
    if not isinstance(nested, dict):
        raise ValueError(f"text_config is {nested!r}; {wrapper.name} needs an object that describes its text decoder")
    text = nested_text(raw, nested, *_OF_THE_WHOLE)
    family = family_called(text["model_type"])
    if family is None:
        return text
    known = {key for key in STATED if any(name in text for name in (key, *family.spellings.get(key, ())))}
    return {key: family.defaults[key] for key in STATED if key not in known} | text
