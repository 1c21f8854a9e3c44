"""The form in which the release of a priced network is stored: its bits, its kernels, and the lines that results print."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from hwmodels import ALL_LAYER_MATRICES, EXPERT_MATRICES, KINDS, Architecture, Footprint, catalog, parameters
from hwmodels.catalog.calibrations import calibrated_engines, calibrated_formats
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.settings.schemes import RELEASED
from jaxspec.studies.config_files import RELEASED_FORMS, reading_of

__all__ = [
    "draft_notes",
    "layer_bits",
    "no_narrower_draft",
    "priced_form",
    "release_in_words",
    "release_notes",
    "scheme_footprint",
    "stored_form",
    "with_kernels",
    "with_release_kernels",
]

C = TypeVar("C")


def _with_plain(
    name: str, bits: float, plain: tuple[str, ...], left_out: tuple[str, ...], **more: Any
) -> catalog.StoredForm:
    """A form of all kinds of weight but some. Args: plain: these. left_out: those of them that results name."""
    widths = {str(kind): UNCOMPRESSED_BITS if kind in plain else bits for kind in KINDS}
    return catalog.StoredForm(name, widths, left_out=left_out, **more)


_NOT_EXPERTS = tuple(kind for kind in KINDS if kind not in EXPERT_MATRICES)
_ENDS = ("embed", "router", "lm_head", "norm")
_FP8_BLOCKS = _with_plain(
    *("FP8 in blocks of 128 x 128", 8.0 + 32.0 / 128.0**2, _ENDS, ("LM head",)), kernels="fp8_block", block=(128, 128)
)
_MXFP4 = _with_plain("MXFP4", 4.25, _NOT_EXPERTS, ("attention", "LM head"))

#: Forms of `RELEASED_FORMS`.
_FORMS = {"fp8_block": _FP8_BLOCKS, "mxfp4": _MXFP4}


def stored_form(architecture: str) -> catalog.StoredForm | None:
    """The form that a release states; None: 16 bits, or nothing is known of it."""
    reading = reading_of(architecture)
    return reading.stored if reading is not None else _FORMS.get(RELEASED_FORMS.get(architecture.strip().lower(), ""))


def priced_form(config: Any) -> catalog.StoredForm | None:
    """The release's form where settings price it; None: they price a scheme.

    Args:
        config: has `architecture` and `scheme`.
    Raises:
        InputError: the form is asked for and none is stated.
    """
    if config.scheme != RELEASED.name:
        return None
    form = stored_form(config.architecture)
    if form is None:
        raise InputError(
            f"scheme is {RELEASED.name!r}, but of architecture {config.architecture!r} no quantized form is known; give bf16 "
            "for 16 bits, or a config.json with a quantization_config, or a GGUF file of few bits"
        )
    return form


def scheme_footprint(config: Any, knobs: Mapping[str, float]) -> Footprint:
    """Bits that the settings' scheme reads, or the release's form. Raises InputError: see `priced_form`."""
    form = priced_form(config)
    if form is None:
        return find_scheme(config.scheme).expected_footprint(knobs)
    kv = UNCOMPRESSED_BITS if form.kv_bits is None else form.kv_bits
    return Footprint(dict(form.weight_bits), dict(form.weight_bits), kv, kv)


def layer_bits(form: catalog.StoredForm, architecture: Architecture) -> float:
    """Mean bits per weight of the layers' matrices."""
    counts = {kind: float(parameters(architecture)[kind]) for kind in ALL_LAYER_MATRICES}
    return sum(count * form.weight_bits[kind] for kind, count in counts.items()) / sum(counts.values())


def with_release_kernels(config: C, device: str) -> C:
    """Settings with the measured kernels of the release's form, where these price it; see `with_kernels`."""
    given: Any = config
    return config if given.weight_format is not None else with_kernels(config, device, priced_form(config))


def with_kernels(config: C, device: str, form: catalog.StoredForm | None) -> C:
    """Settings with the measured kernels of a form, where they name none and the device has them.

    Raises:
        InputError: an unknown device.
    """
    given: Any = config
    if given.weight_format is not None or form is None or form.kernels is None:
        return config
    try:
        calibration = catalog.device_entry(device).calibration
    except (catalog.UnknownNameError, catalog.EntryError) as error:
        raise InputError(str(error)) from error
    if calibration is None:
        return config
    engine = catalog.kernels_of(given.engine)
    engine = engine if engine in calibrated_engines(calibration) else None
    held = form.kernels in calibrated_formats(calibration, engine)
    return dataclasses.replace(given, weight_format=form.kernels) if held else config


def release_in_words(architecture: str, scheme: str | None) -> str | None:
    """First line of a result about a release's form: priced, or not; None: 16 bits.

    Args:
        scheme: None: of a command that prices no release's form.
    """
    form, reading = stored_form(architecture), reading_of(architecture)
    if form is None:
        unpriced = [
            note for note in ([] if reading is None else reading.notes) if note.startswith("weights are priced")
        ]
        return unpriced[0] if unpriced else None
    if scheme == RELEASED.name:
        return f"stored as released, in {form.statement}"
    how = "predict, advise and serve do so by --scheme released" if scheme is None else "--scheme released does so"
    return f"not priced as released, in {form.name}: {how}"


def release_notes(architecture: str, scheme: str | None = None) -> list[str]:
    """Sentences on a release's form and on what its config.json has beside, for a reader of a result.

    Args:
        scheme: see `release_in_words`.
    """
    said, reading = release_in_words(architecture, scheme), reading_of(architecture)
    about = [f"{architecture} is {said}" if not said.startswith("weights") else said] if said else []
    return list(dict.fromkeys([*about, *(() if reading is None else reading.notes)]))


def no_narrower_draft(scheme: str) -> list[str]:
    """What is said where the draft within the target is the target's own form."""
    if scheme != RELEASED.name:
        return []
    return [
        "a draft within the target reads all that the release stores: predict takes other --draft-bits, advise and serve "
        "take another draft"
    ]


def draft_notes(name: str | None) -> list[str]:
    """Sentences on a draft's own config.json; none for other drafts."""
    reading = None if name is None else reading_of(name)
    if reading is None:
        return []
    own = [] if reading.stored is None else [f"stored as released, in {reading.stored.statement}"]
    return [f"draft {name}: {note}" for note in (*own, *reading.notes)]
