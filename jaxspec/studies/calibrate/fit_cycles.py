"""Fit what this package's loop spends beside the steps of its networks: the terms of an engine.

A cycle's networks are priced by the rest of the device; what a measured cycle takes longer is a time per cycle, per layer of
the draft, per pass of it and per drafted token of each sequence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from hwmodels import Architecture, Device, DraftCost
from hwmodels.speculation.engine_terms import NO_ENGINE
from jaxspec.settings.draft_kinds import DRAFT_KINDS
from jaxspec.studies.calibrate.fitted import Numbers, PartFit, cross_fitted
from jaxspec.studies.calibrate.table import Row
from jaxspec.studies.measured.clock_prediction import predict_ways

__all__ = ["fit_cycles"]

#: Terms that are fitted, in the order of their counts.
_TERMS: tuple[str, ...] = ("cycle_s", "draft_layer_s", "draft_pass_s", "drafted_token_s")

#: Places that a draft network processes anew, by the registry.
_TAKES_IN = next(kind.takes_in for kind in DRAFT_KINDS if kind.directory == "network")


def fit_cycles(table: Sequence[Row], device: Device, shape: Callable[[Row], Architecture]) -> PartFit | None:
    """`EngineTerms`, none below 0, by least squares of the relative errors of cycles. None without enough rows.

    A draft with its number of sequences is held out as a whole.

    Args:
        device: that prices the networks' steps.
        shape: from a row to the network that ran.
    """
    places = np.array([i for i, row in enumerate(table) if row.part == "cycle"], np.int64)
    if len(places) <= len(_TERMS):
        return None
    rows = [table[i] for i in places]
    groups = [f"{row.architecture}-{row.layers:g}-{row.draft_layers:g}-{row.batch:g}" for row in rows]
    seconds = np.array([row.seconds for row in rows])
    kernels_s = _kernels_s(device, shape, rows)
    passes = [row.tokens * (row.draft_layers > 0) for row in rows]
    counts = np.array([[1.0, row.draft_layers, n, row.tokens * row.batch] for row, n in zip(rows, passes, strict=True)])

    def found(train: npt.NDArray[np.int64]) -> Numbers:
        scaled = counts[train] / seconds[train, None]
        sizes = np.maximum(np.abs(scaled).max(axis=0), 1e-30)  # columns of like size
        return nnls(scaled / sizes, 1.0 - kernels_s[train] / seconds[train])[0] / sizes

    estimates = found(np.arange(len(rows)))
    held, errors, interval = cross_fitted(groups, seconds, len(_TERMS), lambda train: kernels_s + counts @ found(train))
    numbers = dict(zip(_TERMS, estimates.tolist(), strict=True))
    none = tuple(name for name, value in numbers.items() if value == 0.0)
    predicted = kernels_s + counts @ estimates
    return PartFit("cycles", 32.0, numbers, {}, none, places, predicted, held, errors, interval)


def _kernels_s(device: Device, shape: Callable[[Row], Architecture], rows: Sequence[Row]) -> Numbers:
    """Of the networks of each cycle alone; cycles that differ by their drafted tokens are priced together."""
    alike: dict[Row, list[int]] = {}
    for place, row in enumerate(rows):
        alike.setdefault(dataclasses.replace(row, seconds=0.0, tokens=0.0, read_bytes=0.0), []).append(place)
    found = np.zeros(len(rows))
    for places in alike.values():
        row, network = rows[places[0]], shape(rows[places[0]])
        own = dataclasses.replace(network, num_layers=row.draft_layers)
        ways = predict_ways(
            device,
            network,
            DraftCost(architecture=own) if row.draft_layers else DraftCost(passes=0.0),
            [np.arange(int(rows[place].tokens)) - 1 for place in places],
            takes_in=_TAKES_IN if row.draft_layers else None,
            batch=int(row.batch),
            slots=row.context_tokens,
            bits=row.weight_bits,
            terms=NO_ENGINE,
        )
        found[places] = [way.cycle_s for way in ways]
    return found
