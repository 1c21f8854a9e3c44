"""Bits that are read of drafts which are no compressed copy of their target on calibration text, and of that target."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from hwmodels import Footprint, uniform_footprint
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from jaxspec.compress.schemes import find_scheme
from jaxspec.speculate.drafts.making import kind_of, own_footprint
from jaxspec.tuning.priced_kinds import priced_footprint

__all__ = ["widths_beside"]


def widths_beside(draft: str, model: str) -> Footprint:
    """Of a container by its own bytes, of another draft as its kind says; of the target then 16.

    Args:
        draft: name or path of a draft.
        model: name or path of its target.
    Returns:
        Footprint with scalar leaves.
    Raises:
        InputError: a broken file.
    """
    own = own_footprint(draft, model)
    if own is not None:
        return priced_footprint(jax.tree.map(jnp.asarray, own))
    plain, stored_as = uniform_footprint(UNCOMPRESSED_BITS), kind_of(draft).stored_as
    if not stored_as:
        return plain
    return dataclasses.replace(plain, draft_weight_bits=find_scheme(stored_as).expected_footprint({}).draft_weight_bits)
