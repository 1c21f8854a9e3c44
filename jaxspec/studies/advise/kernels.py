"""Whose kernels a device has when an engine is asked for: the engine's where they were measured, else the device's own."""

from __future__ import annotations

import dataclasses

from hwmodels import Device, Workload, catalog
from hwmodels.catalog.calibrations import calibrated_engines
from jaxspec.errors import InputError
from jaxspec.settings import CommonConfig, build_config
from jaxspec.settings.parallel import PARALLEL
from jaxspec.studies.advise.config import AdviseConfig
from jaxspec.studies.engine_pricing import engine_terms
from jaxspec.studies.measured.pricing import resolve_pricing
from jaxspec.tuning.objective import Pricing

__all__ = ["Kernels", "measured_kernels"]


@dataclasses.dataclass(frozen=True)
class Kernels:
    """Engine and format whose kernels count, and what a reader should know of that."""

    engine: str | None
    weight_format: str | None
    notes: tuple[str, ...] = ()


def measured_kernels(config: AdviseConfig, device: str) -> tuple[Pricing, Kernels]:
    """What is priced on a device, alone or as one of a group, and whose kernels that takes.

    Raises:
        InputError: an unknown device, a malformed file, a format that the device was not measured with, or a division that
            the architecture does not allow.
    """
    kernels = _kernels(config, device)
    own = {name: getattr(config, name) for name in PARALLEL}
    given = {
        "architecture": config.architecture,
        "engine": kernels.engine,
        "weight_format": kernels.weight_format,
        "context": config.context,
        "prompt_tokens": max(config.prompt_tokens, 2),
        **own,
    }
    common = build_config(CommonConfig, {name: value for name, value in given.items() if value is not None})
    workload = Workload(
        batch=1.0,
        context_tokens=float(config.context),
        prompt_tokens=float(config.prompt_tokens),
        output_tokens=float(config.output_tokens),
    )
    priced = resolve_pricing(common, device, None)
    if why := _no_known_engine(priced.device):
        unsure = (
            f"no engine is known here to run on {device}, {why}: its settings are those for a device that it runs on"
        )
        kernels = dataclasses.replace(kernels, notes=(*kernels.notes, unsure))
    return dataclasses.replace(priced, workload=workload, engine=engine_terms(config.engine, device)), kernels


def _no_known_engine(device: Device) -> str:
    """What makes a device another one than engines are known to run on; empty where nothing does."""
    unit = device.matrix_unit
    # A roofline is that of a GPU by its data sheet; kernels of a unit are measured where an engine runs.
    if unit is not None and unit.measured is None:
        return "whose matrix unit is neither that of a GPU nor of a measured host"
    if device.decoder is not None:
        return "which decodes compressed weights in hardware, as no GPU does"
    return ""


def _kernels(config: AdviseConfig, device: str) -> Kernels:
    try:
        calibration = catalog.device_entry(device).calibration
    except (catalog.UnknownNameError, catalog.EntryError) as error:
        raise InputError(str(error)) from error
    engine = config.engine
    if engine is None or (calibration is not None and engine in calibrated_engines(calibration)):
        return Kernels(engine, config.weight_format)
    whose = "the data sheet's times count" if calibration is None else "those of the device's own engine count"
    return Kernels(None, config.weight_format, (f"kernels of {engine} were not measured on {device}: {whose}",))
