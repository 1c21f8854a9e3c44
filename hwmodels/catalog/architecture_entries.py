"""What a description of a network must satisfy, wherever it comes from: field by field, and between fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hwmodels.catalog.entries import Entry, EntryError, file_text, read_entry, shown, titled_document
from hwmodels.catalog.forms import GIVEN, written_number
from hwmodels.network.architecture import Architecture, dense_layers
from hwmodels.numerics.fields import AMOUNT, AT_LEAST_ONE, CHANCE, COUNT, FLAG, NOT_NEGATIVE, POSITIVE, WHOLE, Rule
from hwmodels.tables import read_table

__all__ = [
    "ARCHITECTURE_RULES",
    "DESIGN_RULES",
    "POSITIONS",
    "TOKENIZER",
    "accept_architecture",
    "architecture_document",
    "checked_architecture",
    "parse_architecture",
    "read_architecture",
]

#: What a file gives is whole where a design's number may lie between.
_WHOLE = {AMOUNT: COUNT, NOT_NEGATIVE: WHOLE, CHANCE: FLAG}

#: Field -> rule, for all fields of `Architecture`.
ARCHITECTURE_RULES: dict[str, Rule] = {
    field.name: _WHOLE.get(field.metadata["rule"], WHOLE) for field in dataclasses.fields(Architecture)
} | {
    "num_layers": COUNT,  # only a draft head has none
    # Averages over layers: those that are mixtures of experts may have others than those that are not.
    "vectors_per_layer": NOT_NEGATIVE,
    "window_query_ratio": POSITIVE,
    "window_kv_ratio": POSITIVE,
}

#: The same where counts may lie between whole numbers.
DESIGN_RULES = {
    name: {COUNT: AT_LEAST_ONE, WHOLE: NOT_NEGATIVE, FLAG: CHANCE}.get(rule, rule)
    for name, rule in ARCHITECTURE_RULES.items()
}

#: Fields that a file may leave out. The others have no default, or must be said of every network.
_OPTIONAL = frozenset(
    field.name
    for field in dataclasses.fields(Architecture)
    if field.default is not dataclasses.MISSING and field.name not in ("tied_embeddings", "qk_norm")
)

#: What a file may say beside sizes: the longest text that the network is made for,
POSITIONS = "max_positions"

#: and the name of its tokenizer; "a/b" has the tokens of "a" and further ones behind them.
TOKENIZER = "tokenizer"

_CONSTRAINTS = read_table(__package__, "constraints.toml")


def parse_architecture(text: str, *, where: str) -> Entry:
    """Read and check an architecture's TOML entry; only those of `_OPTIONAL` may be left out.

    Raises:
        EntryError: see `parse_entry`; fields that do not fit together.
    """
    return read_architecture(*titled_document(text, where), where=where)


def read_architecture(title: str, document: dict[str, Any], *, where: str) -> Entry:
    """The same of the content of a file without its title."""
    rules, optional = ARCHITECTURE_RULES | {POSITIONS: COUNT}, _OPTIONAL | {POSITIONS}
    entry = read_entry(title, document, rules, where=where, optional=optional, texts=(TOKENIZER,))
    checked_architecture(entry.values, where=where)
    return entry


def architecture_document(entry: Entry) -> dict[str, Any]:
    """The content of a file that reads as this entry."""
    rules = ARCHITECTURE_RULES | {POSITIONS: COUNT}
    number = lambda name, value: written_number(value, rules[name], entry.sources[name], name)
    texts = {name: {"value": text, "source": entry.sources[name]} for name, text in entry.texts.items()}
    return {"title": entry.title, **{name: number(name, value) for name, value in entry.values.items()}, **texts}


def accept_architecture(name: str, given: Any) -> Entry:
    """An architecture by any of its forms: an entry, the object, the content of a file, or the file.

    Raises:
        ValueError: it is something else; EntryError: see `parse_architecture`.
    """
    where = f"architecture {name!r}"
    if isinstance(given, Entry):
        return given
    if isinstance(given, Architecture):
        numbers = {
            key: written_number(getattr(given, key), rule, GIVEN, key) for key, rule in ARCHITECTURE_RULES.items()
        }
        return read_architecture(name, numbers, where=where)
    if isinstance(given, Mapping):
        document = dict(given)
        return read_architecture(str(document.pop("title", name)), document, where=where)
    if (text := file_text(given)) is not None:
        return parse_architecture(text, where=str(given))
    raise ValueError(f"{where} is {shown(given)}; give an Architecture, a table, or the path of a TOML file")


def checked_architecture(values: Mapping[str, float], *, where: str) -> Architecture:
    """The architecture of these values, each of which already satisfies its own rule.

    Args:
        values: of an entry; `POSITIONS` is no part of the architecture.
    Raises:
        EntryError: two fields do not fit together.
    """
    architecture = Architecture(**{name: value for name, value in values.items() if name != POSITIONS})
    sizes = vars(architecture)

    def fault(first: str, second: str, allowed: str) -> EntryError:
        numbers = f"{first} is {sizes[first]:g} and {second} is {sizes[second]:g}"
        return EntryError(f"{where}: {numbers}; {allowed}")

    for small, large in _CONSTRAINTS["at_most"]:
        if sizes[small] > sizes[large]:
            raise fault(small, large, f"{small} must be at most {large}")
    for switch, *dependents in _CONSTRAINTS["together"]:
        for dependent in dependents:
            if (sizes[switch] > 0) != (sizes[dependent] > 0):
                raise fault(switch, dependent, "both must be 0 or neither")
    for field, need in _CONSTRAINTS["needs"]:
        if sizes[field] > 0 and not sizes[need] > 0:
            raise fault(field, need, f"{field} above 0 needs {need} above 0")
    if sizes["num_heads"] % sizes["num_kv_heads"]:
        raise fault("num_heads", "num_kv_heads", "key-value heads must divide heads")
    if sizes["linear_key_heads"] and sizes["linear_value_heads"] % sizes["linear_key_heads"]:
        raise fault("linear_value_heads", "linear_key_heads", "key heads must divide value heads")
    if sizes["num_linear_layers"] >= sizes["num_layers"]:
        raise fault("num_linear_layers", "num_layers", "one layer at least must attend to a cache")
    if sizes["num_window_layers"] + sizes["num_linear_layers"] > sizes["num_layers"]:
        raise fault(
            "num_window_layers",
            "num_linear_layers",
            f"together they must be at most num_layers, {sizes['num_layers']:g}",
        )
    if dense_layers(architecture) < 0:
        raise fault("num_moe_layers", "num_ffn_layers", "num_moe_layers must be at most num_ffn_layers")
    if dense_layers(architecture) > 0 and not sizes["intermediate_size"] > 0:
        raise fault("num_moe_layers", "intermediate_size", "layers without experts need intermediate_size above 0")
    return architecture
