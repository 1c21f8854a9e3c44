"""A device's TOML entry: which tables and fields it may have, and the tree that they make.

Beside the numbers of `Device` a file may name further `aliases` of the device and the `link` to other devices, one of
`link_names`, and have the tables [chip] or [technology], [on_chip_path], [matrix_unit], [decoder], [encoder], [superblocks],
[extra_rows], [placement], [engine_terms] and any number of [[spill]] memories. A matrix unit says its `kind`, one of
`hwmodels.catalog.units`, and has the fields of that kind's class, as a placement does, one of
`hwmodels.memory.placement.PLACEMENTS`:

[matrix_unit]
kind = "systolic_array"
rows = { value = 128, source = "…" }
[matrix_unit.weight_buffer]
…
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from hwmodels.analysis.design_point import leaf_names
from hwmodels.catalog.entries import EntryError, file_text, near_matches, shown, titled_document
from hwmodels.catalog.forms import GIVEN, TableReader, form_of, named_rules, written
from hwmodels.catalog.links import link_names
from hwmodels.catalog.units import read_unit, written_unit
from hwmodels.chip.blocks import Technology, decoder_area_at, decoder_symbol_energy_at
from hwmodels.compute.roofline import unit_of
from hwmodels.decoders.decoder import DECODER_KINDS, Decoder
from hwmodels.device import Chip, Device, MemoryTier
from hwmodels.memory.placement import PLACEMENTS
from hwmodels.numerics.fields import NOT_NEGATIVE, Rule
from hwmodels.speculation.engine_logs import EngineTerms

__all__ = ["DeviceEntry", "accept_device", "device_document", "number_rules", "parse_device", "read_device"]


@dataclasses.dataclass(frozen=True)
class DeviceEntry:
    """A file's content; sources by dotted field name, as in "memory.efficiency" or "spill.0.capacity_bytes"."""

    title: str
    device: Device
    sources: dict[str, str]
    calibration: str | None = None  # of its matrix unit, a name of `calibrated_names`
    link: str | None = None  # to other devices, a name of `link_names`
    engine_terms: EngineTerms | None = None  # of this package as an engine on a measured machine
    aliases: tuple[str, ...] = ()  # further names that people use

    @property
    def basis(self) -> str:
        """What times of the device rest on: "calibrated", "transferred" from another device, or "data sheet only"."""
        said = self.sources.get("memory.efficiency", "")
        if self.calibration is not None:
            return "transferred" if "kernels as calibrated on" in self.title else "calibrated"
        first = said.partition(":")[0]
        return {"derived": "calibrated", "calibrated": "calibrated", "transferred": "transferred"}.get(
            first, "data sheet only"
        )


#: A file to begin with, accepted as it is: every number that a file may give, with its unit and default. Lines behind "#~ " are
#: optional and may be used by deleting "#~ "; those behind "#= " take the place of [technology].
DEVICE_TEMPLATE = Path(__file__).with_name("device_template.toml").read_text(encoding="utf-8")

#: Decoders whose kind alone says how many symbols a unit puts out per cycle, with the source; others depend on their width.
_OWN_RATES = {"huffman_cam": (1.0, "derived: a unit matches one codeword per cycle, Huff-LLM, sec. 3.2")}

#: What a file may have beside the numbers of `Device`.
_TABLES = ("title", "aliases", "link", "chip", "decoder", "engine_terms", "matrix_unit", "placement", "spill")

#: Of a file: a decoder that undoes nothing is left out.
_KINDS = tuple(kind for kind in DECODER_KINDS if kind != "none")


def parse_device(text: str, *, where: str) -> DeviceEntry:
    """Read a device's TOML entry.

    Args:
        text: the file's content.
        where: the file's name, for messages.
    Raises:
        EntryError: not valid TOML; a key unknown or missing; a value that is no finite number or breaks its rule; a source
            missing or empty; a kind that is not modelled.
    """
    return read_device(*titled_document(text, where), where=where)


def read_device(title: str, document: dict[str, Any], *, where: str) -> DeviceEntry:
    """The same of the content of a file without its title, which is used up."""
    reader = TableReader(where)
    extra: dict[str, Any] = {}
    aliases = document.pop("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(one, str) and one.strip() for one in aliases):
        raise EntryError(f'{where}: aliases is {shown(aliases)}; it must be a list of names: aliases = ["…"]')
    link = document.pop("link", None)
    if link is not None and (not isinstance(link, str) or link not in link_names()):
        near = near_matches(link, link_names()) if isinstance(link, str) else ""
        raise EntryError(f"{where}: link is {shown(link)};{near} allowed: {', '.join(link_names())}")
    if "chip" in document:
        extra["chip"] = reader.read(document.pop("chip"), form_of(Chip), "chip")
    if "decoder" in document:
        extra["decoder"] = _read_decoder(reader, document.pop("decoder"))
    if "matrix_unit" in document:
        extra["matrix_unit"] = read_unit(reader, document.pop("matrix_unit"))
    if "placement" in document:
        kinds = {name: form_of(kind) for name, kind in PLACEMENTS.items()}
        extra["placement"] = reader.read_variant(document.pop("placement"), kinds, "placement")
    if "spill" in document:
        spill = document.pop("spill")
        if not isinstance(spill, list):
            raise EntryError(f"{where}: spill is {shown(spill)}; write [[spill]] above the fields of each memory")
        extra["spill"] = tuple(reader.read(one, form_of(MemoryTier), f"spill.{i}") for i, one in enumerate(spill))
    terms = document.pop("engine_terms", None)
    terms = None if terms is None else reader.read(terms, form_of(EngineTerms), "engine_terms")
    device = reader.read(document, form_of(Device), "", also=_TABLES)
    device = device.replace(**extra)
    if device.placement is not None and not device.spill:
        raise EntryError(
            f"{where}: a placement came, but the device has one memory; add [[spill]], or leave out [placement]"
        )
    if device.technology is not None:
        if device.chip is not None:
            raise EntryError(
                f"{where}: a [chip] and a [technology] came, and both say what energy and area are; leave one of them out"
            )
        device = _with_decoder_costs(device, reader.sources)
    _check_nothing_is_free(device, reader.sources, where)
    return DeviceEntry(
        title=title,
        device=device,
        sources=reader.sources,
        calibration=reader.calibration,
        link=link,
        engine_terms=terms,
        aliases=tuple(aliases),
    )


def device_document(entry: DeviceEntry, name: str) -> dict[str, Any]:
    """The content of a file that reads as this device.

    Args:
        name: what the device is called, for messages.
    Raises:
        EntryError: there is no such file.
    """
    device, sources, form = entry.device, entry.sources, form_of(Device)
    try:
        document = {"title": entry.title, **written(device, form, sources)}
        if entry.link is not None:
            document["link"] = entry.link
        if entry.engine_terms is not None:
            document["engine_terms"] = written(entry.engine_terms, form_of(EngineTerms), sources, "engine_terms.")
        for key, kind in (("chip", Chip), ("decoder", Decoder)):
            if (part := getattr(device, key)) is not None:
                document[key] = written(part, form_of(kind), sources, f"{key}.")
        if device.matrix_unit is not None:
            document["matrix_unit"] = written_unit(device.matrix_unit, sources)
        if (placement := device.placement) is not None:
            kind = next((kind for kind, one in PLACEMENTS.items() if one is type(placement)), None)
            if kind is None:
                raise EntryError(f"its placement, {type(placement).__name__}, is not registered; register it first")
            document["placement"] = {
                "kind": kind,
                **written(placement, form_of(type(placement)), sources, "placement."),
            }
        if device.spill:
            memory = form_of(MemoryTier)
            document["spill"] = [written(one, memory, sources, f"spill.{i}.") for i, one in enumerate(device.spill)]
    except EntryError as error:
        raise EntryError(f"device {name!r} cannot be written to a file: {error}") from error
    again = read_device(
        entry.title, {k: v for k, v in document.items() if k != "title"}, where=f"device {name!r}"
    ).device
    first, second = map(jax.tree.flatten, (device, again))
    if first[1] != second[1] or any(float(a) != float(b) for a, b in zip(first[0], second[0], strict=True)):
        names = [set(leaf_names(one)) for one in (device, again)]
        lost = ", ".join(sorted(names[0] ^ names[1])) or "a setting that is no number"
        raise EntryError(
            f"device {name!r} has {lost}, which no file of a device can say; several devices are tensor_parallel and "
            "the like, and kernels of an engine are engine"
        )
    return document


def accept_device(name: str, given: Any) -> DeviceEntry:
    """A device by any of its forms: an entry, the object, the content of a file, or the file.

    Raises:
        ValueError: it is something else; EntryError: see `parse_device`.
    """
    if isinstance(given, DeviceEntry):
        return given
    if isinstance(given, Device):
        return DeviceEntry(name, given, dict.fromkeys(leaf_names(given), GIVEN))
    if isinstance(given, Mapping):
        document = dict(given)
        return read_device(str(document.pop("title", name)), document, where=f"device {name!r}")
    if (text := file_text(given)) is not None:
        return parse_device(text, where=str(given))
    raise ValueError(f"device {name!r} is {shown(given)}; give a Device, a table, or the path of a TOML file")


def _read_decoder(reader: TableReader, table: Any) -> Decoder:
    """The decoders; never without a rate, as they would then be infinitely fast."""
    form = form_of(Decoder)
    form = dataclasses.replace(form, texts={**form.texts, "kind": _KINDS})
    rate_field = "symbols_per_cycle"
    # A tuple, since a kind may come as a table or a list, which have no hash.
    own_rate = isinstance(table, dict) and table.get("kind", _KINDS[0]) in tuple(_OWN_RATES)
    if isinstance(table, dict) and not own_rate and "frequency_hz" not in table:
        # Both numbers of a rate are asked for at once.
        form = dataclasses.replace(form, required={**form.required, rate_field: form.optional[rate_field]})
    decoder = reader.read(table, form, "decoder")
    name = f"decoder.{rate_field}"
    if name in reader.sources:
        return decoder
    if decoder.kind not in _OWN_RATES:
        raise EntryError(
            f"{reader.where}: {name} is missing, without which a decoder of kind {decoder.kind!r} would be infinitely fast; "
            f'add {name} = {{ value = …, source = "…" }}: values that one unit puts out per cycle'
        )
    rate, reader.sources[name] = _OWN_RATES[decoder.kind]
    return dataclasses.replace(decoder, symbols_per_cycle=rate)


def _with_decoder_costs(device: Device, sources: dict[str, str]) -> Device:
    """Area and energy of decoders by the node, where the file is silent on them."""
    decoder, node_m = device.decoder, device.technology.node_m  # pyright: ignore[reportOptionalMemberAccess]
    if decoder is None:
        return device
    derived = {}
    if "decoder.area_m2" not in sources:
        derived["area_m2"] = float(decoder_area_at(node_m, decoder.symbols_per_cycle))
    if not {"decoder.power_w", "decoder.symbol_energy_j"} & sources.keys():
        derived["symbol_energy_j"] = float(decoder_symbol_energy_at(node_m))
    said = "derived: Cassandra's unary decoders by values per cycle, Table V, scaled from 28 nm to the node"
    sources |= {f"decoder.{name}": said for name in derived}
    return dataclasses.replace(device, decoder=dataclasses.replace(decoder, **derived))


def _check_nothing_is_free(device: Device, given: Mapping[str, str], where: str) -> None:
    """Refuse a device of known energy some of whose parts would take no energy or area because the file is silent on them."""
    if not device.knows_energy:
        return
    table = "[chip]" if device.technology is None else "[technology]"
    needed = [(f"{tier}.energy_j_per_bit",) for tier in ("memory", *(f"spill.{i}" for i in range(len(device.spill))))]
    if device.decoder is not None:
        needed += [("decoder.power_w", "decoder.symbol_energy_j"), ("decoder.area_m2",)]
    if device.encoder is not None:
        needed += [("encoder.power_w", "encoder.value_energy_j"), ("encoder.area_m2",)]
    for names in needed:
        if not any(name in given for name in names):
            raise EntryError(
                f"{where}: {' or '.join(names)} is missing; energy and area of a device with a {table} are reported, and "
                f'this would be free: add {names[0]} = {{ value = …, source = "…" }}, or leave out {table}'
            )
    if device.chip is not None and device.chip.element_area_m2 is not None and unit_of(device).elements is None:
        raise EntryError(
            f"{where}: chip.element_area_m2 came, but the device has no matrix unit with elements of equal area; "
            "remove it, or add a [matrix_unit] such as systolic_array"
        )


def number_rules(device: Device) -> dict[str, Rule]:
    """What each number of a device must be, by dotted name; fitted numbers of a calibrated GPU are >= 0."""
    parts: dict[str, Any] = {"": Device, "memory": MemoryTier, "chip": Chip, "decoder": Decoder}
    parts |= {f"spill.{i}": MemoryTier for i in range(len(device.spill))}
    parts |= {"matrix_unit": type(unit_of(device)), "technology": Technology}
    rules: dict[str, Rule] = {}
    for prefix, kind in parts.items():
        rules |= named_rules(form_of(kind), f"{prefix}." if prefix else "")
    if device.group is not None:
        rules |= named_rules(form_of(type(device.group)), "group.")
        rules |= named_rules(form_of(type(device.group.link)), "group.link.")
    if device.placement is not None:
        rules |= named_rules(form_of(type(device.placement)), "placement.")
    return {name: rules.get(name, NOT_NEGATIVE) for name in leaf_names(device)}
