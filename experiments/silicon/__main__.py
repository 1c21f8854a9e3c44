"""Calibrate GPU models to measured kernels: `python -m experiments.silicon [--gpu NAME ...] [--json FILE] [--out DIR]`.

Needs the tables (pip install aiconfigurator-core pyarrow) and about a minute per weight format.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console
from rich.markdown import Markdown

from experiments.silicon import expert_steps, format_steps, group_steps, mixture_steps
from experiments.silicon.collectives import fit_collectives
from experiments.silicon.refit import CATALOG, GEMM_FITS, Refit, catalog_entry, refit, refit_attention
from experiments.silicon.refit_experts import EXPERT_FITS, EXPERTS, ExpertRefit, ExpertSource, fit_sources
from experiments.silicon.steps import CELLS, SOURCE, compose, read_cells, write_cells
from experiments.silicon.steps_page import (
    PAGE,
    PEER_CELLS,
    PRICED,
    ask,
    page,
    priced_csv,
    read_peer,
    step_errors,
    write_peer,
)
from hwmodels.analysis.calibration.experts import expert_formats
from hwmodels.analysis.calibration.kernel_tables import KernelTableError, TableName, gemm_formats, list_tables
from hwmodels.analysis.calibration.report import figure
from hwmodels.catalog import architecture
from hwmodels.catalog.calibrated import calibrated_attention, calibrated_gpu
from hwmodels.catalog.calibrations import calibrated_engines, calibration_record
from hwmodels.compute.gpu import GpuGemm, gemm_time
from hwmodels.compute.gpu_attention import GpuAttention, decode_attention_time
from jaxspec.partial_files import to_json, write_text
from jaxspec.runs.progress import Reporter


def decode_step(
    unit: GpuGemm,
    attention: GpuAttention,
    *,
    batch: float,
    context_tokens: float = 1024.0,
    weight_bits: float = 16.0,
    name: str = "llama-3.1-8b",
) -> dict[str, Any]:
    """Seconds of one step: fused q, k, v; o; fused gate, up; down; head at 16 bits; attention.

    Args:
        unit, attention: single numbers.
        batch, context_tokens, weight_bits: of the layers' matrices; the head stays at 16 bits.
        name: an architecture of the catalog.
    """
    a = architecture(name)
    hidden, queries, keys = a.hidden_size, a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    shapes = (
        (hidden, queries + 2 * keys),
        (queries, hidden),
        (hidden, 2 * a.intermediate_size),
        (a.intermediate_size, hidden),
    )
    layer = sum(float(gemm_time(unit, batch, k, n, weight_bits=weight_bits)) for k, n in shapes)
    read = decode_attention_time(
        attention, batch=batch, context_tokens=context_tokens, num_kv_heads=a.num_kv_heads, head_dim=a.head_dim
    )
    parts = {
        "layers_s": a.num_layers * layer,
        "head_s": float(gemm_time(unit, batch, hidden, a.vocab_size)),
        "attention_s": a.num_layers * float(read),
    }
    return {"batch": batch, "weight_bits": weight_bits, **parts, "total_s": sum(parts.values())}


_EPILOG = """\
NAME is a GPU of the catalog (a100-sxm, b200-sxm, h100-sxm, h200-sxm, l40s, rtx-pro-6000), with /ENGINE behind it for one
engine (trtllm, vllm or sglang), or SYSTEM/ENGINE/VERSION as --list prints it, for any GPU in the tables, with /FORMAT behind it
for one weight format. Each format is fitted four times: to all shapes of weight matrices, to both halves of them (scored on the
other half), and without the largest; each format of routed experts to all networks, to both halves of them, and without those
of 128 experts; attention to all rows and to both halves.

  python -m experiments.silicon                               the GPUs of the catalog, and its files
  python -m experiments.silicon --experts                     routed experts alone; the rest of the files stays
  python -m experiments.silicon --attention                   attention alone; the rest of the files stays
  python -m experiments.silicon --collectives                 collectives of the catalog's links
  python -m experiments.silicon --steps                       whole steps beside composed ones: docs/pages/whole-steps.md
  python -m experiments.silicon --list                        every table
  python -m experiments.silicon --gpu gb200/vllm/0.24.0       another GPU; nothing is written but --json and --out
"""

_CATALOG_FOLDER = Path(__file__).parents[2] / "hwmodels" / "catalog" / "calibrated"


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What is fitted to one engine's tables: formats of products with the versions that they come from, formats of experts
    with engine and version."""

    gpu: str | None  # of the catalog
    system: str
    engine: str
    version: str
    products: dict[str, str]
    experts: dict[str, ExpertSource]
    attention: bool = True

    @property
    def name(self) -> str:
        """In results: the catalog's folder and file, or the tables' own name."""
        return f"{self.gpu}/{self.engine}" if self.gpu else f"{self.system}/{self.engine}/{self.version}"

    def table(self, kind: str, version: str | None = None) -> TableName:
        """Name of one of its tables."""
        return TableName(self.system, self.engine, version or self.version, kind)


def wanted(name: str, root: Path | None) -> list[Wanted]:
    """What a --gpu argument names. Raises KernelTableError."""
    gpu, _, engine = name.partition("/")
    if gpu in CATALOG and engine in ("", *CATALOG[gpu].versions):
        entry = CATALOG[gpu]
        return [
            Wanted(gpu, entry.system, one, version, entry.formats(one, root), EXPERTS[gpu].get(one, {}))
            for one, version in entry.versions.items()
            if one == (engine or one)
        ]
    parts = name.split("/")
    if len(parts) not in (3, 4):
        raise KernelTableError(
            f"--gpu {name} is neither of the catalog ({', '.join(CATALOG)}, with or without /ENGINE) nor "
            "SYSTEM/ENGINE/VERSION; see --list"
        )
    system, engine, version_name, *only = parts
    table = TableName(system, engine, version_name, "gemm")
    held = gemm_formats(table, root=root)
    if not held:
        raise KernelTableError(f"{table} holds no format that is modelled; choose another table")
    experts = _experts(system, engine, version_name, root)
    experts = {kind: where for kind, where in experts.items() if kind in (only or experts)}
    return [Wanted(None, system, engine, version_name, dict.fromkeys(only or held, version_name), experts)]


def _experts(system: str, engine: str, version_name: str, root: Path | None) -> dict[str, ExpertSource]:
    try:
        held = expert_formats(TableName(system, engine, version_name, "moe"), root=root)
    except KernelTableError as error:
        print(error, file=sys.stderr)
        held = ()
    return dict.fromkeys(held, ExpertSource(engine, version_name))


def products_of(one: Wanted, options: dict[str, Any]) -> list[Refit]:
    """Each format of products; those with too few shapes are named.

    Raises:
        KernelTableError: none can be fitted.
    """
    refits, reasons = [], []
    for kind, version_name in one.products.items():
        try:
            refits.append(refit(one.table("gemm", version_name), kind, **options))
        except KernelTableError as error:
            reasons.append(error)
    if one.products and not refits:
        raise reasons[0]
    for error in reasons:
        print(error, file=sys.stderr)
    return refits


def entry_of(
    one: Wanted, refits: list[Refit], experts: dict[str, ExpertRefit], options: dict[str, Any]
) -> dict[str, Any]:
    """An engine's whole file, with what stays of the catalog's where experts or attention alone are fitted."""
    records, attention = {kind: expert.record for kind, expert in experts.items()}, {}
    try:
        attention = refit_attention(one.system, one.engine, one.version, **options) if one.attention else {}
    except KernelTableError as error:
        print(error, file=sys.stderr)
    if refits:
        return catalog_entry(refits, records, attention)
    held = calibration_record(one.gpu, one.engine) if one.gpu else {}
    last = {part: held.pop(part) for part in ("attention", "prefill") if part in held} | attention
    return held | ({"experts": records} if records else {}) | last


def decode_checks(names: Iterable[str]) -> list[dict[str, Any]]:
    """Steps of Llama-3.1-8B with the catalog's files of these GPUs as they now are."""
    checks = []
    for name in names:
        for engine in calibrated_engines(name):
            unit, attention = calibrated_gpu(name, engine), calibrated_attention(name, engine)[16.0]
            for batch in (1.0, 5.0, 16.0):
                steps = {
                    bits: decode_step(unit, attention, batch=batch, weight_bits=bits) for bits in unit.weight_widths
                }
                speedup = {
                    f"speedup_{bits:g}_bits": steps[16.0]["total_s"] / step["total_s"]
                    for bits, step in steps.items()
                    if bits < 16
                }
                checks.append({"gpu": f"{name}, {engine}", **steps[16.0], **speedup})
    return checks


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Fit everything asked for; write the catalog's files where they are asked for."""
    started = time.perf_counter()
    work = [one for name in arguments.gpu or CATALOG for one in wanted(name, arguments.tables)]
    if arguments.experts:
        work = [dataclasses.replace(one, products={}, attention=False) for one in work]
        if bare := [one.name for one in work if not one.experts]:
            raise KernelTableError(f"nothing to fit: no table of experts for {', '.join(bare)}; see --list")
    if arguments.attention:
        work = [dataclasses.replace(one, products={}, experts={}) for one in work]
    console, entries = Console(width=120), {}
    options = {"multiprocessors": arguments.multiprocessors, "root": arguments.tables}
    fits = sum(GEMM_FITS * len(one.products) + EXPERT_FITS * len(one.experts) + 3 * one.attention for one in work)
    with Reporter().bar("fits", fits) as bar:
        options["advance"] = bar.advance
        for one in work:
            refits = products_of(one, options)
            experts = fit_sources(one.system, one.experts, options, own=(one.gpu, one.engine))
            entries[one.name] = entry_of(one, refits, experts, options)
            for fit in (*refits, *experts.values()):
                console.print(Markdown(fit.report.to_markdown()))
                if arguments.out:
                    drawn = figure(fit.rows.seconds, fit.predicted_s, fit.held_out, title=fit.report.title)
                    arguments.out.mkdir(parents=True, exist_ok=True)
                    drawn.savefig(
                        arguments.out / f"{fit.report.title.replace('/', '_').replace(' ', '_')}.png", dpi=150
                    )
            if one.gpu and not arguments.no_catalog:
                path = _CATALOG_FOLDER / one.gpu / f"{one.engine}.toml"
                path.parent.mkdir(exist_ok=True)
                write_text(path, tomli_w.dumps(entries[one.name]))
    written = [] if arguments.no_catalog else dict.fromkeys(one.gpu for one in work if one.gpu)
    return {
        "schema_version": 1,
        "gpus": entries,
        "decode": decode_checks(written),
        "timing_s": time.perf_counter() - started,
        "versions": {package: _version(package) for package in ("jax", "numpy", "scipy", "aiconfigurator-core")},
    }


def steps(arguments: argparse.Namespace) -> int:
    """Price every committed cell and write the page of whole steps."""
    parts = (group_steps, expert_steps, mixture_steps, format_steps)
    if arguments.compose:
        write_text(CELLS, f"# {SOURCE}\n{write_cells(compose(arguments.gpu or tuple(CATALOG)))}")
        for part in parts:
            write_text(part.CELLS, write_cells(part.compose()))
    cells = read_cells()
    if arguments.peers:
        write_text(PEER_CELLS, write_peer(ask(cells)))
    errors, seconds = step_errors(cells, read_peer())
    write_text(PRICED, priced_csv(cells, seconds))
    text = "\n".join([page(errors), *(part.page_section(part.read_cells()) for part in parts)])
    write_text(PAGE, text)
    Console(width=160).print(Markdown(text))
    if arguments.json:
        rows = [{**vars(one), "worst": vars(one.worst), "within": one.within} for one in errors]
        write_text(arguments.json, to_json({"schema_version": 1, "errors": rows}))
    return 0


def main() -> int:
    """Fit, show, write; exit code 2 where a table cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.silicon",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gpu", nargs="+", metavar="NAME", help="what to fit; those of the catalog unless given")
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument("--experts", action="store_true", help="fit routed experts alone")
    alone.add_argument("--attention", action="store_true", help="fit attention alone")
    parser.add_argument(
        "--steps", action="store_true", help="price the committed whole steps, write their page and stop"
    )
    parser.add_argument("--collectives", action="store_true", help="fit the collectives of links alone, and stop")
    parser.add_argument("--compose", action="store_true", help="with --steps: compose the cells anew")
    parser.add_argument("--peers", action="store_true", help="with --steps: ask GenZ anew (pip install genz-llm)")
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
            print("\n".join(f"{table.kind:11}{table}" for table in list_tables(root=arguments.tables)))
            return 0
        if arguments.collectives:
            return fit_collectives(root=arguments.tables, write=not arguments.no_catalog, path=arguments.json)
        if arguments.steps:
            return steps(arguments)
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
