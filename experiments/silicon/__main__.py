"""Calibrate GPU models to measured kernels: `python -m experiments.silicon [--gpu NAME ...] [--json FILE] [--out DIR]`.

Needs the tables (pip install aiconfigurator-core pyarrow) and about a minute per weight format.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console
from rich.markdown import Markdown

from experiments.silicon.decode import RTX_4090, decode_step
from experiments.silicon.refit import CATALOG, Refit, attention_record, catalog_entry, refit
from experiments.silicon.refit_experts import EXPERT_FITS, EXPERTS, ExpertRefit, refit_experts
from hwmodels.analysis.calibration.expert_tables import expert_formats
from hwmodels.analysis.calibration.kernel_tables import KernelTableError, TableName, gemm_formats, list_tables
from hwmodels.analysis.calibration.report import figure
from hwmodels.catalog.calibrated import (
    calibrated_attention,
    calibrated_gpu,
    calibrated_names,
    calibration_record,
    with_data_sheet,
)
from jaxspec.files import to_json, write_text
from jaxspec.runs.progress import Reporter

_EPILOG = """\
NAME is a file of the catalog (a100-sxm, h100-sxm, h200-sxm, l40s) or SYSTEM/ENGINE/VERSION as --list prints it, for any GPU in
the tables, with /FORMAT behind it for one weight format (bfloat16, int8_wo or int4_wo). Each format is fitted six times: to all
shapes of weight matrices, to both halves of two splits by shape (scored on the other half), and without the largest. Each
format of routed experts is fitted four times: to all networks, to both halves of them, and without those of 128 experts.

  python -m experiments.silicon                               the four GPUs of the catalog, and its files
  python -m experiments.silicon --experts                     routed experts alone; the rest of the files stays
  python -m experiments.silicon --list                        every table
  python -m experiments.silicon --gpu b200_sxm/vllm/0.24.0    another GPU; nothing is written but --json and --out
"""

_FITS = 6
_CATALOG_FOLDER = Path(__file__).parents[2] / "hwmodels" / "catalog" / "calibrated"


def table_name(where: str, kind: str) -> TableName:
    """SYSTEM/ENGINE/VERSION as a table's name."""
    system, engine, version_name = where.split("/")
    return TableName(system, engine, version_name, kind)


def wanted(name: str, root: Path | None) -> list[tuple[TableName, str]]:
    """Tables and formats that a --gpu argument names. Raises KernelTableError."""
    if name in CATALOG:
        system, _, formats = CATALOG[name]
        return [(table_name(f"{system}/{where}", "gemm"), kind) for kind, where in formats.items()]
    parts = name.split("/")
    if len(parts) not in (3, 4):
        raise KernelTableError(
            f"--gpu {name} is neither a file of the catalog ({', '.join(CATALOG)}) nor SYSTEM/ENGINE/VERSION; see --list"
        )
    table = table_name("/".join(parts[:3]), "gemm")
    held = gemm_formats(table, root=root)
    if not held:
        raise KernelTableError(f"{table} holds no format with 16-bit activations; choose another table")
    return [(table, kind) for kind in (parts[3:] or held)]


def wanted_experts(name: str, root: Path | None) -> list[tuple[TableName, str]]:
    """Tables and formats of experts that a --gpu argument names; none where nobody measured them."""
    if name in CATALOG:
        system = CATALOG[name][0]
        return [(table_name(f"{system}/{where}", "moe"), kind) for kind, where in EXPERTS.get(name, {}).items()]
    parts = name.split("/")
    table = table_name("/".join(parts[:3]), "moe")
    try:
        held = expert_formats(table, root=root)
    except KernelTableError as error:
        print(error, file=sys.stderr)
        return []
    return [(table, kind) for kind in held if kind in (parts[3:] or held)]


def attention_of(name: str, refits: list[Refit], arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Attention of the same GPU, where it was measured."""
    where = CATALOG[name][1] if name in CATALOG else f"{refits[0].table.engine}/{refits[0].table.version}"
    table = table_name(f"{refits[0].table.system}/{where}", "attention")
    try:
        return attention_record(table, multiprocessors=arguments.multiprocessors, root=arguments.tables)
    except KernelTableError as error:
        print(error, file=sys.stderr)
        return None


def entry_of(
    name: str, refits: list[Refit], experts: dict[str, ExpertRefit], arguments: argparse.Namespace
) -> dict[str, Any]:
    """A GPU's whole file, with what stays of the catalog's where experts alone are fitted."""
    records = {kind: one.record for kind, one in experts.items()}
    if refits:
        title = f"{refits[0].table.system}, calibrated to kernel tables"
        return catalog_entry(title, refits, attention_of(name, refits, arguments), records)
    held = calibration_record(name) if name in CATALOG else {}
    attention = {"attention": held.pop("attention")} if "attention" in held else {}
    return {kind: part for kind, part in held.items() if kind != "experts"} | {"experts": records} | attention


def decode_checks() -> list[dict[str, Any]]:
    """Steps of Llama-3.1-8B from the catalog as it now is."""
    checks = []
    if "a100-sxm" in calibrated_names():
        unit, attention = calibrated_gpu("a100-sxm"), calibrated_attention("a100-sxm")
        for batch in (1.0, 5.0, 16.0):
            steps = {bits: decode_step(unit, attention, batch=batch, weight_bits=bits) for bits in (16.0, 8.0, 4.0)}
            speedup = {f"speedup_{bits:g}_bits": steps[16.0]["total_s"] / steps[bits]["total_s"] for bits in (8.0, 4.0)}
            checks.append({"gpu": "a100-sxm", **steps[16.0], **speedup})
    if "l40s" in calibrated_names():
        unit = with_data_sheet(calibrated_gpu("l40s"), **RTX_4090)
        bandwidth = RTX_4090["bandwidth_bytes_per_s"]
        attention = dataclasses.replace(calibrated_attention("l40s"), bandwidth_bytes_per_s=bandwidth)
        checks.append({"gpu": "rtx-4090 from l40s", **decode_step(unit, attention, batch=1.0)})
    return checks


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Fit everything asked for; write the catalog's files where they are asked for."""
    started, names = time.perf_counter(), arguments.gpu or list(CATALOG)
    work = {name: [] if arguments.experts else wanted(name, arguments.tables) for name in names}
    routed = {name: wanted_experts(name, arguments.tables) for name in names}
    if arguments.experts and (bare := [name for name in names if not routed[name]]):
        raise KernelTableError(f"nothing to fit: no table of experts for {', '.join(bare)}; see --list")
    console, entries = Console(width=120), {}
    options = {"multiprocessors": arguments.multiprocessors, "root": arguments.tables}
    fits = _FITS * sum(map(len, work.values())) + EXPERT_FITS * sum(map(len, routed.values()))
    with Reporter().bar("fits", fits) as bar:
        for name, tables in work.items():
            refits = [refit(table, kind, **options, advance=bar.advance) for table, kind in tables]
            experts = {kind: refit_experts(table, kind, **options, advance=bar.advance) for table, kind in routed[name]}
            entries[name] = entry_of(name, refits, experts, arguments)
            for one in (*refits, *experts.values()):
                console.print(Markdown(one.report.to_markdown()))
                if arguments.out:
                    drawn = figure(one.rows.seconds, one.predicted_s, one.held_out, title=one.report.title)
                    arguments.out.mkdir(parents=True, exist_ok=True)
                    drawn.savefig(
                        arguments.out / f"{one.report.title.replace('/', '_').replace(' ', '_')}.png", dpi=150
                    )
            if name in CATALOG and not arguments.no_catalog:
                write_text(_CATALOG_FOLDER / f"{name}.toml", tomli_w.dumps(entries[name]))
    return {
        "schema_version": 1,
        "gpus": entries,
        "decode": decode_checks(),
        "timing_s": time.perf_counter() - started,
        "versions": {package: _version(package) for package in ("jax", "numpy", "scipy", "aiconfigurator-core")},
    }


def main() -> int:
    """Fit, show, write; exit code 2 where a table cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.silicon",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gpu", nargs="+", metavar="NAME", help="what to fit; the catalog's four GPUs unless given")
    parser.add_argument("--experts", action="store_true", help="fit routed experts alone")
    parser.add_argument("--list", action="store_true", help="print every table and stop")
    parser.add_argument("--multiprocessors", type=float, metavar="N", help="of a GPU whose number is not known here")
    parser.add_argument(
        "--tables", type=Path, metavar="DIR", help="folder with the tables, not the installed package's"
    )
    parser.add_argument("--no-catalog", action="store_true", help="leave the catalog's files as they are")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for plots of predicted against measured times")
    arguments = parser.parse_args()
    try:
        if arguments.list:
            print("\n".join(f"{table.kind:10}{table}" for table in list_tables(root=arguments.tables)))
            return 0
        result = run(arguments)
    except KernelTableError as error:
        print(error, file=sys.stderr)
        return 2
    for check in result["decode"]:
        more = "".join(f", {key.replace('_', ' ')} {value:.2f}" for key, value in check.items() if "speedup" in key)
        print(f"Llama-3.1-8B on {check['gpu']}, batch {check['batch']:g}: {1e3 * check['total_s']:.2f} ms{more}")
    if arguments.json:
        write_text(arguments.json, to_json(result))
    return 0


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    sys.exit(main())
