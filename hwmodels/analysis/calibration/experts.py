"""Fit a GPU's routed experts (`hwmodels.compute.gpu_experts`) to a table of measured launches: the same for every GPU.

Start values, bounds and loss are fixed here. Rows that are fitted to have uneven loads, as routers give, and parts of experts
that are used in practice (256 and more). Left out are weights that fit into the second-level cache, and launches for which a
library fell back to another kernel, up to 12 times slower than its neighbours: those of a shape and distribution of which no
row comes within a factor of 4 of the data sheet's roofline.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.kernel_tables import (
    EVEN,
    FORMAT_BITS,
    SYSTEMS,
    DataSheet,
    KernelTableError,
    TableName,
    read_columns,
    touched_in_table,
)
from hwmodels.analysis.calibration.least_squares import Parameter, UnitFit, fit, parameters_of, predicted_rows
from hwmodels.compute.gpu_experts import ExpertCoefficients, GpuExperts, expert_layer_time

__all__ = [
    "CACHE_BYTES",
    "LEAST_INNER_SIZE",
    "ExpertTable",
    "expert_coefficients",
    "expert_formats",
    "expert_parameters",
    "expert_roofline",
    "expert_table",
    "expert_unit",
    "fell_back",
    "fit_experts",
    "modelled_rows",
    "predict_experts",
    "rows_of_main_kernel",
]

# Tables of a layer's routed experts: whole launches, from choosing experts to adding up their outputs.

#: Second-level cache by system.
CACHE_BYTES = {name: system["cache_mib"] * 2**20 for name, system in SYSTEMS.items() if "cache_mib" in system}

#: Hidden and inner sizes of experts without a gate (squared ReLU): the networks that tables of TensorRT-LLM mark as such.
_WITHOUT_GATE = {(2048, 5120), (2688, 1856), (8192, 5120)}
#: Kernels that ran them without a gate and do not say so: launches take two thirds of the time of gated ones, and SGLang's of
#: FlashInfer as long as vLLM's. Triton's of SGLang and of vLLM 0.14 ran them with one.
_SILENT = ("vllm_unquantizedfusedmoe", "sglang_flashinfer")

_NAMES = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")


@dataclasses.dataclass(frozen=True)
class ExpertTable:
    """Times of one layer's experts on one GPU, "row"."""

    tokens: npt.NDArray[np.float64]
    hidden_size: npt.NDArray[np.float64]
    inner_size: npt.NDArray[np.float64]  # of the part of each expert that this GPU holds
    experts_per_token: npt.NDArray[np.float64]
    num_experts: npt.NDArray[np.float64]
    gated: npt.NDArray[np.float64]  # 1 or 0
    touched: npt.NDArray[np.float64]  # experts with at least one token, expected; of all devices
    distribution: npt.NDArray[np.str_]  # of tokens over experts, as the table names it
    network: npt.NDArray[np.str_]  # whose experts they are: rows of one name differ in tokens, parts and distribution
    seconds: npt.NDArray[np.float64]
    weight_bits: float
    kernel: npt.NDArray[np.str_] | None = None  # that ran, as the table names it; None: not said

    @property
    def kernels(self) -> tuple[str, ...]:
        """All that ran, sorted."""
        return () if self.kernel is None else tuple(sorted(set(self.kernel.tolist())))

    def conditions(self) -> dict[str, npt.NDArray[np.float64]]:
        """What a time depends on, by name, as `hwmodels.compute.gpu_experts.expert_layer_time` takes it."""
        names = ("tokens", "touched", "experts_per_token", "hidden_size", "inner_size", "gated")
        return {name: getattr(self, name) for name in names}


def expert_formats(table: TableName, *, root: str | Path | None = None) -> tuple[str, ...]:
    """Those of `FORMAT_BITS` that a table holds. Raises KernelTableError."""
    formats = set(read_columns(table, ["moe_dtype"], root)["moe_dtype"].tolist())
    return tuple(name for name in FORMAT_BITS if name in formats)


def expert_table(
    table: TableName, weight_format: str = "bfloat16", *, devices: int = 1, root: str | Path | None = None
) -> ExpertTable:
    """Rows of one format whose experts, each of them whole or cut into parts, are dealt out to so many GPUs.

    Args:
        table: of kind "moe".
        weight_format: of `FORMAT_BITS`.
        devices: that hold a part of the experts each; times are those of the busiest, and touched experts those of all.
        root: as of `list_tables`.
    Raises:
        KernelTableError: the table cannot be read or holds no such rows.
    """
    if weight_format not in FORMAT_BITS:
        raise KernelTableError(f"format {weight_format!r} is not modelled; choose one of {', '.join(FORMAT_BITS)}")
    names = [*_NAMES, "moe_dtype", "moe_ep_size", "distribution", "kernel_source", "latency"]
    columns = read_columns(table, names, root)
    used = (columns["moe_dtype"] == weight_format) & (columns["moe_ep_size"] == devices) & (columns["latency"] > 0)
    if not used.any():
        held = ", ".join(expert_formats(table, root=root)) or "none that is modelled"
        where = "one GPU" if devices == 1 else f"{devices} GPUs"
        raise KernelTableError(f"{table} holds no {weight_format} experts on {where}; formats there: {held}")
    tokens, hidden, inner, chosen, experts, parts = (columns[name][used].astype(np.int64) for name in _NAMES)
    distribution = columns["distribution"][used].astype(str)
    sources = zip(columns["kernel_source"][used].tolist(), zip(hidden.tolist(), inner.tolist()))
    bare = ["nongated" in one or (one.startswith(_SILENT) and sizes in _WITHOUT_GATE) for one, sizes in sources]
    gated = 1.0 - np.array(bare, np.float64)
    rows = list(zip(distribution.tolist(), tokens.tolist(), experts.tolist(), chosen.tolist()))
    try:
        touched = np.array([touched_in_table(*row) for row in rows], np.float64)
    except ValueError as error:
        raise KernelTableError(f"{table}: {error}") from error
    network = np.array([f"{h}x{i} {e} choose {k}" for h, i, e, k in zip(hidden, inner, experts, chosen)])
    real = lambda values: values.astype(np.float64)
    return ExpertTable(
        tokens=real(tokens),
        hidden_size=real(hidden),
        inner_size=real(inner // parts),
        experts_per_token=real(chosen),
        num_experts=real(experts),
        gated=gated,
        touched=touched,
        distribution=distribution,
        network=network,
        seconds=real(columns["latency"][used]) * 1e-3,
        weight_bits=FORMAT_BITS[weight_format],
        kernel=columns["kernel_source"][used].astype(str),
    )


def rows_of_main_kernel(table: ExpertTable) -> ExpertTable:
    """Rows of the kernel that ran most networks, where a table mixes kernels that no numbers describe together."""
    if table.kernel is None:
        return table
    ran = {name: len(set(table.network[table.kernel == name])) for name in table.kernels}
    kept = table.kernel == max(ran, key=lambda name: ran[name])
    arrays = {name: values[kept] for name, values in vars(table).items() if isinstance(values, np.ndarray)}
    return dataclasses.replace(table, **arrays)


#: What only 16-bit weights have, and only packed ones; the other is 0.
_OWN = ("prologue_elements", "compute_cost")

#: Columns of the part of an expert that one GPU holds, of which fewer are not fitted to.
LEAST_INNER_SIZE = 256
_FALLBACK_FACTOR = 4.0


def expert_parameters(weight_bits: float) -> tuple[Parameter, ...]:
    """What is fitted for a format of that width."""
    return parameters_of("wide_experts" if weight_bits > 8 else "packed_experts")


def expert_coefficients(values: Mapping[str, Any]) -> ExpertCoefficients:
    """Coefficients from fitted values by name; those that the format does not have are 0."""
    return ExpertCoefficients(**(dict.fromkeys(_OWN, 0.0) | dict(values)))


@functools.cache
def predict_experts(sheet: DataSheet, weight_bits: float):
    """The model to fit, for `least_squares.fit`: conditions as `ExpertTable.conditions` has them."""

    def predict(values: Mapping[str, Any], conditions: Mapping[str, Any]) -> Any:
        unit = expert_unit(sheet, expert_coefficients(values))
        return expert_layer_time(unit, weight_bits=weight_bits, **conditions)

    return predict


def expert_roofline(table: ExpertTable, sheet: DataSheet) -> npt.NDArray[np.float64]:
    """Seconds at the data sheet's rates, "row": the touched experts' weights or the arithmetic."""
    matrices = (2.0 + table.gated) * table.hidden_size * table.inner_size
    read_s = table.touched * matrices * (table.weight_bits / 8) / sheet.bandwidth_bytes_per_s
    return np.maximum(read_s, 2.0 * table.tokens * table.experts_per_token * matrices / sheet.peak_flops_per_s)


def fell_back(table: ExpertTable, sheet: DataSheet) -> npt.NDArray[np.bool_]:
    """Rows whose library chose another kernel, "row"; see the module's heading."""
    slowness = table.seconds / expert_roofline(table, sheet)
    keys = [f"{n} {i} {d}" for n, i, d in zip(table.network, table.inner_size, table.distribution)]
    _, group = np.unique(keys, return_inverse=True)
    least = np.full(group.max() + 1, np.inf)
    np.minimum.at(least, group, slowness)
    return least[group] >= _FALLBACK_FACTOR


def modelled_rows(table: ExpertTable, sheet: DataSheet, cache_bytes: float) -> npt.NDArray[np.bool_]:
    """Rows that the model is for, even loads among them, "row"; see the module's heading."""
    stored = table.touched * (2.0 + table.gated) * table.hidden_size * table.inner_size * (table.weight_bits / 8)
    return (table.inner_size >= LEAST_INNER_SIZE) & (stored > cache_bytes) & ~fell_back(table, sheet)


def fit_experts(
    table: ExpertTable,
    sheet: DataSheet,
    train: npt.ArrayLike | None = None,
    *,
    cache_bytes: float = 0.0,
    **options: Any,
) -> UnitFit[GpuExperts]:
    """Fit the six numbers to those rows of `train` (all unless given) that are modelled and have uneven loads.

    Args:
        table: measured launches.
        sheet: the GPU's data sheet.
        train: "row", true where a row is fitted to.
        cache_bytes: of the second-level cache.
        options: of `least_squares.fit`.
    Raises:
        ValueError: as `least_squares.fit`.
    """
    chosen = np.ones(len(table.tokens), bool) if train is None else np.asarray(train, bool)
    chosen = chosen & modelled_rows(table, sheet, cache_bytes) & (table.distribution != EVEN)
    predict, rows = predict_experts(sheet, table.weight_bits), table.conditions()
    keys = np.array([f"{n} {i}" for n, i in zip(table.network, table.inner_size)])
    fitted = fit(
        predict,
        expert_parameters(table.weight_bits),
        {name: values[chosen] for name, values in rows.items()},
        table.seconds[chosen],
        groups=keys[chosen],
        **options,
    )
    predicted = predicted_rows(predict, fitted.estimates, rows)
    return UnitFit(expert_unit(sheet, expert_coefficients(fitted.estimates)), fitted, predicted)


def expert_unit(sheet: DataSheet, coefficients: ExpertCoefficients) -> GpuExperts:
    """A GPU of that data sheet with these numbers."""
    return GpuExperts(
        peak_flops_per_s=sheet.peak_flops_per_s,
        bandwidth_bytes_per_s=sheet.bandwidth_bytes_per_s,
        multiprocessors=sheet.multiprocessors,
        coefficients=coefficients,
    )
