"""From the names of devices and architectures to what is priced."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hwmodels import Architecture, Case, Device, Workload, catalog
from jaxspec.errors import InputError
from jaxspec.partial_files import GGUF_SUFFIX
from jaxspec.report.assumptions import parallelism_of
from jaxspec.settings import CommonConfig
from jaxspec.settings.common import ParallelSettings
from jaxspec.studies.config_files import read_network
from jaxspec.studies.engine_pricing import engine_terms
from jaxspec.studies.feasibility import check_blocks, check_positions, priced_pair, weight_block

if TYPE_CHECKING:
    from jaxspec.models.config import DecoderConfig

__all__ = [
    "longest_text",
    "resolve_architecture",
    "resolve_device",
    "resolve_draft",
    "resolve_pricing",
]


def _several(given: int | tuple[int, ...]) -> tuple[int, ...]:
    return given if isinstance(given, tuple) else (given,)


def longest_text(config: Any) -> int:
    """Tokens of the longest text that is priced: a step reads the cached tokens, and has a position behind them."""
    return max(*_several(config.context), config.prompt_tokens - 1) + 1


def resolve_architecture(name: str, own: DecoderConfig | None) -> Architecture:
    """ "own" (the network's shapes), a catalog name, a Hugging Face config.json (or its directory), or a GGUF file.

    Raises:
        InputError: unknown name, unreadable file, a family that is not modelled.
    """
    if name == "own":
        if own is None:
            raise InputError("architecture 'own' needs a network; give a catalog name or a config.json")
        from jaxspec.models.architecture import architecture_of  # with the network that runs all else is loaded

        return architecture_of(own)
    if os.path.exists(name):  # `Path.exists` raises on names too long for one
        try:
            return read_network(name).architecture
        except (NotImplementedError, ValueError) as error:
            raise InputError(f"architecture {name!r}: {error}") from error
    if name.endswith((".json", GGUF_SUFFIX)) or name.startswith((".", "~", os.sep)):
        raise InputError(
            f"architecture {name!r} is no file or folder here; give a config.json, its folder or a GGUF file, or a name of "
            "jaxspec models"
        )
    try:
        return catalog.architecture(name)
    except catalog.UnknownNameError as error:
        raise InputError(str(error)) from error


def resolve_device(name: str, *, engine: str | None = None, weight_format: str | None = None) -> Device:
    """A device of the catalog, or of a TOML file.

    Args:
        engine, weight_format: whose measured kernels a calibrated device has; its own unless given. A device on which nobody
            measured any keeps its own numbers; `engine_notes` says so.
    Raises:
        InputError: an unknown name, a malformed file, or an engine or format that the device was not measured with.
    """
    try:
        engine = catalog.kernels_engine(name, engine)
        return catalog.device_entry(name, engine=engine, weight_format=weight_format).device
    except (catalog.UnknownNameError, catalog.EntryError) as error:
        raise InputError(str(error)) from error


def resolve_draft(
    config: ParallelSettings, name: str, target: str, architecture: Architecture, tokens: float
) -> Architecture:
    """A draft network of its own by name: see `resolve_architecture`.

    Args:
        target: what its target is called, of this architecture.
        tokens: of the longest text, which the draft reads too.
    Raises:
        InputError: also where it has other tokens than its target or too few positions, or the parallelism does not allow it.
    """
    draft = resolve_architecture(name, None)
    priced_pair(name, draft, target, architecture)
    check_positions(name, draft, tokens)
    try:
        catalog.check_draft_parallelism(parallelism_of(config), draft, name)
    except catalog.EntryError as error:
        raise InputError(str(error)) from error
    return draft


def resolve_pricing(config: Any, device: str, own: DecoderConfig | None, *, together: bool = False) -> Case:
    """Device (catalog name or TOML file), alone or as one of a group, architecture, workload, and the engine's terms.

    Args:
        config: settings of what is priced and how it is divided, as in `CommonConfig`; of several batches the first is priced.
        together: make a group of a single device too, so that its numbers can be varied.
    Raises:
        InputError: an unknown name, a malformed file, an engine or format that the device was not measured with, a parallelism
            that the architecture does not allow, or a text that is longer than it can take.
    """
    architecture, parallelism = resolve_architecture(config.architecture, own), parallelism_of(config)
    try:
        engine = catalog.kernels_engine(device, config.engine)
        entry = catalog.device_entry(device, engine=engine, weight_format=config.weight_format)
        if not together:
            catalog.check_parallelism(parallelism, architecture, config.architecture)
        grouped = catalog.grouped(entry, parallelism, device, always=together).device
    except (catalog.UnknownNameError, catalog.EntryError) as error:
        raise InputError(str(error)) from error
    check_blocks(f"architecture {config.architecture!r}", architecture, weight_block(config), parallelism)
    check_positions(config.architecture, architecture, longest_text(config))
    workload = Workload(
        batch=float(_several(config.batch)[0]),
        context_tokens=float(_several(config.context)[0]),
        prompt_tokens=float(config.prompt_tokens),
        output_tokens=float(getattr(config, "output_tokens", CommonConfig.output_tokens)),
    )
    return Case(
        device=grouped, architecture=architecture, workload=workload, engine=engine_terms(config.engine, device)
    )
