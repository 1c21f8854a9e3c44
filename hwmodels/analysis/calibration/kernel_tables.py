"""Kernel tables of the optional package `aiconfigurator-core`: measured times of single GPU kernels, read where they lie.

The package (Apache-2.0, about 114 MB, Python 3.11 to 3.13) holds a folder per system, engine and version; nothing of it is
copied. Rows of the same conditions, measured by several of an engine's kernels, are each kept.

Source: github.com/ai-dynamo/aiconfigurator, Parquet files under systems/data.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwmodels.tables import read_table

__all__ = [
    "EVEN",
    "FORMAT_BITS",
    "KERNEL_FORMATS",
    "SYSTEMS",
    "DataSheet",
    "GemmTable",
    "KernelFormat",
    "KernelTableError",
    "TableName",
    "data_sheet",
    "drawn_loads",
    "gemm_formats",
    "gemm_table",
    "list_tables",
    "popularity_in_table",
    "read_columns",
    "touched_in_table",
]

# How the kernel tables spread a step's tokens over experts, and how many experts that touches.

#: The distribution whose loads are all alike.
EVEN = "balanced"

_POWER_LAW = "power_law_"
_DRAWS = 16
#: Experts that independent tokens may leave out where a table's touch all: popularity has no way to make it none.
_LEFT_OUT = 1e-3


def drawn_loads(
    rng: np.random.Generator, tokens: int, num_experts: int, experts_per_token: int, exponent: float
) -> npt.NDArray[np.int64]:
    """One draw of a power law: choices per expert, "expert", their sum tokens * experts_per_token, none above tokens.

    Args:
        rng: drawn from.
        tokens, num_experts: >= 1.
        experts_per_token: in [1, num_experts].
        exponent: > 0, not 1.
    """
    choices, power = tokens * experts_per_token, 1.0 - exponent
    low, high = (1.0, 0.8 * tokens) if choices > num_experts else (0.01, 2.0)
    sizes = (low**power + (high**power - low**power) * rng.random(num_experts)) ** (1.0 / power)
    loads = np.minimum(np.rint(sizes / sizes.sum() * choices), tokens).astype(np.int64)
    fewest_first = np.argsort(loads, kind="stable")
    while (missing := choices - int(loads.sum())) != 0:
        if missing > 0:
            dealt = fewest_first[loads[fewest_first] < tokens][:missing]
            loads[dealt] += 1
        else:
            taken = fewest_first[:-missing]
            held = taken[loads[taken] > 0]
            # An expert without a choice leaves it to the one with most.
            loads[np.argmax(loads)] -= len(taken) - len(held)
            loads[held] -= 1
    return loads


@functools.cache
def touched_in_table(distribution: str, tokens: int, num_experts: int, experts_per_token: int) -> float:
    """Experts that have at least one token, on average over draws; the same on every machine.

    Args:
        distribution: as a table names it.
        tokens, num_experts, experts_per_token: as of `drawn_loads`.
    Raises:
        ValueError: a distribution that is not known here.
    """
    if distribution == EVEN:
        return float(min(num_experts, tokens * experts_per_token))
    if not distribution.startswith(_POWER_LAW):
        raise ValueError(f"distribution {distribution!r} is not known; known: {EVEN}, {_POWER_LAW}EXPONENT")
    draws = _draws(distribution, tokens, num_experts, experts_per_token)
    return float(np.mean(np.count_nonzero(draws, axis=1)))


@functools.cache
def popularity_in_table(
    distribution: str, tokens: int, num_experts: int, experts_per_token: int
) -> npt.NDArray[np.float64]:
    """Popularity with which independent tokens touch as many experts as in a table, and load them as unevenly.

    The mean loads of a draw, the busiest expert first. Rounded loads leave fewer experts out than tokens that choose on their
    own would, so that the least loads are raised to a floor where that is needed; what makes devices unequal lies above it.

    Args:
        distribution, tokens, num_experts, experts_per_token: as of `touched_in_table`.
    Returns:
        "expert", decreasing, sums to 1; all alike where no other touches as many.
    Raises:
        ValueError: as `touched_in_table`.
    """
    even = np.full(num_experts, 1.0 / num_experts)
    touched = min(touched_in_table(distribution, tokens, num_experts, experts_per_token), num_experts - _LEFT_OUT)
    if distribution == EVEN:
        return even
    draws = _draws(distribution, tokens, num_experts, experts_per_token)
    loads = np.sort(draws, axis=1)[:, ::-1].mean(axis=0)

    def raised(floor: float) -> npt.NDArray[np.float64]:
        shares = np.maximum(loads, floor)
        return shares / shares.sum()

    def left_out(popularity: npt.NDArray[np.float64]) -> float:
        return float(np.sum((1.0 - np.minimum(popularity * experts_per_token, 1.0)) ** tokens))

    low, high = 0.0, float(loads[0])
    if num_experts - left_out(even) <= touched:
        return even
    if num_experts - left_out(raised(low)) >= touched:
        return raised(low)
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if num_experts - left_out(raised(middle)) < touched else (low, middle)
    return raised(high)


@functools.cache
def _draws(distribution: str, tokens: int, num_experts: int, experts_per_token: int) -> npt.NDArray[np.int64]:
    """Loads by draw of a power law, "draw expert"."""
    exponent = float(distribution.removeprefix(_POWER_LAW))
    rng = np.random.default_rng(0)
    return np.stack([drawn_loads(rng, tokens, num_experts, experts_per_token, exponent) for _ in range(_DRAWS)])


@dataclasses.dataclass(frozen=True)
class KernelFormat:
    """A format of matrix products: bits per weight with its scales, bytes per activation as multiplied, rate over 16 bits."""

    weight_bits: float
    activation_bytes: float = 2.0
    arithmetic_rate: float = 1.0


#: Formats of matrix products, as the tables name them.
KERNEL_FORMATS = {
    "bfloat16": KernelFormat(16.0),
    "int8_wo": KernelFormat(8.0),
    "fp8": KernelFormat(8.0, 1.0, 2.0),
    "fp8_block": KernelFormat(8.0, 1.0, 2.0),
    "sq": KernelFormat(8.0, 1.0, 2.0),
    "nvfp4": KernelFormat(4.5, 0.5, 4.0),
    "w4a16_mxfp4": KernelFormat(4.25),
    "int4_wo": KernelFormat(4.0),
}

#: Those whose activations have 16 bits -> bits per weight.
FORMAT_BITS = {name: one.weight_bits for name, one in KERNEL_FORMATS.items() if one.activation_bytes == 2.0}

#: System -> its multiprocessors and second-level cache, as far as they are known.
SYSTEMS: dict[str, dict[str, int]] = read_table(__package__, "systems.toml")

_FILES = {
    "gemm": "gemm_perf.parquet",
    "attention": "generation_attention_perf.parquet",
    "prefill": "context_attention_perf.parquet",
    "moe": "moe_perf.parquet",
    "all_reduce": "custom_allreduce_perf.parquet",
    "nccl": "nccl_perf.parquet",
}
#: Folders of tables that are not called as their kind is.
_FOLDERS = {"prefill": "attention", "all_reduce": "comm", "nccl": "comm"}
_INSTALL = "pip install aiconfigurator-core pyarrow (about 114 MB, Python 3.11 to 3.13)"


class KernelTableError(RuntimeError):
    """A kernel table cannot be read: one line with what is missing and what to do."""


@dataclasses.dataclass(frozen=True, order=True)
class TableName:
    """One table: a system (GPU), the engine whose kernels ran, its version, and what they do: one of

    "gemm", "attention", "prefill", "moe", "all_reduce" (an engine's own) or "nccl" (collectives of the library, the engine).
    """

    system: str
    engine: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.system}/{self.engine}/{self.version}"


@dataclasses.dataclass(frozen=True)
class DataSheet:
    """What a data sheet says of a GPU."""

    peak_flops_per_s: float  # dense bfloat16
    bandwidth_bytes_per_s: float
    multiprocessors: float


@dataclasses.dataclass(frozen=True)
class GemmTable:
    """Times of m x k by k x n products, "row"."""

    m: npt.NDArray[np.float64]
    k: npt.NDArray[np.float64]
    n: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]
    weight_bits: float
    weight_format: str = "bfloat16"


def list_tables(*, root: str | Path | None = None) -> tuple[TableName, ...]:
    """All tables, sorted.

    Args:
        root: folder that holds "data" and the data sheets; that of the installed package unless given.
    Raises:
        KernelTableError: the package is not installed, or the folder has no tables.
    """
    base = _systems(root) / "data"
    tables = [
        TableName(path.parents[3].name, path.parents[1].name, path.parents[0].name, kind)
        for kind, file in _FILES.items()
        for path in base.glob(f"*/{_FOLDERS.get(kind, kind)}/*/*/{file}")
    ]
    if not tables:
        raise KernelTableError(f"{base} holds no kernel tables; {_INSTALL}")
    return tuple(sorted(tables))


def data_sheet(system: str, *, multiprocessors: float | None = None, root: str | Path | None = None) -> DataSheet:
    """A system's data sheet, from the package's YAML file.

    Args:
        multiprocessors: for a system that `SYSTEMS` lacks.
    Raises:
        KernelTableError: no such system, a number is missing from its file, or its multiprocessors are unknown.
    """
    path = _systems(root) / f"{system}.yaml"
    if not path.is_file():
        raise KernelTableError(f"no data sheet {path.name}; known: {', '.join(sorted(_known_systems(path.parent)))}")
    text = path.read_text(encoding="utf-8")
    numbers = {}
    for key in ("bfloat16_tc_flops", "mem_bw"):
        # Two numbers of a flat file are not worth a YAML library.
        match = re.search(rf"^\s+{key}:\s*([0-9.eE+]+)", text, flags=re.MULTILINE)
        if match is None:
            raise KernelTableError(f"{path} has no {key}; choose another system")
        numbers[key] = float(match[1])
    count = multiprocessors if multiprocessors is not None else SYSTEMS.get(system, {}).get("multiprocessors")
    if count is None:
        raise KernelTableError(f"the number of multiprocessors of {system} is unknown; give it (--multiprocessors)")
    return DataSheet(numbers["bfloat16_tc_flops"], numbers["mem_bw"], float(count))


def gemm_formats(table: TableName, *, root: str | Path | None = None) -> tuple[str, ...]:
    """Those of `KERNEL_FORMATS` that a table holds. Raises KernelTableError."""
    formats = set(read_columns(table, ["gemm_dtype"], root)["gemm_dtype"].tolist())
    return tuple(name for name in KERNEL_FORMATS if name in formats)


def gemm_table(
    table: TableName,
    weight_format: str = "bfloat16",
    *,
    k_range: tuple[float, float] = (1024, 32768),
    n_range: tuple[float, float] = (1024, 65536),
    root: str | Path | None = None,
) -> GemmTable:
    """Products of one format, of weight matrices within the ranges (ends included).

    Raises:
        KernelTableError: the table cannot be read or holds no such rows.
    """
    if weight_format not in KERNEL_FORMATS:
        raise KernelTableError(f"format {weight_format!r} is not modelled; choose one of {', '.join(KERNEL_FORMATS)}")
    columns = read_columns(table, ["gemm_dtype", "m", "k", "n", "latency"], root)
    k, n, latency = columns["k"], columns["n"], columns["latency"]
    used = (columns["gemm_dtype"] == weight_format) & (latency > 0)
    used &= (k >= k_range[0]) & (k <= k_range[1]) & (n >= n_range[0]) & (n <= n_range[1])
    if not used.any():
        held = ", ".join(gemm_formats(table, root=root)) or "none that is modelled"
        raise KernelTableError(f"{table} holds no {weight_format} products of such sizes; formats there: {held}")
    m, k, n, milliseconds = (columns[name][used].astype(np.float64) for name in ("m", "k", "n", "latency"))
    return GemmTable(m, k, n, milliseconds * 1e-3, KERNEL_FORMATS[weight_format].weight_bits, weight_format)


def _systems(root: str | Path | None) -> Path:
    if root is not None:
        return Path(root)
    try:
        return Path(str(importlib.resources.files("aiconfigurator_core"))) / "systems"
    except ModuleNotFoundError as error:
        raise KernelTableError(f"the kernel tables are not installed; {_INSTALL}") from error


def _known_systems(folder: Path) -> list[str]:
    return [path.stem for path in folder.glob("*.yaml") if "mem_bw:" in path.read_text(encoding="utf-8")]


def read_columns(
    table: TableName, names: Sequence[str], root: str | Path | None, optional: Sequence[str] = ()
) -> dict[str, npt.NDArray]:
    """Columns of a table by name, those of `optional` where it has them; `root` as of `list_tables`.

    Raises:
        KernelTableError: the table cannot be read, or lacks one of `names`.
    """
    folder = _FOLDERS.get(table.kind, table.kind)
    path = _systems(root) / "data" / table.system / folder / table.engine / table.version / _FILES[table.kind]
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise KernelTableError(f"reading kernel tables needs pyarrow; {_INSTALL}") from error
    try:
        present = pyarrow.parquet.read_schema(path).names
        missing = [name for name in names if name not in present]
        if missing:
            raise KernelTableError(f"{path} lacks the columns {', '.join(missing)}; it is no {table.kind} table")
        wanted = [*names, *(name for name in optional if name in present)]
        read = pyarrow.parquet.read_table(path, columns=wanted)
    except FileNotFoundError as error:
        near = sorted({str(t) for t in list_tables(root=root) if t.kind == table.kind and t.system == table.system})
        raise KernelTableError(f"no {table.kind} table {table}; there are: {', '.join(near) or 'none'}") from error
    except pyarrow.ArrowInvalid as error:
        raise KernelTableError(f"{path} is no Parquet file: {error}") from error
    return {name: read[name].to_numpy() for name in wanted}
