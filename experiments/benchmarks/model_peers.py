"""Decode steps beside GenZ, products on a systolic array beside SCALE-Sim.

    python -m experiments.benchmarks model_peers

GenZ (genz-llm) is asked for the time of the same step, SCALE-Sim (scalesim) for the cycles of one product; each is called by
its leanest functions, and its answer is compared with ours first. LLM-Viewer is on no package index, and so not among them.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hwmodels
from experiments.benchmarks.hardware import CHUNK, REPEATS, Point, decode_cost, draw_points, measure, measured_row, told
from experiments.benchmarks.harness import median_s
from experiments.silicon.steps_page import genz_step
from hwmodels import catalog
from hwmodels.compute.systolic import array as systolic_array
from hwmodels.compute.systolic.array import OnChipBuffer, SystolicArray


def model_peers(chunk: int = CHUNK, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """Decode steps beside GenZ, products on a systolic array beside SCALE-Sim."""
    rows = []
    for compare in (beside_genz, beside_scale_sim):
        try:
            rows += compare(chunk, repeats)
        except ImportError as error:
            rows.append({"name": "model_peers", "failed": f"{compare.__name__}: not installed ({error.name})"})
    return rows


def beside_genz(chunk: int = CHUNK, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """Times of decode steps of Llama-3.1-8B at batch 1, our points one at a time and in chunks.

    Raises:
        ImportError: genz-llm is not installed.
        AssertionError: the two disagree on the step at the data sheet's rates.
    """
    network, context = "llama-3.1-8b", 1024.0
    device = catalog.device("rtx-4090")
    memory = dataclasses.replace(device.memory, efficiency=1.0)
    sheet = dataclasses.replace(device, compute_efficiency=1.0, operator_latency_s=0.0, memory=memory)
    peer = genz_step(sheet, catalog.architecture(network), phase="decode", batch=1, tokens=int(context))
    point = Point(
        sheet,
        catalog.architecture(network),
        hwmodels.Workload(batch=1.0, context_tokens=context),
        hwmodels.uniform_footprint(16.0),
    )
    ours, theirs = float(decode_cost(point)[0]), peer()
    assert abs(ours / theirs - 1) < 0.01, f"ours takes {ours:.4g} s, GenZ says {theirs:.4g} s"
    peer_rate = 1 / median_s(peer, repeats=min(repeats, 15))
    rows = []
    for size in (1, chunk):
        chunks = [draw_points(size, device=sheet, seed=s, networks=[network], batch=(1, 1)) for s in range(3)]
        rate = measure(lambda one: decode_cost(one)[0], chunks, repeats=repeats)
        workload = (
            f"time of a decode step of {network}, batch 1, within {abs(ours / theirs - 1):.2%}: {told(rate, size)}"
        )
        name = f"GenZ {version('genz-llm')}, a step a call"
        rows.append(measured_row("model_peers", workload, rate, peer_rate, name, rate.median / peer_rate))
    return rows


def beside_scale_sim(chunk: int = CHUNK, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """Cycles of the key projection of Llama-3.1-8B for one token, weight stationary on 128 x 128 elements.

    Raises:
        ImportError: scalesim is not installed.
        AssertionError: the two disagree on the cycles.
    """
    m, k, n = 1, 4096, 1024
    side = OnChipBuffer(bandwidth_bytes_per_s=1e12, access_bytes=32.0, access_energy_j=1e-11)
    array = SystolicArray(128.0, 128.0, 1e9, 1e-12, side, side, side, dataflow="ws", convention="scale_sim")
    with tempfile.TemporaryDirectory() as folder:
        peer = scale_sim_cycles(Path(folder), 128, m, k, n)
        ours, theirs = systolic_array.cycles(array, m, k, n), peer()
        assert ours == theirs, f"ours takes {ours} cycles, SCALE-Sim {theirs}"
        peer_rate = 1 / median_s(peer, repeats=3)

    def product(numbers: tuple[SystolicArray, jax.Array, jax.Array, jax.Array]) -> jax.Array:
        unit, m, k, n = numbers
        return systolic_array.smooth_cycles(unit, m, k, n)

    rng = np.random.default_rng(0)

    def drawn() -> Any:
        around = lambda value: jnp.asarray(np.round(value * rng.uniform(1.0, 1.5, chunk)), jnp.float32)
        return jax.tree.map(around, array), around(m), around(k), around(n)

    rate = measure(product, [drawn() for _ in range(3)], repeats=repeats)
    workload = f"cycles of a product, {m} x {k} by {k} x {n} on 128 x 128, the same: {told(rate, chunk)}"
    name = f"SCALE-Sim {version('scalesim')}, compute part"
    return [measured_row("model_peers", workload, rate, peer_rate, name, rate.median / peer_rate)]


def scale_sim_cycles(folder: Path, side: int, m: int, k: int, n: int) -> Callable[[], int]:
    """Cycles of an m x k by k x n product as SCALE-Sim prints them, weight stationary.

    Only operands and what the array demands of them cycle by cycle are made. Its simulation of the memories, which changes
    nothing of these cycles, would follow: it takes longer still, and does not run with NumPy 2.4.

    Raises:
        ImportError: scalesim is not installed.
    """
    from scalesim.compute.operand_matrix import operand_matrix  # pyright: ignore[reportMissingImports] - optional
    from scalesim.compute.systolic_compute_ws import systolic_compute_ws  # pyright: ignore[reportMissingImports]
    from scalesim.layout_utils import layouts  # pyright: ignore[reportMissingImports]
    from scalesim.scale_config import scale_config  # pyright: ignore[reportMissingImports]
    from scalesim.topology_utils import topologies  # pyright: ignore[reportMissingImports]

    settings = Path(__file__).with_name("scale_sim.cfg").read_text(encoding="utf-8")
    (folder / "array.cfg").write_text(settings.format(side=side))
    (folder / "layer.csv").write_text(f"Layer,M,N,K,\nproduct,{m},{n},{k},\n")
    (folder / "layout.csv").write_text("Layer,\nproduct," + "1," * 20 + "\n")
    config, layers, layout = scale_config(), topologies(), layouts()
    config.read_conf_file(str(folder / "array.cfg"))
    layers.load_arrays(topofile=str(folder / "layer.csv"), mnk_inputs=True)
    layout.load_arrays(layoutfile=str(folder / "layout.csv"), mnk_inputs=True)

    def cycles() -> int:
        operands = operand_matrix()
        operands.set_params(layer_id=0, config_obj=config, topoutil_obj=layers, layoututil_obj=layout)
        inputs, weights, outputs = (
            made[1] for made in (operands.get_ifmap_matrix(), operands.get_filter_matrix(), operands.get_ofmap_matrix())
        )
        compute = systolic_compute_ws()
        compute.set_params(
            config_obj=config,
            ifmap_op_mat=inputs,
            filter_op_mat=weights,
            ofmap_op_mat=outputs,
            ifmap_op_mat_original=operands.ifmap_addr_matrix_original,
            sparsity_filter_array=operands.sparse_filter_array,
        )
        # A row per cycle, of which the tool prints the last one's index.
        return compute.get_demand_matrices()[2].shape[0] - 1

    return cycles
