"""Fit one table: eight numbers per weight format, errors of held-out shapes, and the entry for the catalog."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.attention import (
    KV_FORMAT_BITS,
    attention_table,
    decoding_rows,
    fit_attention,
    fit_prefill,
    prefill_rows,
    prefill_table,
)
from hwmodels.analysis.calibration.gemm import baselines, coefficients, fit_gemm, from_memory
from hwmodels.analysis.calibration.kernel_tables import (
    KERNEL_FORMATS,
    DataSheet,
    GemmTable,
    KernelTableError,
    TableName,
    data_sheet,
    gemm_formats,
    gemm_table,
)
from hwmodels.analysis.calibration.least_squares import Fit, UnitFit
from hwmodels.analysis.calibration.report import (
    CalibrationReport,
    error_by_range,
    half_of_groups,
    half_of_shapes,
    interval_record,
    largest_held_out,
    relative_error,
    shape_names,
    some_of,
)
from hwmodels.compute.gpu import DISPATCHED_ROWS, GpuGemm
from hwmodels.tables import read_table

__all__ = ["CACHE_BYTES", "cached_bytes", "in_cache", "rows_from_cache"]


#: Second-level cache by system of the tables; systems without a number here have no cache to leave out.
CACHE_BYTES = {
    "a100_sxm": 40e6,  # NVIDIA A100 Tensor Core GPU architecture, table 1
    "h100_sxm": 50e6,  # NVIDIA H100 Tensor Core GPU architecture, table 3
    "h200_sxm": 50e6,  # the H100's chip
    "l40s": 96e6,  # NVIDIA Ada GPU architecture, AD102
    "b200_sxm": 126e6,  # cudaDeviceProp.l2CacheSize, both dies
    "rtx_pro_6000_server": 128e6,  # NVIDIA RTX Blackwell PRO GPU architecture
}

#: Copies by engine, and formats that are measured with another number.
_COPIES = {"trtllm": 5.0, "vllm": 6.0, "sglang": 6.0}
_OTHERS = {("vllm", "fp8_block"): 1.0, ("vllm", "nvfp4"): 1.0}


def cached_bytes(table: TableName, weight_format: str) -> float:
    """The largest weights of a table, in bytes, that its measurement may have found in the cache; 0 where nothing is known."""
    copies = _OTHERS.get((table.engine, weight_format), _COPIES.get(table.engine, 0.0))
    return CACHE_BYTES.get(table.system, 0.0) / copies if copies else 0.0


def in_cache(table: TableName, rows: GemmTable) -> npt.NDArray[np.bool_]:
    """Which rows, "row", multiply by a matrix that may have come from the cache: all rows of a shape alike."""
    return _weight_bytes(rows) <= cached_bytes(table, rows.weight_format)


def rows_from_cache(table: TableName, rows: GemmTable, sheet: DataSheet) -> npt.NDArray[np.bool_]:
    """Which rows, "row", multiply by such a matrix and wait for it: reading it takes at least as long as the arithmetic.

    At more rows than that, no cache makes a product faster, and the row says as much as that of a larger matrix.

    Args:
        sheet: of the GPU; both times are at its rates.
    """
    form = KERNEL_FORMATS[rows.weight_format]
    read_s = _weight_bytes(rows) / sheet.bandwidth_bytes_per_s
    arithmetic_s = 2.0 * rows.m * rows.k * rows.n / (form.arithmetic_rate * sheet.peak_flops_per_s)
    return in_cache(table, rows) & (arithmetic_s <= read_s)


def _weight_bytes(rows: GemmTable) -> npt.NDArray[np.float64]:
    return rows.k * rows.n * (rows.weight_bits / 8)


@dataclasses.dataclass(frozen=True)
class Calibrated:
    """A GPU of the catalog: its system in the tables, and the version of each engine whose kernels it has."""

    system: str
    versions: dict[str, str]
    #: Formats of products that another version of an engine was measured in: engine -> {format: version}.
    more: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    #: Formats that are not fitted: engine -> names.
    without: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    #: Formats whose products take tiles by rows alone (`hwmodels.compute.gpu`), and their largest rows: those where
    #: held-out shapes err less than with a library's choice. Not the B200's, whose whole steps err more.
    dispatched: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    largest_rows: float = DISPATCHED_ROWS[1]
    #: Formats fitted without matrices that the measurement may have found in the cache (`cached_weights`): those where such a
    #: fit describes these matrices as well at 512 rows and more, where no cache matters, and 90 of 224 matrices are left.
    streamed: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    #: Formats fitted without those *rows* by such matrices that take memory longer than arithmetic (`rows_from_cache`): where
    #: the fit without whole matrices misses them at many rows.
    streamed_rows: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    #: Formats measured without a CUDA graph, so that the host's time is in the table (`hwmodels.compute.gpu`).
    without_graph: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    #: Formats whose operands are read again where neither fits into the cache (`hwmodels.compute.gpu`).
    rereads: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    #: Formats of keys and values whose decoding attention is limited by single multiprocessors too (`block_time` of
    #: `hwmodels.compute.gpu_attention`): those where held-out rows then err by 0.2 points less, and whole steps no more.
    blocks: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def formats(self, engine: str, root: str | Path | None = None) -> dict[str, str]:
        """Formats of an engine's products -> the version that they are measured with. Raises KernelTableError."""
        table = TableName(self.system, engine, self.versions[engine], "gemm")
        held = [kind for kind in gemm_formats(table, root=root) if kind not in self.without.get(engine, ())]
        return dict.fromkeys(held, self.versions[engine]) | self.more.get(engine, {})


#: Rows of `catalog.toml`.
ROWS = read_table(__package__, "catalog.toml")

#: Folders of the catalog.
CATALOG: dict[str, Calibrated] = {
    gpu: Calibrated(**{column: value for column, value in row.items() if column != "experts"})
    for gpu, row in ROWS.items()
}


def _of_system(table: TableName) -> Calibrated | None:
    return next((gpu for gpu in CATALOG.values() if gpu.system == table.system), None)


def _is_listed(table: TableName, field: str, of_format: str) -> bool:
    """Whether a table's GPU in the catalog, if it is there, names a format of its engine in a field of `Calibrated`."""
    system = _of_system(table)
    return system is not None and of_format in getattr(system, field).get(table.engine, ())


def limited_by_blocks(table: TableName, kv_format: str) -> bool:
    """Whether decoding attention over a format of keys and values is fitted with the limits of single multiprocessors."""
    return _is_listed(table, "blocks", kv_format)


def left_out(table: TableName, rows: GemmTable, root: str | Path | None = None) -> npt.NDArray[np.bool_]:
    """Rows, "row", that a fit leaves out as weights from the cache; none of formats and GPUs that the catalog does not name.

    Raises:
        KernelTableError: the data sheet cannot be read.
    """
    if _is_listed(table, "streamed", rows.weight_format):
        return in_cache(table, rows)
    if _is_listed(table, "streamed_rows", rows.weight_format):
        return rows_from_cache(table, rows, data_sheet(table.system, root=root))
    return np.zeros(len(rows.m), bool)


def reread_cache(table: TableName, weight_format: str) -> float:
    """The cache in bytes beyond which a format's operands are read again, as `predict_gemm` has it; 0 where they are not."""
    return CACHE_BYTES[table.system] if _is_listed(table, "rereads", weight_format) else 0.0


def dispatched_rows(table: TableName, weight_format: str) -> float:
    """The most rows of a format's tiles as `predict_gemm` has them; 0, as of a library, for GPUs out of the catalog."""
    system = _of_system(table)
    return 0.0 if system is None or not _is_listed(table, "dispatched", weight_format) else system.largest_rows


#: Rows that one fit sees; more change no number by its standard error.
FITTED_ROWS = 3000

#: What files have only of formats with it.
_OF_REREADS = ("reread_cost", "cache_bytes")

#: Fits of one format: all shapes, both halves of them, and without the largest.
GEMM_FITS = 4


@dataclasses.dataclass(frozen=True)
class Refit:
    """One format of one table: fitted to all rows (`fit`), and judged by what was held out of other fits (`report`)."""

    table: TableName
    weight_format: str
    rows: GemmTable
    sheet: DataSheet
    fit: UnitFit[GpuGemm]
    report: CalibrationReport
    half_errors: tuple[float, ...]  # mean error of the other half of the shapes, one per split and half
    held_out: Any  # rows held out of the fit whose predictions `predicted_held_out` are
    predicted_s: Any  # of that fit

    def record(self) -> dict[str, Any]:
        """The format's part of a catalog file, and of the JSON."""
        plain = self.report.to_dict()
        fitted = self.fit.fit
        rows = dispatched_rows(self.table, self.weight_format)
        cache = reread_cache(self.table, self.weight_format)
        numbers = vars(coefficients(fitted.estimates, self.weight_format, cache))
        return {
            "status": "calibrated",
            "table": f"aiconfigurator-core {self.table}",
            "split": "all shapes; errors: both halves of the (k, n) shapes by hash, and the largest k and n held out",
            "weight_bits": self.rows.weight_bits,
            "activation_bits": 8.0 * KERNEL_FORMATS[self.weight_format].activation_bytes,
            **({"dispatched_rows": rows} if rows else {}),
            "rows": len(self.rows.m),
            "held_out_halves": list(self.half_errors),
            "interval": interval_record(self.predicted_s, self.rows.seconds, self.held_out, shape_names(self.rows)),
            "at_bound": list(fitted.at_bound),
            "scatter": fitted.scatter,
            "coefficients": {name: float(value) for name, value in numbers.items() if cache or name not in _OF_REREADS},
            **{name: plain[name] for name in ("standard_errors", "errors", "by_range", "baselines", "notes")},
        }


def refit(
    table: TableName,
    weight_format: str,
    *,
    multiprocessors: float | None = None,
    root: str | Path | None = None,
    advance: Callable[[str], None] = lambda note: None,
) -> Refit:
    """Fit to all shapes, then to halves of them and to all but the largest.

    Args:
        advance: called after each of the four fits.
    Raises:
        KernelTableError: the table or the data sheet cannot be read, or has too few rows to fit to.
    """
    rows, sheet = (
        gemm_table(table, weight_format, root=root),
        data_sheet(table.system, multiprocessors=multiprocessors, root=root),
    )
    cached, cache = left_out(table, rows, root), reread_cache(table, weight_format)
    streamed = from_memory(rows, sheet) & ~cached

    def fitted(train: Any) -> UnitFit[GpuGemm]:
        try:
            used = some_of(train & streamed, FITTED_ROWS)
            result = fit_gemm(
                rows,
                sheet,
                used,
                dispatched_rows=dispatched_rows(table, weight_format),
                without_graph=_is_listed(table, "without_graph", weight_format),
                cache_bytes=cache,
            )
        except ValueError as error:
            raise KernelTableError(f"{table} {weight_format} cannot be fitted: {error}") from error
        advance(f"{table.system} {weight_format}")
        return result

    whole = fitted(streamed)
    half = half_of_shapes(rows.k, rows.n)
    first, second = fitted(half), fitted(~half)
    by_halves = np.where(half, second.predicted_s, first.predicted_s)
    tests = ((first, ~half & streamed), (second, half & streamed))
    halves = [relative_error(one.predicted_s[test], rows.seconds[test]).mean for one, test in tests]
    train, predicted, test = half, first.predicted_s, ~half & streamed
    within = largest_held_out(rows.k, rows.n)
    beyond, large = fitted(within).predicted_s, ~within & streamed
    error = lambda values, chosen: relative_error(values[chosen], rows.seconds[chosen])
    absent = int((~streamed).sum())
    notes = [
        f"Mean error over the two held-out halves: {np.mean(halves):.2%} ({min(halves):.2%} to {max(halves):.2%})."
    ]
    if absent:
        shapes = len(set(zip(rows.k[~streamed], rows.n[~streamed])))
        why = "their weights came, or may have come, from a cache"
        why = why if cached.any() else "some were faster than the bandwidth allows, from a cache"
        notes.append(
            f"{absent} rows of {shapes} shapes are left out: {why}. "
            f"Mean error with them, fitted without: {error(whole.predicted_s, streamed | True).mean:.2%}."
        )
    report = CalibrationReport(
        title=f"{table} {weight_format}",
        estimates=whole.fit.estimates,
        standard_errors=whole.fit.standard_errors,
        errors={
            "all shapes fitted": error(whole.predicted_s, streamed),
            "half of the shapes, fitted": error(predicted, train & streamed),
            "half of the shapes, held out": error(predicted, test),
            "largest k and n held out": error(beyond, large),
        },
        by_range=error_by_range(rows.m[test], predicted[test], rows.seconds[test]),
        baselines={name: error(values, test) for name, values in baselines(rows, sheet, train & streamed).items()},
        notes=notes,
    )
    return Refit(table, weight_format, rows, sheet, whole, report, tuple(halves), streamed, by_halves)


def catalog_entry(refits: Sequence[Refit], experts: dict[str, Any], attention: dict[str, Any]) -> dict[str, Any]:
    """A whole catalog file as nested dictionaries; `experts`: format -> its record; `attention`: with prefill."""
    table = refits[0].table
    entry: dict[str, Any] = {
        "title": f"{table.system} with {table.engine} {table.version}, calibrated to kernel tables",
        "written_by": "python -m experiments.silicon; do not edit",
        "data_sheet": dataclasses.asdict(refits[0].sheet),
        "formats": {refit.weight_format: refit.record() for refit in refits},
    }
    return entry | ({"experts": experts} if experts else {}) | attention


# Fit an engine's attention: decoding by width of keys and values, then what prefill adds; parts of a catalog file.

#: Fits of attention: of each width and of prefill all rows, and both halves.
_FITS = 3


def refit_attention(
    system: str,
    engine: str,
    version: str,
    *,
    multiprocessors: float | None = None,
    root: str | Path | None = None,
    advance: Callable[[str], None] = lambda note: None,
) -> dict[str, Any]:
    """Decoding attention by format of keys and values, and prefill, each with halves of the batches and heads held out.

    Args:
        advance: called after each part.
    Raises:
        KernelTableError: a table or the data sheet cannot be read, or has too few rows to fit to.
    """
    sheet = data_sheet(system, multiprocessors=multiprocessors, root=root)
    decoding, unit = {}, None
    table = TableName(system, engine, version, "attention")
    for kind, bits in KV_FORMAT_BITS.items():
        try:
            rows = attention_table(table, kind, root=root)
        except KernelTableError:
            if unit is None:
                raise
            continue
        blocks = limited_by_blocks(table, kind)
        fits = _fits(lambda train, rows=rows, b=blocks: fit_attention(rows, sheet, train, blocks=b), rows, table)
        unit = unit or fits[0].unit
        decoding[kind] = {"kv_bits": bits} | _record(table, rows, decoding_rows(rows), fits)
        advance(f"{system} attention {kind}")
    assert unit is not None
    table = TableName(system, engine, version, "prefill")
    prompts = prefill_table(table, root=root)
    fits = _fits(lambda train: fit_prefill(prompts, sheet, unit, train), prompts, table)
    advance(f"{system} prefill")
    return {"attention": decoding, "prefill": _record(table, prompts, prefill_rows(prompts), fits)}


def _fits(fitted: Callable[[Any], Any], rows: Any, table: TableName) -> list[Any]:
    half = half_of_groups(_groups(rows))
    try:
        return [fitted(train) for train in (np.ones(len(half), bool), half, ~half)]
    except ValueError as error:
        raise KernelTableError(f"{table} attention cannot be fitted: {error}") from error


def _groups(rows: Any) -> list[str]:
    return [f"{int(b)} {int(h)} {int(k)}" for b, h, k in zip(rows.batch, rows.num_heads, rows.num_kv_heads)]


def _record(table: TableName, rows: Any, used: Any, fits: list[Any]) -> dict[str, Any]:
    half = half_of_groups(_groups(rows))
    whole, first, second = fits
    held_out = np.where(half, second.predicted_s, first.predicted_s)
    error = lambda predicted: dataclasses.asdict(relative_error(predicted[used], rows.seconds[used]))
    fit: Fit = whole.fit
    return {
        "status": "calibrated",
        "table": f"aiconfigurator-core {table}",
        "split": "all rows; errors: both halves of the batches and heads by hash, each held out of a fit to the other",
        "rows": int(used.sum()),
        "at_bound": list(fit.at_bound),
        "interval": interval_record(held_out, rows.seconds, used, _groups(rows)),
        "coefficients": dict(fit.estimates),
        "standard_errors": {n: e for n, e in fit.standard_errors.items() if not math.isnan(e)},
        "errors": {"fitted": error(whole.predicted_s), "held out": error(held_out)},
    }
