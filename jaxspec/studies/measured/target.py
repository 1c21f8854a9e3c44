"""The target of a run, loaded once: drafts are made of its very arrays, where the run has them."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from jaxspec.models.decoder import Params
from jaxspec.models.embedded import load_model
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.mesh import make_mesh, on_mesh
from jaxspec.models.stored import stored_dtypes
from jaxspec.tuning.calibration import target_params

__all__ = ["Target", "load_target"]

#: Types that a target's values keep.
_NARROW = frozenset({"bfloat16", "float16"})


class Target(NamedTuple):
    """A network that drafts are made of and decoded with.

    Attributes:
        loaded: the checkpoint, its parameters in 16 bits where the run has them; those of `LoadedModel.exact` in float32.
        stored_as: types of the values in its files, but for those.
    """

    loaded: LoadedModel
    stored_as: frozenset[str]

    @property
    def wide(self) -> frozenset[str]:
        """Types of the values that were rounded to 16 bits."""
        return self.stored_as - _NARROW


def load_target(model: str, *, stream: bool = False, mesh: tuple[int, int] | None = None) -> Target:
    """Read a network's weights.

    Args:
        model: name or path.
        stream: leave layers in host memory (see `Streamed`).
        mesh: devices along data and tensor; None: one device.
    Raises:
        InputError: files that cannot be used.
    """
    loaded = load_model(model, stream=stream if mesh is None else "all")
    found = frozenset(stored_dtypes(_without(loaded.params, loaded.exact)))
    params = target_params(loaded.params, exact=loaded.exact)
    if mesh is not None:
        params = on_mesh(params, loaded.config, make_mesh(*mesh))
    # The target's matrices are these very arrays, or are made of them where they are used.
    return Target(dataclasses.replace(loaded, params=params, rounded=bool(found - _NARROW)), found)


def _without(params: Params, exact: frozenset[tuple[str, ...]]) -> Params:
    """Parameters but for some."""
    left = {name: leaf for name, leaf in params.items() if (name,) not in exact}
    return left | {"layers": {name: leaf for name, leaf in params["layers"].items() if ("layers", name) not in exact}}
