"""Fit the collectives of each measured link, and write them into its file: `python -m experiments.silicon --collectives`."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from experiments.silicon.refit import CATALOG
from hwmodels.analysis.calibration.collective_tables import NCCL, CollectiveTable, collective_table, joined
from hwmodels.analysis.calibration.collectives import KERNELS, fit_collective, half_of_sizes
from hwmodels.analysis.calibration.intervals import interval_record
from hwmodels.analysis.calibration.kernel_tables import TableName
from hwmodels.analysis.calibration.report import relative_error
from hwmodels.parallel.collectives import COLLECTIVES, Collective
from jaxspec.files import to_json, write_text
from jaxspec.runs.progress import Reporter

__all__ = ["LINKS", "MeasuredLink", "error_rows", "fit_collectives", "refit_link"]

_FOLDER = Path(__file__).parents[2] / "hwmodels" / "catalog" / "links"


@dataclasses.dataclass(frozen=True)
class MeasuredLink:
    """GPUs of the catalog behind one link, the library's version on each, whether pairs share a path to the others, and whether
    the library's four share one to the other four."""

    gpus: dict[str, str]
    bridged: bool = False
    sockets: bool = False


#: Links that were measured.
LINKS = {
    "nvlink3": MeasuredLink({"a100-sxm": "2.27.3"}),
    "nvlink4": MeasuredLink({"h100-sxm": "2.29.2", "h200-sxm": "2.29.2"}),
    "nvlink5": MeasuredLink({"b200-sxm": "2.29.2"}),
    "pcie4": MeasuredLink({"l40s": "2.27.3"}, bridged=True, sockets=True),
    "pcie5": MeasuredLink({"rtx-pro-6000": "2.29.2"}, bridged=True),
}

#: Versions of an engine's own all-reduce where they are not those of its other kernels.
_VERSIONS = {("l40s", "vllm"): "0.22.0"}

#: Records that are made.
_FITS = sum(len(CATALOG[next(iter(link.gpus))].versions) + len(KERNELS[NCCL]) for link in LINKS.values())


def refit_link(
    name: str, *, root: Path | None = None, advance: Callable[[str], None] = lambda note: None
) -> dict[str, dict[str, Any]]:
    """Engine or "nccl" -> collective -> record: fitted to all sizes, judged on every second size held out of other fits.

    Raises:
        KernelTableError: a table cannot be read.
    """
    found: dict[str, dict[str, Any]] = {}
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
        found.setdefault(engine, {})[collective] = record
        advance(f"{name} {engine} {collective}")
    return found


def _table_name(gpu: str, engine: str, library: str) -> TableName:
    system, versions = CATALOG[gpu].system, CATALOG[gpu].versions
    if engine == NCCL:
        return TableName(system, NCCL, library, "nccl")
    return TableName(system, engine, _VERSIONS.get((gpu, engine), versions[engine]), "all_reduce")


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
    found = []
    for name in LINKS:
        document = tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
        for engine, collectives in document.get("measured", {}).items():
            for collective, record in collectives.items():
                held, interval = record["errors"]["held out"], record["interval"]
                found.append(
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
    return found


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
