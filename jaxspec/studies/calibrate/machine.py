"""From a table of measured times to a device: all parts fitted, rates made shares of a peak and a bandwidth."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from hwmodels import (
    Architecture,
    Device,
    MemoryTier,
    OperatorWork,
    step_cost,
    step_operators,
    uniform_weight_bits,
)
from hwmodels.compute.measured_host import Between, HostAttention, HostProducts, MeasuredHost, put_out
from hwmodels.compute.products import products_of
from hwmodels.network.operators.work import MATRIX_OPERATORS, OPERATORS
from jaxspec.errors import InputError
from jaxspec.studies.calibrate.fit_cycles import fit_cycles
from jaxspec.studies.calibrate.fit_products import ProductFit, fit_products
from jaxspec.studies.calibrate.fit_rest import ELEMENT_BYTES, fit_attention, fit_lookups, fit_sampling
from jaxspec.studies.calibrate.fit_steps import fit_steps, in_steps
from jaxspec.studies.calibrate.fitted import PartFit
from jaxspec.studies.calibrate.table import Row

__all__ = ["LEAST_PRODUCTS", "Machine", "check_layers", "check_products", "fit_machine"]

#: Products that the widest format needs at least: more than the form has numbers.
LEAST_PRODUCTS = 8

#: Products that each other format needs at least, likewise: the numbers of the cache come from the widest.
_LEAST_NARROWER = 4

#: Seconds of an element where nobody measured steps: next to nothing, as it must be something.
_NOTHING_S = 1e-15


@dataclasses.dataclass(frozen=True)
class Machine:
    """A device and the fits behind it.

    Attributes:
        device: with a `MeasuredHost`, without remarks and spreads.
        products: bits per weight -> the fit.
        parts: attention, lookup, sampling, steps, cycles: those that were measured.
        step_rows: numbers of the table's rows that are steps.
        step_s: predicted seconds of these by the whole device.
        missing: sentences on what was not measured.
    """

    device: Device
    products: dict[float, ProductFit]
    parts: dict[str, PartFit]
    step_rows: np.ndarray
    step_s: np.ndarray
    missing: tuple[str, ...]

    @property
    def fits(self) -> list[PartFit]:
        """All fits, products first, the widest format first."""
        return [found.fit for _, found in sorted(self.products.items(), reverse=True)] + list(self.parts.values())


def check_layers(rows: Sequence[Row], networks: Mapping[str, Architecture]) -> None:
    """Check that steps ran no more layers than their networks have. Raises InputError: one did."""
    for row in rows:
        if row.architecture and row.layers > (most := float(networks[row.architecture].num_layers)):
            raise InputError(
                f"a {row.part} of the measurements ran {row.layers:g} layers of {row.architecture}, which has {most:g}; "
                "correct column layers, or name the network that ran"
            )


def check_products(table: Sequence[Row]) -> None:
    """Every format has enough products to fit to. Raises InputError: otherwise."""
    different = {(row.weight_bits, row.rows, row.inner, row.outer, row.read) for row in table if row.part == "product"}
    counts = Counter(bits for bits, *_ in different)
    if not counts:
        raise InputError(
            f"no product came; at least {LEAST_PRODUCTS} of one format are needed, of several matrices and numbers of rows"
        )
    for bits, count in counts.items():
        least = LEAST_PRODUCTS if bits == max(counts) else _LEAST_NARROWER
        if count < least:
            raise InputError(
                f"products of {bits:g}-bit weights: {count} different ones came; at least {LEAST_PRODUCTS} of the widest "
                f"format and {_LEAST_NARROWER} of each other one are needed, of several matrices and numbers of rows: measure "
                "more, or leave this format out"
            )


def fit_machine(table: Sequence[Row], network: Callable[[str], Architecture], *, capacity_bytes: float) -> Machine:
    """Fit everything that the table has.

    Args:
        table: measured times.
        network: from a name of a step's row to its architecture.
        capacity_bytes: of the memory.
    Raises:
        InputError: see `check_products`.
    """
    check_products(table)
    products, overlap = fit_products(table)
    found = {"attention": fit_attention(table, overlap), "lookup": fit_lookups(table), "sampling": fit_sampling(table)}
    parts = {name: part for name, part in found.items() if part is not None}
    device = _device(table, products, parts, overlap, capacity_bytes)
    missing = [f"no {_WORDS[name]}: {_INSTEAD[name]}" for name, part in found.items() if part is None]
    places = np.array([i for i, row in enumerate(table) if row.part == "step"], np.int64)
    works = _works([table[i] for i in places], network)
    if len(places):
        bits = min(products, key=lambda bits: abs(bits - table[places[0]].weight_bits))
        sizes = products[bits].costs.weights
        steps = fit_steps(table, _step_conditions(device, works), sizes, places)
        if steps is not None:
            parts["steps"] = steps.part
            one = products[bits]
            products[bits] = dataclasses.replace(one, costs=in_steps(one.costs, steps.factors))
            device = _with(_device(table, products, parts, overlap, capacity_bytes), **steps.part.estimates)
    if "steps" not in parts:
        missing.append(f"no {_WORDS['steps']}: {_INSTEAD['steps']}")
    step_s = _priced(device, works) if len(places) else np.zeros(0)
    cycles = fit_cycles(table, device, lambda row: _network(row, network))
    if cycles is not None:
        parts["cycles"] = cycles
    return Machine(device, products, parts, places, step_s, tuple(missing))


_WORDS = {"attention": "attention", "lookup": "look-ups", "sampling": "sampling", "steps": "whole steps"}
_INSTEAD = {
    "attention": "it runs at the rates of the products",
    "lookup": "they take no time",
    "sampling": "choosing tokens takes no time",
    "steps": "norms, loops and all else between products take no time, so that steps are priced too fast",
}


def _device(
    table: Sequence[Row],
    products: dict[float, ProductFit],
    parts: dict[str, PartFit],
    overlap: float,
    capacity_bytes: float,
) -> Device:
    forms = {bits: found.fit.estimates for bits, found in sorted(products.items())}
    widest = forms[max(forms)]
    if "attention" in parts:
        attention = dict(parts["attention"].estimates)
    else:
        attention = {
            "launch_s": 2 * widest["launch_s"],
            "pair_s": 0.0,
            "slot_s": 0.0,
            "score_s": 0.0,
            "flops_per_s": widest["flops_per_s"],
            "bytes_per_s": widest["near_bytes_per_s"],
        }
    streams = [row.read_bytes / row.seconds for row in table if row.part == "stream"]
    largest = max((row for row in table if row.part == "stream"), key=lambda row: row.read_bytes, default=None)
    # So fast that every share stays below 1, also where a few rows beat the form.
    fastest = [
        form["near_bytes_per_s"] / min(1.0, min(min(row) for row in products[bits].costs.factors))
        for bits, form in forms.items()
    ]
    bandwidth = max([*fastest, attention["bytes_per_s"], *streams])
    peak = max([*(form["flops_per_s"] for form in forms.values()), attention["flops_per_s"]])
    far = widest["near_bytes_per_s"] * widest["far_share"] if largest is None else largest.read_bytes / largest.seconds
    sampling = parts["sampling"].estimates if "sampling" in parts else {"sample_s": 0.0, "logit_s": 0.0}
    unit = MeasuredHost(
        formats=tuple(
            HostProducts(
                launch_s=form["launch_s"],
                compute_efficiency=form["flops_per_s"] / peak,
                near_efficiency=form["near_bytes_per_s"] / bandwidth,
                far_efficiency=form["near_bytes_per_s"] * form["far_share"] / bandwidth,
            )
            for form in forms.values()
        ),
        cache_bytes=widest["cache_bytes"],
        cache_sharpness=widest["cache_sharpness"],
        attention=HostAttention(
            launch_s=attention["launch_s"],
            pair_s=attention["pair_s"],
            slot_s=attention["slot_s"],
            score_s=attention["score_s"],
            compute_efficiency=attention["flops_per_s"] / peak,
            memory_efficiency=attention["bytes_per_s"] / bandwidth,
            element_bytes=ELEMENT_BYTES,
        ),
        between=Between(
            turn_s=0.0,
            row_s=parts["lookup"].estimates["row_s"] if "lookup" in parts else 0.0,
            norm_s=0.0,
            element_s=_NOTHING_S,
            sample_s=sampling["sample_s"],
            logit_s=sampling["logit_s"],
        ),
        weight_widths=tuple(forms),
        row_costs=tuple(found.costs for _, found in sorted(products.items())),
        overlap_temperature=overlap,
    )
    return Device(
        peak_flops_per_s=peak,
        compute_efficiency=1.0,
        memory=MemoryTier(
            bandwidth_bytes_per_s=bandwidth, efficiency=min(1.0, far / bandwidth), capacity_bytes=capacity_bytes
        ),
        operator_latency_s=widest["launch_s"],
        matrix_unit=unit,
    )


def _with(device: Device, **numbers: float) -> Device:
    between = dataclasses.replace(device.matrix_unit.between, **numbers)
    return dataclasses.replace(device, matrix_unit=dataclasses.replace(device.matrix_unit, between=between))


def _network(row: Row, network: Callable[[str], Architecture]) -> Architecture:
    """What of a network ran."""
    changed = {"num_layers": row.layers, "vocab_size": row.vocab_size}
    known: dict[str, Any] = {name: value for name, value in changed.items() if not math.isnan(value)}
    return dataclasses.replace(network(row.architecture), **known)


def _works(rows: Sequence[Row], network: Callable[[str], Architecture]) -> Any:
    """The work of each step, "step operator"."""
    if not rows:
        return None
    works: list[OperatorWork] = []
    for row in rows:
        works.append(
            step_operators(
                _network(row, network),
                tokens=row.tokens,
                batch=row.batch,
                context_tokens=row.context_tokens,
                weight_bits=uniform_weight_bits(row.weight_bits),
                kv_bits=8 * ELEMENT_BYTES,
            )
        )
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf, np.float32) for leaf in leaves]), *works)


def _step_conditions(device: Device, works: OperatorWork) -> dict[str, np.ndarray]:
    """What `fit_steps` asks for, "step"."""
    shapes, inside = products_of(works), np.array([name in MATRIX_OPERATORS for name in OPERATORS])
    known_s = _priced(device, works)
    count = np.where(inside, shapes.products * works.launches, 0.0)
    size = np.log(np.maximum(shapes.k * shapes.n, 1.0))
    return {
        "known_s": known_s,
        # All row costs doubled add the products once more.
        "products_s": _priced(_slower(device), works) - known_s,
        "norms": np.asarray(works.launches)[:, OPERATORS.index("norm")].astype(np.float64),
        "elements": np.asarray(put_out(works), np.float64),
        "rows": np.asarray(shapes.m)[:, OPERATORS.index("qkv")].astype(np.float64),
        "weights": np.exp(np.sum(count * size, axis=1) / np.sum(count, axis=1)).astype(np.float64),
    }


def _slower(device: Device) -> Device:
    unit = device.matrix_unit
    costs = [
        dataclasses.replace(one, factors=tuple(tuple(2.0 * factor for factor in row) for row in one.factors))
        for one in unit.row_costs
    ]
    return dataclasses.replace(device, matrix_unit=dataclasses.replace(unit, row_costs=tuple(costs)))


@jax.jit
def _total(device: Device, works: OperatorWork) -> Any:
    return jax.vmap(lambda work: step_cost(device, work).total_s)(works)


def _priced(device: Device, works: Any) -> np.ndarray:
    return np.asarray(_total(device, works), np.float64)
