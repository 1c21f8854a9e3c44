"""Fit the collectives of each measured link, and write them into its file: `python -m experiments.silicon --collectives`."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tomli_w

from experiments.silicon.refit import CATALOG
from hwmodels.analysis.calibration.kernel_tables import KernelTableError, TableName, read_columns
from hwmodels.analysis.calibration.least_squares import Fit, Parameter, fit, predicted_rows
from hwmodels.analysis.calibration.report import interval_record, relative_error
from hwmodels.parallel.collectives import COLLECTIVES, Algorithm, Collective, CollectiveKernel, kernels_time
from hwmodels.tables import read_table
from jaxspec.partial_files import to_json, write_text
from jaxspec.runs.progress import Reporter

__all__ = [
    "KERNELS",
    "LINKS",
    "NCCL",
    "CollectiveTable",
    "MeasuredLink",
    "collective_table",
    "error_rows",
    "fit_collective",
    "fit_collectives",
    "fitted_kernels",
    "half_of_sizes",
    "joined",
    "refit_link",
]


#: Stands for an engine in names of the library's tables.
NCCL = "nccl"

#: Both tables count elements of two bytes.
_ELEMENT_BYTES = 2.0


@dataclasses.dataclass(frozen=True)
class CollectiveTable:
    """Times of one collective of 16-bit elements, "row"."""

    devices: npt.NDArray[np.float64]
    message_bytes: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]


def collective_table(
    table: TableName, collective: Collective = "all_reduce", *, root: str | Path | None = None
) -> CollectiveTable:
    """Rows of one collective; of an engine's own all-reduce those of a captured graph, as engines run it.

    Args:
        table: of kind "all_reduce" or "nccl".
        root: as of `list_tables`.
    Raises:
        KernelTableError: the table cannot be read, or holds no such rows.
    """
    names = ["num_gpus", "message_size", "latency"]
    if table.kind == "all_reduce":
        columns = read_columns(table, [*names, "kernel_source"], root)
        used = np.array([not str(name).endswith("eager") for name in columns["kernel_source"]])
        if collective != "all_reduce":
            raise KernelTableError(f"{table} holds all_reduce alone, not {collective}; take the library's table")
    else:
        columns = read_columns(table, [*names, "op_name", "nccl_dtype"], root)
        used = (columns["op_name"] == collective.replace("all_to_all", "alltoall")) & (columns["nccl_dtype"] == "half")
    used &= columns["latency"] > 0
    if not used.any():
        raise KernelTableError(f"{table} holds no rows of {collective}; see --list for others")
    devices, elements, milliseconds = (columns[name][used].astype(np.float64) for name in names)
    return CollectiveTable(devices, _ELEMENT_BYTES * elements, 1e-3 * milliseconds)


def joined(tables: Sequence[CollectiveTable]) -> CollectiveTable:
    """Rows of several tables, one after the other."""
    of = lambda name: np.concatenate([getattr(table, name) for table in tables])
    return CollectiveTable(of("devices"), of("message_bytes"), of("seconds"))


_TABLES = read_table(__package__, "collectives.toml")

#: "engine" or the library -> collective -> its algorithms.
KERNELS: dict[str, dict[Collective, list[Algorithm]]] = _TABLES["kernels"]

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
    algorithms: Sequence[Algorithm],
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

    fits: list[Fit] = []
    for scale in _SCALES:
        parameters = []
        for place, algorithm in enumerate(algorithms):
            launch, wait, efficiency = _TABLES["starts"][f"{algorithm}{place}"]
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
        fits.append(fit(predict, parameters, chosen, table.seconds[used], loss_scale=_LOSS_SCALE, max_evaluations=400))
    best = min(fits, key=lambda one: float(np.sum(np.sqrt(1.0 + (one.log_residuals / _LOSS_SCALE) ** 2))))
    return best, predicted_rows(predict, best.estimates, conditions)


def fitted_kernels(values: Mapping[str, Any], algorithms: Sequence[Algorithm]) -> tuple[CollectiveKernel, ...]:
    """Kernels of fitted numbers, "NAME_PLACE" -> value."""
    fields = ("launch_s", "efficiency", "hop_s", "peer_s", "bridge", "socket")
    return tuple(
        CollectiveKernel(
            **{name: values[f"{name}_{place}"] for name in fields if f"{name}_{place}" in values}, algorithm=algorithm
        )
        for place, algorithm in enumerate(algorithms)
    )


_FOLDER = Path(__file__).parents[2] / "hwmodels" / "catalog" / "links"


@dataclasses.dataclass(frozen=True)
class MeasuredLink:
    """GPUs of the catalog behind one link, the library's version on each, whether pairs share a path to the others, and whether
    the library's four share one to the other four."""

    gpus: dict[str, str]
    bridged: bool = False
    sockets: bool = False


#: Links that were measured.
LINKS = {name: MeasuredLink(**row) for name, row in _TABLES["links"].items()}

#: Records that are made.
_FITS = sum(len(CATALOG[next(iter(link.gpus))].versions) + len(KERNELS[NCCL]) for link in LINKS.values())


def refit_link(
    name: str, *, root: Path | None = None, advance: Callable[[str], None] = lambda note: None
) -> dict[str, dict[str, Any]]:
    """Engine or "nccl" -> collective -> record: fitted to all sizes, judged on every second size held out of other fits.

    Raises:
        KernelTableError: a table cannot be read.
    """
    records: dict[str, dict[str, Any]] = {}
    measured = LINKS[name]
    engines = list(dict.fromkeys(engine for gpu in measured.gpus for engine in CATALOG[gpu].versions))
    wanted: list[tuple[str, Collective]] = []
    for engine in (*engines, NCCL):
        kernels = KERNELS[NCCL if engine == NCCL else "engine"]
        for collective in COLLECTIVES:
            if collective in kernels:
                wanted.append((engine, collective))
    for engine, collective in wanted:
        tables = [_table_name(gpu, engine, version) for gpu, version in measured.gpus.items()]
        rows = joined([collective_table(table, collective, root=root) for table in tables])
        record = _record(name, engine, collective, rows)
        record["table"] = f"aiconfigurator-core {', '.join(map(str, tables))}"
        records.setdefault(engine, {})[collective] = record
        advance(f"{name} {engine} {collective}")
    return records


def _table_name(gpu: str, engine: str, library: str) -> TableName:
    system, versions = CATALOG[gpu].system, CATALOG[gpu].versions
    if engine == NCCL:
        return TableName(system, NCCL, library, "nccl")
    return TableName(system, engine, _TABLES["versions"].get(gpu, {}).get(engine, versions[engine]), "all_reduce")


def _record(name: str, engine: str, collective: Collective, rows: CollectiveTable) -> dict[str, Any]:
    algorithms = KERNELS[NCCL if engine == NCCL else "engine"][collective]
    document = tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    options = {
        "bandwidth_bytes_per_s": float(document["bandwidth_bytes_per_s"]["value"]),
        "algorithms": algorithms,
        "bridged": LINKS[name].bridged,
        "sockets": LINKS[name].sockets and engine == NCCL,
    }
    half = half_of_sizes(rows)
    (whole, all_s), (_, first_s), (_, second_s) = (
        fit_collective(rows, collective, train=train, **options) for train in (None, half, ~half)
    )
    held_out = np.where(half, second_s, first_s)
    error = lambda predicted, used=slice(None): dataclasses.asdict(relative_error(predicted[used], rows.seconds[used]))
    return {
        "status": "calibrated",
        "split": "all sizes; errors: every second size of the messages, each held out of a fit to the others",
        "rows": len(rows.seconds),
        "at_bound": list(whole.at_bound),
        "interval": interval_record(
            held_out, rows.seconds, half | ~half, [f"{s:.0f}" for s in rows.message_bytes], few_groups=True
        ),
        "errors": {"fitted": error(all_s), "held out": error(held_out)},
        "by_devices": {f"{n:.0f}": error(held_out, rows.devices == n) for n in np.unique(rows.devices)},
        "kernels": [
            {"algorithm": algorithm, "coefficients": _of_place(whole.estimates, place)}
            for place, algorithm in enumerate(algorithms)
        ],
    }


def _of_place(estimates: dict[str, float], place: int) -> dict[str, float]:
    end = f"_{place}"
    return {key.removesuffix(end): float(f"{value:.6g}") for key, value in estimates.items() if key.endswith(end)}


def _write_links(*, root: Path | None = None, advance: Callable[[str], None] = lambda note: None) -> None:
    """Fit every measured link and write its file, whose data sheet stays. Raises KernelTableError."""
    fitted = {name: refit_link(name, root=root, advance=advance) for name in LINKS}
    for name, measured in fitted.items():
        path = _FOLDER / f"{name}.toml"
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        write_text(path, tomli_w.dumps(document | {"measured": measured}))


def error_rows() -> list[dict[str, Any]]:
    """Link, engine, collective, rows, mean and largest held-out error, interval, coverage: of the files."""
    rows = []
    for name in LINKS:
        document = tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
        for engine, collectives in document.get("measured", {}).items():
            for collective, record in collectives.items():
                held, interval = record["errors"]["held out"], record["interval"]
                rows.append(
                    {
                        "link": name,
                        "engine": engine,
                        "collective": collective,
                        "rows": record["rows"],
                        "mean": held["mean"],
                        "largest": held["largest"],
                        "low": interval["low"],
                        "high": interval["high"],
                        "covered": float(np.mean(interval["covered"])),
                        "covered_left_out": interval["covered_left_out"],
                    }
                )
    return rows


def _error_line(row: dict[str, Any]) -> str:
    """One of `error_rows` in words."""
    return (
        f"{row['link']:9}{row['engine']:8}{row['collective']:15}{row['rows']:4} rows, held out {row['mean']:6.1%}, largest "
        f"{row['largest']:5.0%}; 90 % interval {row['low']:.2f} to {row['high']:.2f}, covers {row['covered']:.0%}, "
        f"each size left out {row['covered_left_out']:.0%}"
    )


def fit_collectives(*, root: Path | None = None, write: bool = True, path: Path | None = None) -> int:
    """Fit the collectives of all measured links into their files, and print their errors.

    Args:
        root: folder of the tables, not the installed package's.
        write: fit anew; else the files as they are.
        path: where the errors go as JSON.
    Returns:
        0.
    Raises:
        KernelTableError: a table cannot be read.
    """
    if write:
        with Reporter().bar("fits", _FITS) as bar:
            _write_links(root=root, advance=bar.advance)
    print("\n".join(map(_error_line, rows := error_rows())))
    if path:
        write_text(path, to_json({"schema_version": 1, "collectives": rows}))
    return 0
