"""`jaxspec sweep`: every combination of the axes through one compiled program, to Parquet."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import hwmodels
from hwmodels.analysis.design_point import DesignPoint, design_point
from hwmodels.analysis.sensitivity import leaf_names
from hwmodels.speculation.pool import fitting_pool
from jaxspec.compress.footprint import uniform
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.partial_files import whole_file
from jaxspec.report.assumptions import architecture_data, device_facts
from jaxspec.report.save import save_figure
from jaxspec.results.network_results import PricedNumber
from jaxspec.runs.carrying_out import carry_out
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.progress import Reporter
from jaxspec.settings import CommonConfig, build_config, expect
from jaxspec.studies.expert_pricing import placed, resolve_experts, with_expert_bits
from jaxspec.studies.kernel_notes import kernel_notes
from jaxspec.studies.measured.pricing import resolve_pricing
from jaxspec.studies.sweep.axes import axis_values, check_numbers, number_rules
from jaxspec.studies.sweep.config import SweepConfig
from jaxspec.studies.sweep.figures import pareto_figure
from jaxspec.studies.sweep.pareto import ParetoFront
from jaxspec.studies.sweep.result import FrontAxes, ParetoPoints, SweepResult

__all__ = ["COLUMNS", "evaluate_points", "read_sweep", "sweep"]

#: Points of one call of the compiled program: large enough to fill the cores, small enough for their caches.
CHUNK = 32_768

#: Result columns, in this order, behind the columns of the axes.
COLUMNS = (*(field.name for field in dataclasses.fields(DesignPoint)), "fits")

#: Among them, sums of the device's own data.
_OF_THE_DEVICE = ("capacity_bytes", "area_m2")


def sweep(
    config: SweepConfig,
    *,
    out: str | Path | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
) -> SweepResult:
    """Evaluate a sweep into its run directory: sweep.parquet, pareto.png, result.json. A finished one is reprinted.

    Returns:
        what result.json holds: numbers of points, the best ones, the Pareto front.
    Raises:
        InputError: an unknown name, or a directory that belongs to another sweep.
    """

    planned = cache(lambda: _plan(config))

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], dict[str, Any]]:
        return lambda: _run(config, planned(), directory.path, directory.inputs, reporter).plain()

    expect(SweepConfig, config)
    found, directory = carry_out(
        "sweep",
        config,
        prepare,
        check=planned,
        out=out,
        force=force,
        reporter=reporter,
        contents=("sweep.parquet",),
        resumes=False,
    )
    read_sweep(directory.path)  # a finished one may be damaged since
    return SweepResult.from_plain(found)


def read_sweep(path: str | Path) -> dict[str, np.ndarray]:
    """Columns of a sweep by name.

    Args:
        path: the Parquet file, or the run directory that holds it.
    Raises:
        InputError: no such file, or none of ours.
    """
    path = Path(path)
    path = path / "sweep.parquet" if path.is_dir() else path
    try:
        table = pq.read_table(path)
    except (OSError, ValueError) as error:  # Arrow's own are both
        raise InputError(
            f"sweep {str(path)!r} cannot be read: {error}; give a run directory or its .parquet"
        ) from error
    return {name: table.column(name).to_numpy() for name in table.column_names}


@dataclasses.dataclass(frozen=True)
class _Plan:
    """A sweep whose names and numbers are known to be right."""

    axes: dict[str, np.ndarray]
    pairs: list[tuple[str, str]]
    bases: list[dict[str, Any]]
    front: ParetoFront


def _plan(config: SweepConfig) -> _Plan:
    axes = {name: axis_values(config, name) for name in config.axes}
    pairs = [(shape, device) for shape in config.architecture for device in config.device]
    bases = [_base(config, shape, device) for shape, device in pairs]
    front = ParetoFront(**vars(config.pareto))
    front.check_columns((*axes, *COLUMNS))
    return _Plan(axes, pairs, bases, front)


def _run(config: SweepConfig, plan: _Plan, folder: Path, inputs: dict[str, str], reporter: Reporter) -> SweepResult:
    axes, pairs, bases, front = plan.axes, plan.pairs, plan.bases, plan.front
    per_pair = int(np.prod([len(values) for values in axes.values()]))
    total = 0
    with whole_file(folder / "sweep.parquet") as partial:
        schema = _schema(config, tuple(axes))
        with (
            pq.ParquetWriter(partial, schema, compression="zstd") as writer,
            reporter.bar("design points", -(-per_pair // CHUNK) * len(pairs)) as bar,
        ):
            for (shape, device), base in zip(pairs, bases, strict=True):
                names = {"architecture": shape, "device": device}
                for chunk in _chunks(base, axes, per_pair, config.max_draft_length):
                    count = len(next(iter(chunk.values())))
                    columns = {name: np.full(count, value) for name, value in names.items()} | chunk
                    writer.write_table(pa.table(columns, schema=schema))
                    front.add(columns)
                    total += count
                    bar.advance(f"{total:,}")
    figure = pareto_figure(front)
    assert figure is not None
    save_figure(figure, folder / "figures" / "pareto.png")
    return SweepResult(
        points=total,
        points_that_fit=front.fitting,
        architecture_data={
            shape: _priced(config, "architecture", architecture_data(shape, base["architecture"]))
            for (shape, _), base in zip(pairs, bases, strict=True)
        },
        device_data={
            device: _priced(config, "device", device_facts(device, config)["device_data"]) for device in config.device
        },
        columns=list(schema.names),
        pareto=ParetoPoints(axes=FrontAxes(**front.axes), points=front.rows()),
        best=front.best,
        status={"axes": "input", **dict.fromkeys(_OF_THE_DEVICE, "input"), "everything else": "predicted"},
        notes=_notes(plan),
        directory=str(folder),
        inputs=inputs,
    )


def _priced(config: SweepConfig, part: str, data: dict[str, dict[str, Any]]) -> dict[str, PricedNumber]:
    """Numbers of a part of the design points, those of [set] in place of its own."""
    own = {
        name.removeprefix(f"{part}."): {"value": value, "source": "[set]", "status": "input"}
        for name, value in config.set.items()
        if name.startswith(f"{part}.")
    }
    return {name: PricedNumber(**number) for name, number in (data | own).items()}


def _notes(plan: _Plan) -> list[str]:
    """What a reader should know of the devices' kernels at the widths that the axes take."""
    notes = []
    for (_, device), base in zip(plan.pairs, plan.bases, strict=True):
        bits = {name: plan.axes.get(f"footprint.{name}", value) for name, value in base["footprint"].items()}
        found = kernel_notes(base["device"], [_footprint(bits)])
        notes += [f"{device}: {note}" for note in found["notes"]]
    return list(dict.fromkeys(notes))


def _common(config: SweepConfig, architecture: str) -> CommonConfig:
    given = {"architecture": architecture, "engine": config.engine, "weight_format": config.weight_format}
    return build_config(CommonConfig, {name: value for name, value in given.items() if value is not None})


def _base(config: SweepConfig, architecture: str, device: str) -> dict[str, Any]:
    """The tree whose leaves axes are named by, at its values before any axis changes them."""
    pricing = resolve_pricing(_common(config, architecture), device, None)
    pricing = placed(pricing, config, device)
    experts = resolve_experts(config, pricing.architecture, architecture)
    if experts.pool_fits and "draft.experts" in {*config.axes, *config.set}:
        raise InputError("draft_experts is 0 and draft.experts is an axis or set; leave one of them out")
    check_numbers(config, number_rules(pricing.architecture, pricing.device), device)
    scheme = find_scheme(config.scheme)
    read = scheme.expected_footprint(knob_defaults(scheme))
    base = {
        "acceptance": {"alpha_token": 0.8},
        "architecture": pricing.architecture,
        "device": pricing.device,
        "draft": {} if experts.pool_fits else {"experts": experts.pool},
        "footprint": {
            "draft_kv_bits": float(read.draft_kv_bits),
            "draft_weight_bits": float(read.draft_weight_bits["q"]),
            "target_kv_bits": float(read.target_kv_bits),
            "target_weight_bits": float(read.target_weight_bits["q"]),
            "expert_bits": experts.bits,
        },
        "routing": experts.routing,
        "workload": pricing.workload,
    }
    leaves, treedef = jax.tree.flatten(base)
    return treedef.unflatten([config.set.get(name, leaf) for name, leaf in zip(leaf_names(base), leaves, strict=True)])


def _chunks(
    base: dict[str, Any], axes: dict[str, np.ndarray], points: int, max_draft_length: int
) -> Iterator[dict[str, np.ndarray]]:
    """Columns of axes and results, chunk by chunk; every call has the same shape, so that results do not depend on it."""
    shape = tuple(len(values) for values in axes.values())
    for start in range(0, points, CHUNK):
        count = min(CHUNK, points - start)
        # The last chunk repeats its last point.
        places = np.unravel_index(np.minimum(start + np.arange(CHUNK), points - 1), shape)
        varied = {name: values[place] for (name, values), place in zip(axes.items(), places, strict=True)}
        found = evaluate_points(base, varied, max_draft_length=max_draft_length)
        columns = {name: values[:count] for name, values in varied.items()}
        yield columns | {name: values[:count] for name, values in found.items()}


def evaluate_points(
    base: dict[str, Any], varied: dict[str, np.ndarray], *, max_draft_length: int
) -> dict[str, np.ndarray]:
    """Results of design points that differ from `base` in some leaves.

    Args:
        base: tree of single numbers: acceptance, architecture, device, draft, footprint, routing, workload. Without
            draft.experts its pool is as large as the first memory has room for.
        varied: dotted name of a leaf -> "point".
        max_draft_length: static.
    Returns:
        name of `COLUMNS` -> "point", NaN where the device does not say (energy).
    """
    leaves, treedef = jax.tree.flatten(base)
    names = leaf_names(base)
    axes = tuple(0 if name in varied else None for name in names)
    values = tuple(jnp.asarray(varied.get(name, leaf), jnp.float32) for name, leaf in zip(names, leaves, strict=True))
    found = jax.device_get(_evaluate(values, treedef=treedef, axes=axes, max_draft_length=max_draft_length))
    count = len(next(iter(varied.values())))
    columns = {name: getattr(found, name) for name in COLUMNS if name != "fits"}
    columns["fits"] = found.held_bytes <= found.capacity_bytes
    columns = {name: columns[name] for name in COLUMNS}
    return {
        name: np.full(count, np.nan, np.float32) if column is None else np.broadcast_to(column, count)
        for name, column in columns.items()
    }


def _footprint(bits: dict[str, Any]) -> hwmodels.Footprint:
    """The footprint with these widths for all matrices of the layers, but for experts with a width of their own."""
    found = uniform(
        bits["draft_weight_bits"], bits["target_weight_bits"], bits["draft_kv_bits"], bits["target_kv_bits"]
    )
    return with_expert_bits(found, bits.get("expert_bits"))


def _one(tree: dict[str, Any], max_draft_length: int) -> DesignPoint:
    device, architecture = tree["device"], tree["architecture"]
    parts = {"workload": tree["workload"], "footprint": _footprint(tree["footprint"]), "routing": tree["routing"]}
    pool = tree["draft"]["experts"] if tree["draft"] else fitting_pool(device, architecture, **parts)
    return design_point(
        device,
        architecture,
        **parts,
        draft_cost=hwmodels.DraftCost(pool_experts=pool),
        acceptance=hwmodels.Acceptance(jnp.full(max_draft_length, tree["acceptance"]["alpha_token"])),
    )


@jax.jit(static_argnames=("treedef", "axes", "max_draft_length"))
def _evaluate(values: tuple[jax.Array, ...], *, treedef: Any, axes: tuple[int | None, ...], max_draft_length: int):
    return jax.vmap(lambda values: _one(treedef.unflatten(values), max_draft_length), in_axes=(axes,))(values)


def _schema(config: SweepConfig, axes: tuple[str, ...]) -> pa.Schema:
    fields = [pa.field(name, pa.string()) for name in ("architecture", "device")]
    fields += [pa.field(name, pa.float64()) for name in axes]
    kinds = {"draft_length": pa.int32(), "fits": pa.bool_()}
    fields += [pa.field(name, kinds.get(name, pa.float32())) for name in COLUMNS]
    given = {"architecture", "device", *axes, *_OF_THE_DEVICE}
    statuses = {f"status:{field.name}": "input" if field.name in given else "predicted" for field in fields}
    return pa.schema(fields, metadata={"schema_version": "1", "scheme": config.scheme} | statuses)
