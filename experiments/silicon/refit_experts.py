"""Fit one table of experts: six numbers per weight format, errors of networks held out, and the entry for the catalog."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float

from experiments.silicon.refit import ROWS
from hwmodels.analysis.calibration.experts import (
    CACHE_BYTES,
    LEAST_INNER_SIZE,
    ExpertTable,
    expert_roofline,
    expert_table,
    expert_unit,
    fell_back,
    fit_experts,
    modelled_rows,
    rows_of_main_kernel,
)
from hwmodels.analysis.calibration.kernel_tables import (
    EVEN,
    DataSheet,
    KernelTableError,
    TableName,
    data_sheet,
    popularity_in_table,
)
from hwmodels.analysis.calibration.least_squares import UnitFit
from hwmodels.analysis.calibration.report import (
    CalibrationReport,
    ErrorSummary,
    error_by_range,
    half_of_groups,
    interval_record,
    relative_error,
    some_of,
)
from hwmodels.catalog.calibrations import SCALED, calibration_record
from hwmodels.compute.gpu_experts import ExpertCoefficients, GpuExperts, expert_layer_time
from hwmodels.network.operators.expert_sharing import busiest_experts, busiest_load
from hwmodels.network.routing import Routing

__all__ = ["EXPERTS", "DealtExperts", "ExpertSource", "dealt_experts", "fit_sources", "judge_experts"]


@dataclasses.dataclass(frozen=True)
class DealtExperts:
    """Dealt rows beside a unit's times, "row"."""

    predicted_s: npt.NDArray[np.float64]
    modelled: npt.NDArray[np.bool_]  # rows that the model is for, of uneven loads


def dealt_experts(
    table: ExpertTable, unit: GpuExperts, sheet: DataSheet, *, devices: int, cache_bytes: float = 0.0
) -> DealtExperts:
    """What a unit says of the busiest of several GPUs.

    Args:
        table: rows of so many devices, of which `touched` counts the experts of all.
        devices: >= 1.
        cache_bytes: of the second-level cache.
    """
    rows = list(zip(table.distribution.tolist(), *(_whole(table, name) for name in _SIZES)))
    shares = {row: _own_share(row, devices) for row in dict.fromkeys(rows)}
    share = np.array([shares[row] for row in rows])
    even = table.distribution == EVEN
    busiest = np.asarray(busiest_experts(jnp.asarray(table.touched), jnp.asarray(table.num_experts), float(devices)))
    touched = np.where(even, table.touched / devices, busiest)
    conditions = table.conditions() | {"touched": touched, "own_share": share}
    predicted = expert_layer_time(
        unit, weight_bits=table.weight_bits, **{k: jnp.asarray(v) for k, v in conditions.items()}
    )
    own = dataclasses.replace(table, touched=touched, experts_per_token=table.experts_per_token * share)
    return DealtExperts(np.asarray(predicted, np.float64), modelled_rows(own, sheet, cache_bytes) & ~even)


_SIZES = ("tokens", "num_experts", "experts_per_token")


def _whole(table: ExpertTable, name: str) -> list[int]:
    return getattr(table, name).astype(int).tolist()


def _own_share(row: tuple[str, int, int, int], devices: int) -> float:
    if row[0] == EVEN:
        return 1.0 / devices
    return float(_share(jnp.asarray(popularity_in_table(*row)), *map(float, row[1:]), float(devices)))


@jax.jit
def _share(
    popularity: Float[Array, " expert"], tokens: float, experts: float, chosen: float, devices: float
) -> Float[Array, ""]:
    routing = Routing(popularity=popularity)
    return busiest_load(experts, chosen, tokens, devices=devices, routing=routing) / devices


#: Kernels that pass over the choices of all experts, wherever those are held, beside their products: Triton's keep a row for
#: each. Rows of experts dealt to several GPUs say so.
_PASS_OVER_ALL = "triton_tritonexperts"
#: GPUs that the rows which judge it are dealt to.
_DEALT_TO = 8

#: Fewest rows of a format that six numbers are fitted to.
LEAST_ROWS = 100
#: Fewest groups of rows that tell how much of others an interval covers.
_FEWEST_GROUPS = 4
#: Rows that one fit sees.
FITTED_ROWS = 2000

#: Fits of one format: all, both halves of the networks, and all but those of so many experts.
EXPERT_FITS = 4
_HELD_OUT_EXPERTS = 128


@dataclasses.dataclass(frozen=True)
class ExpertRefit:
    """One format of one table: fitted to all rows (`fit`), and judged by what was held out of other fits (`report`)."""

    rows: ExpertTable
    fit: UnitFit[GpuExperts] | None  # None: none of the rows was fitted to
    report: CalibrationReport
    record: dict[str, Any]  # the format's part of a catalog file
    held_out: Any  # rows that `predicted_s` knows nothing of: all, each from the fit to the other half
    predicted_s: Any


def refit_experts(
    table: TableName,
    weight_format: str,
    *,
    main_kernel: bool = False,
    wide: GpuExperts | None = None,
    multiprocessors: float | None = None,
    root: str | Path | None = None,
    advance: Callable[[str], None] = lambda note: None,
) -> ExpertRefit:
    """Fit to all networks, to halves of them, and to those whose number of experts is not 128.

    Args:
        main_kernel: fit the kernel alone that ran most networks.
        wide: the same file's 16-bit experts, whose scaled bytes a narrower format has to be nearer than.
        advance: called after each of the four fits.
    Raises:
        KernelTableError: the table or the data sheet cannot be read, or has too few rows to fit to.
    """
    held, cache_bytes = expert_table(table, weight_format, root=root), CACHE_BYTES.get(table.system, 0)
    rows = rows_of_main_kernel(held) if main_kernel else held
    sheet = data_sheet(table.system, multiprocessors=multiprocessors, root=root)
    modelled = modelled_rows(rows, sheet, cache_bytes)
    uneven = modelled & (rows.distribution != EVEN)

    def fitted(train: Any) -> UnitFit[GpuExperts]:
        try:
            result = fit_experts(rows, sheet, some_of(train & uneven, FITTED_ROWS), cache_bytes=cache_bytes)
        except ValueError as error:
            raise KernelTableError(f"{table} {weight_format} cannot be fitted: {error}") from error
        advance(f"{table.system} experts {weight_format}")
        return result

    error = lambda predicted, chosen: relative_error(predicted[chosen], rows.seconds[chosen])
    if uneven.sum() < LEAST_ROWS:
        raise KernelTableError(
            f"{table} holds {uneven.sum()} rows of {weight_format} experts that are modelled; too few"
        )
    whole = fitted(uneven)
    half = half_of_groups(rows.network.tolist())
    first, second = fitted(half), fitted(~half)
    by_halves = np.where(half, second.predicted_s, first.predicted_s)
    few = rows.num_experts != _HELD_OUT_EXPERTS
    beyond = fitted(few).predicted_s if (uneven & few).any() and (uneven & ~few).any() else by_halves
    halves = [error(one.predicted_s, uneven & test).mean for one, test in ((first, ~half), (second, half))]
    fallen = int((fell_back(rows, sheet) & (rows.inner_size >= LEAST_INNER_SIZE)).sum())
    networks = len(set(rows.network[uneven]))
    notes = [
        f"{networks} networks; loads as power laws have them, exponents 1.01 and 1.2; "
        f"parts of experts of {LEAST_INNER_SIZE} and more.",
        f"{fallen} rows of kernels that fell back to others are left out, and those whose weights fit into the cache.",
        *other_kernels(held, rows),
    ]
    passed = float(any(_PASS_OVER_ALL in kernel for kernel in rows.kernels))
    coefficients = dataclasses.replace(whole.unit.coefficients, passed_elsewhere=passed)
    unit = dataclasses.replace(whole.unit, coefficients=coefficients)
    report = CalibrationReport(
        title=f"{table} experts {weight_format}",
        estimates=whole.fit.estimates,
        standard_errors=whole.fit.standard_errors,
        errors={
            "all networks fitted": error(whole.predicted_s, uneven),
            "half of the networks, held out": error(by_halves, uneven),
            f"networks of {_HELD_OUT_EXPERTS} experts held out": error(beyond, uneven & ~few),
            "even loads, not fitted": error(whole.predicted_s, modelled & ~uneven),
            **_dealt_errors(table, weight_format, unit, sheet, root),
        },
        by_range=error_by_range(rows.tokens[uneven], by_halves[uneven], rows.seconds[uneven]),
        baselines=baselines_of(rows, sheet, uneven, wide),
        notes=notes,
    )
    plain = report.to_dict()
    record = {
        "status": "calibrated",
        "table": f"aiconfigurator-core {table}",
        "split": "all networks; errors: both halves of the networks by hash, and those of 128 experts held out",
        "weight_bits": rows.weight_bits,
        "rows": int(uneven.sum()),
        "held_out_halves": halves,
        "interval": interval_record(by_halves, rows.seconds, uneven, groups_of(rows, uneven), few_groups=True),
        "at_bound": list(whole.fit.at_bound),
        "scatter": whole.fit.scatter,
        "coefficients": {k: float(v) for k, v in vars(unit.coefficients).items()},
        **wider_record(wide, rows, uneven, whole.predicted_s),
        **{name: plain[name] for name in ("standard_errors", "errors", "by_range", "baselines", "notes")},
    }
    return ExpertRefit(rows, whole, report, record, np.ones(len(rows.tokens), bool), by_halves)


def groups_of(rows: ExpertTable, chosen: npt.NDArray[np.bool_]) -> list[str]:
    """Names of rows that err together, "row": networks, or where those are few, their parts, or their numbers of tokens."""
    parts = [f"{network}, part of {inner:g}" for network, inner in zip(rows.network, rows.inner_size)]
    tokens = [f"{network}, {count:g} tokens" for network, count in zip(rows.network, rows.tokens)]
    groupings = (rows.network.tolist(), parts, tokens)
    return next((one for one in groupings if len(set(np.array(one)[chosen])) >= _FEWEST_GROUPS), tokens)


def other_kernels(held: ExpertTable, used: ExpertTable) -> list[str]:
    """A note of rows left out since other kernels than that of `used` ran them."""
    left = len(held.tokens) - len(used.tokens)
    return [f"{left} rows of other kernels are left out; this one is {used.kernels[0]}."] if left else []


def baselines_of(
    rows: ExpertTable, sheet: DataSheet, chosen: npt.NDArray[np.bool_], wide: GpuExperts | None
) -> dict[str, ErrorSummary]:
    """Errors of the data sheet's roofline, of the same by one factor that has seen the rows, and, of a packed format, of the
    16-bit kernel `wide` with the bytes of fewer bits, which stands in where a narrower format has none.
    """
    roofline = expert_roofline(rows, sheet)
    factor = float(np.median(rows.seconds[chosen] / roofline[chosen]))
    predicted = {"roofline": roofline, "roofline by a constant": factor * roofline}
    if wide is not None:
        predicted[SCALED] = seconds_of(wide, rows, rows.weight_bits)
    return {name: relative_error(values[chosen], rows.seconds[chosen]) for name, values in predicted.items()}


def wider_record(wide: GpuExperts | None, rows: ExpertTable, chosen: Any, predicted_s: Any) -> dict[str, float]:
    """The number of tokens from which on the 16-bit kernel is faster in most rows; nothing where it never is."""
    if wide is None:
        return {}
    slower, tokens = (seconds_of(wide, rows, 16.0) < predicted_s)[chosen], rows.tokens[chosen]
    counts = sorted(set(tokens.tolist()))
    beyond = [least for least in counts if all(np.mean(slower[tokens == one]) > 0.5 for one in counts if one >= least)]
    return {"wider_from_tokens": float(beyond[0])} if beyond else {}


def seconds_of(unit: GpuExperts, rows: ExpertTable, weight_bits: float) -> npt.NDArray[np.float64]:
    """What a unit says of each row, "row"."""
    conditions = {name: jnp.asarray(values) for name, values in rows.conditions().items()}
    return np.asarray(expert_layer_time(unit, weight_bits=weight_bits, **conditions), np.float64)


def _dealt_errors(
    table: TableName, weight_format: str, unit: GpuExperts, sheet: DataSheet, root: str | Path | None
) -> dict[str, ErrorSummary]:
    """Of uneven loads on the busiest of `_DEALT_TO` GPUs; nothing where the table has none."""
    try:
        rows = expert_table(table, weight_format, devices=_DEALT_TO, root=root)
    except KernelTableError:
        return {}
    cache_bytes = CACHE_BYTES.get(table.system, 0)
    dealt = dealt_experts(rows, unit, sheet, devices=_DEALT_TO, cache_bytes=cache_bytes)
    if not dealt.modelled.any():
        return {}
    error = relative_error(dealt.predicted_s[dealt.modelled], rows.seconds[dealt.modelled])
    return {f"dealt to {_DEALT_TO} GPUs, not fitted": error}


# Which tables the routed experts of each file of the catalog are from.


def judge_experts(
    table: TableName,
    weight_format: str,
    lender: Mapping[str, Any],
    *,
    read_bits: float = 0.0,
    main_kernel: bool = False,
    wide: GpuExperts | None = None,
    multiprocessors: float | None = None,
    root: str | Path | None = None,
    advance: Callable[[str], None] = lambda note: None,
) -> ExpertRefit:
    """The lender's numbers with this GPU's data sheet, and how far they lie from each row of uneven loads.

    Args:
        lender: a format's part of a catalog file.
        read_bits: bits per weight that the kernel reads at least; its own rows may all be left out for that, as launches far
            above the roofline are, so that rows are chosen by what it reads.
        main_kernel, wide, multiprocessors, root, advance: as of `refit_experts`.
    Raises:
        KernelTableError: the table or the data sheet cannot be read, or no row is of the model's kind.
    """
    held = expert_table(table, weight_format, root=root)
    rows = rows_of_main_kernel(held) if main_kernel else held
    sheet = data_sheet(table.system, multiprocessors=multiprocessors, root=root)
    as_read = dataclasses.replace(rows, weight_bits=max(rows.weight_bits, read_bits))
    chosen = modelled_rows(as_read, sheet, CACHE_BYTES.get(table.system, 0)) & (rows.distribution != EVEN)
    if not chosen.any():
        raise KernelTableError(f"{table} holds no rows of {weight_format} experts that are modelled")
    coefficients = {**lender["coefficients"], "read_bits": read_bits}
    predicted = seconds_of(expert_unit(sheet, ExpertCoefficients(**coefficients)), rows, rows.weight_bits)
    error = lambda of, where: relative_error(of[where], rows.seconds[where])
    several = len(set(rows.network[chosen])) > 1
    groups = groups_of(rows, chosen)
    half = half_of_groups(rows.network.tolist() if several else groups)
    report = CalibrationReport(
        title=f"{table} experts {weight_format}, not fitted",
        estimates=dict(lender["coefficients"]),
        standard_errors=dict(lender["standard_errors"]),
        errors={"all rows, held out": error(predicted, chosen)},
        by_range=error_by_range(rows.tokens[chosen], predicted[chosen], rows.seconds[chosen]),
        baselines=baselines_of(rows, sheet, chosen, wide),
        notes=[
            f"numbers of {str(lender['table']).split()[-1]} at {lender['weight_bits']:g} bits; none is from these rows.",
            *([f"the kernel reads {read_bits:g} bits per weight."] if read_bits else []),
            *other_kernels(held, rows),
        ],
    )
    plain = report.to_dict()
    record = {
        "status": "calibrated",
        "table": lender["table"],
        "judged_on": f"aiconfigurator-core {table}",
        "split": f"no row was fitted to; halves of {'networks' if several else 'numbers of tokens'} by hash",
        "weight_bits": rows.weight_bits,
        "rows": int(chosen.sum()),
        "held_out_halves": [error(predicted, chosen & one).mean for one in (~half, half) if (chosen & one).any()],
        "interval": interval_record(predicted, rows.seconds, chosen, groups, few_groups=True),
        "at_bound": list(lender["at_bound"]),
        "scatter": lender["scatter"],
        "coefficients": coefficients,
        **wider_record(None if read_bits else wide, rows, chosen, predicted),
        **{name: plain[name] for name in ("standard_errors", "errors", "by_range", "baselines", "notes")},
    }
    advance(f"{table.system} experts {weight_format}")
    return ExpertRefit(rows, None, report, record, np.ones(len(rows.tokens), bool), predicted)


#: The format that every file has.
_WIDEST = "bfloat16"


class ExpertSource(NamedTuple):
    """Where the numbers of a format of experts are from.

    Attributes:
        engine, version: of the table that they are fitted to, or judged on where they are lent.
        main_kernel: rows of the kernel alone that ran most networks.
        lent_by: (GPU, engine, format) of the catalog whose numbers these are; the table then judges them alone.
        read_bits: bits per weight that the kernel reads at least, as of `ExpertCoefficients`.
    """

    engine: str
    version: str
    main_kernel: bool = False
    lent_by: tuple[str, str, str] | None = None
    read_bits: float = 0.0


#: The tables of a file's experts: GPU -> engine -> {format: source}.
EXPERTS: dict[str, dict[str, dict[str, ExpertSource]]] = {
    gpu: {
        engine: {kind: ExpertSource(**source) for kind, source in formats.items()}
        for engine, formats in row["experts"].items()
    }
    for gpu, row in ROWS.items()
}


def fit_sources(
    system: str, sources: Mapping[str, ExpertSource], options: Mapping[str, Any], *, own: tuple[str | None, str]
) -> dict[str, ExpertRefit]:
    """Each format of one file that has enough rows, 16 bits first; the others are named on stderr.

    Args:
        system: of the tables.
        sources: format -> where its numbers are from.
        options: of `refit_experts` and `judge_experts`.
        own: GPU and engine of the file: what they lend is what has just been fitted.
    """
    refits: dict[str, ExpertRefit] = {}
    for kind, source in sources.items():
        table = TableName(system, source.engine, source.version, "moe")
        widest = refits[_WIDEST].fit if kind != _WIDEST and _WIDEST in refits else None
        chosen = {"main_kernel": source.main_kernel, "wide": widest and widest.unit, **options}
        try:
            if source.lent_by is None:
                refits[kind] = refit_experts(table, kind, **chosen)
                continue
            *whose, lent = source.lent_by
            here = tuple(whose) == own and lent in refits
            lender = refits[lent].record if here else calibration_record(*whose)["experts"][lent]
            refits[kind] = judge_experts(table, kind, lender, read_bits=source.read_bits, **chosen)
        except KernelTableError as error:
            print(error, file=sys.stderr)
    return refits
