"""Numbers of a link's collectives, fitted to measured tables: three or fewer for each algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.collective_tables import CollectiveTable
from hwmodels.analysis.calibration.least_squares import Fit, Parameter, fit, predicted_rows
from hwmodels.parallel.collectives import Algorithm, Collective, CollectiveKernel, kernels_time

__all__ = ["KERNELS", "fit_collective", "fitted_kernels", "half_of_sizes"]

#: Algorithms whose numbers are fitted; the library's two rings are its protocols for small and for large messages.
KERNELS: dict[str, dict[Collective, tuple[Algorithm, ...]]] = {
    "engine": {"all_reduce": ("one_shot", "two_shot", "ring")},
    "nccl": {
        "all_reduce": ("ring", "ring"),
        "all_gather": ("ring", "ring"),
        "reduce_scatter": ("ring", "ring"),
        "all_to_all": ("one_shot", "one_shot"),
    },
}

#: Of the search, by algorithm and place: launch, wait per round (a ring) or per other device, efficiency.
_STARTS: dict[str, tuple[float, float, float]] = {
    "one_shot0": (4e-6, 2e-7, 0.5),
    "two_shot1": (1e-5, 5e-7, 0.5),
    "ring2": (6e-5, 1e-6, 0.75),
    "ring0": (3e-6, 1e-6, 0.3),
    "ring1": (2.5e-5, 5e-7, 0.7),
    "one_shot1": (1.5e-5, 2e-7, 0.6),
}

#: Searches begin at these multiples of the waits, and the best one is kept.
_SCALES = (1.0, 0.4, 2.5)

#: A size between two others' of a table is held out with its whole row of devices.
_LOSS_SCALE = 0.05


def half_of_sizes(table: CollectiveTable) -> npt.NDArray[np.bool_]:
    """Every second size of the messages, "row": the others are held out, at every number of devices."""
    sizes, place = np.unique(table.message_bytes, return_inverse=True)
    del sizes
    return place % 2 == 0


def fit_collective(
    table: CollectiveTable,
    collective: Collective,
    *,
    bandwidth_bytes_per_s: float,
    algorithms: tuple[Algorithm, ...],
    bridged: bool,
    sockets: bool = False,
    train: npt.NDArray[np.bool_] | None = None,
) -> tuple[Fit, npt.NDArray[np.float64]]:
    """Fitted numbers and times of all rows by them, "row".

    Args:
        bridged: pairs of devices share a path to the others.
        sockets: four devices share a path to the other four.
        train: "row"; all rows unless given.
    Raises:
        ValueError: fewer rows than numbers.
    """
    used = np.ones(len(table.seconds), bool) if train is None else train
    conditions = {"message_bytes": table.message_bytes, "devices": table.devices}

    def predict(values: Mapping[str, Any], rows: Mapping[str, Any]) -> Any:
        kernels = fitted_kernels(values, algorithms)
        return kernels_time(
            kernels,
            collective,
            rows["message_bytes"],
            devices=rows["devices"],
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        )

    found: list[Fit] = []
    for scale in _SCALES:
        parameters = []
        for place, algorithm in enumerate(algorithms):
            launch, wait, efficiency = _STARTS[f"{algorithm}{place}"]
            waits = "hop_s" if algorithm == "ring" else "peer_s"
            parameters += [
                Parameter(f"launch_s_{place}", launch * scale, 1e-8, 1e-3),
                Parameter(f"{waits}_{place}", wait * scale, 1e-9, 1e-3),
                Parameter(f"efficiency_{place}", efficiency, 1e-3, 1.0),
            ]
            if bridged:
                parameters.append(Parameter(f"bridge_{place}", 1.0, 1e-3, 1e3))
            if sockets:
                parameters.append(Parameter(f"socket_{place}", 1.0, 1e-3, 1e3))
        chosen = {name: values[used] for name, values in conditions.items()}
        found.append(fit(predict, parameters, chosen, table.seconds[used], loss_scale=_LOSS_SCALE, max_evaluations=400))
    best = min(found, key=lambda one: float(np.sum(np.sqrt(1.0 + (one.log_residuals / _LOSS_SCALE) ** 2))))
    return best, predicted_rows(predict, best.estimates, conditions)


def fitted_kernels(values: Mapping[str, Any], algorithms: tuple[Algorithm, ...]) -> tuple[CollectiveKernel, ...]:
    """Kernels of fitted numbers, "NAME_PLACE" -> value."""
    fields = ("launch_s", "efficiency", "hop_s", "peer_s", "bridge", "socket")
    return tuple(
        CollectiveKernel(
            **{name: values[f"{name}_{place}"] for name in fields if f"{name}_{place}" in values}, algorithm=algorithm
        )
        for place, algorithm in enumerate(algorithms)
    )
