"""Tables of a layer's routed experts: whole launches, from choosing experts to adding up their outputs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.kernel_tables import FORMAT_BITS, KernelTableError, TableName, read_columns
from hwmodels.analysis.calibration.table_routing import touched_in_table

__all__ = ["CACHE_BYTES", "ExpertTable", "expert_formats", "expert_table", "rows_of_main_kernel"]

#: Second-level cache by system; from the vendors' data sheets.
CACHE_BYTES = {
    "a100_pcie": 40 * 2**20,
    "a100_sxm": 40 * 2**20,
    "a30": 24 * 2**20,
    "b200_sxm": 126 * 2**20,
    "h100_pcie": 50 * 2**20,
    "h100_sxm": 50 * 2**20,
    "h200_sxm": 50 * 2**20,
    "l4": 48 * 2**20,
    "l40s": 96 * 2**20,
    "rtx_pro_6000_server": 128 * 2**20,
}

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
