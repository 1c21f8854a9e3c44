"""Bits that are read of drafts which are no compressed copy of their target on calibration text, and of that target."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from hwmodels import Footprint, uniform_footprint
from hwmodels.catalog import StoredForm
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from jaxspec.compress.schemes import find_scheme
from jaxspec.compress.weights import HEAD
from jaxspec.models.checkpoint_files import CheckpointFiles
from jaxspec.models.described import described_in
from jaxspec.models.embedded import check_model, model_place
from jaxspec.models.stored_parameters import network_parameters
from jaxspec.settings.draft_kinds import has_files
from jaxspec.speculate.drafts.factory import kind_of, own_footprint
from jaxspec.studies.release import stored_form
from jaxspec.tuning.objective import priced_footprint

__all__ = ["run_form", "target_widths", "widths_beside"]

#: Bits of keys and values, which run in 16 bits whatever a release says of them.
_KV = (UNCOMPRESSED_BITS, UNCOMPRESSED_BITS)


def widths_beside(draft: str, model: str, *, codes: bool = True) -> Footprint:
    """Of a container by its own bytes, of another draft as its kind says; of the target then as it is stored, or 16.

    Args:
        draft: name or path of a draft.
        model: name or path of its target. codes: see `run_form`, of the target.
    Returns:
        Footprint with scalar leaves.
    Raises:
        InputError: a broken file.
    """
    own = own_footprint(draft, model)
    if own is not None:
        return priced_footprint(jax.tree.map(jnp.asarray, own))
    kind, found = kind_of(draft), target_widths(model, codes=codes)
    if kind.stored_as:
        own = find_scheme(kind.stored_as).expected_footprint({})
        return dataclasses.replace(found, draft_weight_bits=own.draft_weight_bits)
    if not has_files(draft):
        return found
    # Heads run in 16 bits, and are no networks that could be read alone.
    own = uniform_footprint(UNCOMPRESSED_BITS) if kind.model_type else target_widths(draft)
    return dataclasses.replace(found, draft_weight_bits=own.target_weight_bits)


def target_widths(model: str, *, codes: bool = True) -> Footprint:
    """Bits of a network by name or path: of the form whose codes it runs in, otherwise 16. Args: codes: see `run_form`."""
    plain, form = uniform_footprint(UNCOMPRESSED_BITS), run_form(model, codes=codes)
    return plain if form is None else Footprint(dict(form.weight_bits), dict(form.weight_bits), *_KV)


def run_form(model: str, *, codes: bool = True) -> StoredForm | None:
    """The form in whose codes a network by name or path runs; None: it runs in 16 bits.

    Args:
        codes: False: the run has 16-bit values of what may be either (see `load_directory`).
    """
    if not codes or not check_model(model, codes=codes).in_codes:
        return None
    return stored_form(model) or _form_in_file(model_place(model))


def _form_in_file(place: Path) -> StoredForm:
    """Of a GGUF file, by the bytes of its tensors."""
    described, stored = described_in(place), CheckpointFiles(place)
    row, files = described.tensors(stored, place)
    config, bits = described.config, dict[str, Any]()
    for path, parameter in network_parameters(config, row).items():
        if path[-1] in config.matrix_kinds or path == ("embed" if config.tie_embeddings else HEAD,):
            kind = path[-1] if path[0] == "layers" else HEAD
            counts = {name: math.prod(files.tensors[name].shape) for name in parameter.names()}
            of = lambda name, counts=counts: (
                8 * files.in_codes[name].bytes / counts[name] if name in files.in_codes else UNCOMPRESSED_BITS
            )
            bits[kind] = jnp.mean(jnp.array([of(name) for name in counts]))
    read = priced_footprint(Footprint(bits, bits, *map(jnp.asarray, _KV)))
    name = " and ".join(sorted(stored.quantized))
    return StoredForm(name, {kind: float(value) for kind, value in read.target_weight_bits.items()})
