"""Qwen3-30B-A3B on an H200: steps priced by the model beside the same steps added up from measured kernels.

  python -m experiments.silicon.composed             every committed cell beside the model
  python -m experiments.silicon.composed --write     compose the cells anew (needs: pip install aiconfigurator-core pyarrow)

The package composes a step from its own tables by its own interpolation: matrix products, attention, the routed experts of a
layer as one launch, norms and embedding at an empirical share of the bandwidth. Its tables of experts spread tokens as a
power law of exponent 1.2 does, which touches fewer experts than even choices would; the model's step is given the same
number of touched experts.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from hwmodels import catalog, uniform_footprint
from hwmodels.analysis.calibration.kernel_tables import KernelTableError
from hwmodels.analysis.calibration.table_routing import touched_in_table
from hwmodels.network.operators import OPERATORS, OperatorWork
from hwmodels.network.operators.steps import StepShape, decode_step, prefill_step, stack_steps
from hwmodels.network.operators.work import EXPERT_OPERATORS
from hwmodels.network.workload import Workload
from hwmodels.step.step_cost import step_cost
from jaxspec.files import to_json, write_text

CELLS = Path(__file__).with_name("qwen3_30b_a3b_h200.csv")
SOURCE = "aiconfigurator-core 0.12.0 (Apache-2.0), Qwen/Qwen3-30B-A3B in bfloat16, h200_sxm/trtllm/1.3.0rc20, one GPU"

DEVICE, NETWORK, DISTRIBUTION = "h200-sxm", "qwen3-30b-a3b", "power_law_1.2"
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (1024, 2048, 4096, 8192, 16384, 32768)
PROMPTS = (128, 512, 1024, 2048, 4096, 8192)
PARTS: tuple[str, ...] = ("experts_s", "attention_s", "products_s", "rest_s")

_EXPERTS = np.array([OPERATORS.index(name) for name in EXPERT_OPERATORS])


def compose() -> list[dict[str, Any]]:
    """All cells from the package: decoding by batch and context, prefill of one prompt by its length; seconds.

    Raises:
        KernelTableError: the package is not installed.
    """
    try:
        from aiconfigurator_core import AicEngine  # pyright: ignore[reportMissingImports]
        from aiconfigurator_core.sdk.engine import compile_engine  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        raise KernelTableError(f"cells cannot be composed: {error}; pip install aiconfigurator-core pyarrow") from error
    modes = dict.fromkeys(("gemm_quant_mode", "moe_quant_mode", "kvcache_quant_mode", "fmha_quant_mode"), "bfloat16")
    engine = AicEngine.from_spec(compile_engine("Qwen/Qwen3-30B-A3B", "h200_sxm", "trtllm", "1.3.0rc20", **modes))
    cells = [
        _cell("decode", batch, context, engine.decode_step_per_op(batch, context, 2))
        for batch in BATCHES
        for context in CONTEXTS
    ]
    for prompt in PROMPTS:
        operators, _ = engine.run_static_per_op(1, 1, prompt, 1, 0, 1.0, 1.0, "static_ctx")
        cells.append(_cell("prefill", 1, prompt, operators))
    return cells


def _cell(step: str, batch: int, tokens: int, operators: Sequence[Any]) -> dict[str, Any]:
    parts: dict[str, float] = dict.fromkeys(PARTS, 0.0)
    for name, milliseconds, *_ in operators:
        kind = next((part for part in ("moe", "attention", "gemm") if name.endswith(part)), "rest")
        parts[{"moe": "experts_s", "gemm": "products_s"}.get(kind, f"{kind}_s")] += 1e-3 * milliseconds
    return {"step": step, "batch": batch, "tokens": tokens, **parts, "total_s": sum(parts.values())}


def read_cells(path: Path = CELLS) -> list[dict[str, Any]]:
    """The committed cells; "tokens" is the context of a decode step, the prompt of a prefill."""
    lines = (line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return [{k: v if k == "step" else float(v) for k, v in row.items()} for row in csv.DictReader(lines)]


def with_touched(work: OperatorWork, touched: jax.Array) -> OperatorWork:
    """The same work whose tokens touch another number of different experts per layer."""
    assert work.shapes is not None
    shapes, e = work.shapes, _EXPERTS
    ratio = touched / shapes.products[..., e]
    shapes = dataclasses.replace(
        shapes, m=shapes.m.at[..., e].divide(ratio), products=shapes.products.at[..., e].multiply(ratio)
    )
    return dataclasses.replace(work, weight_bytes=work.weight_bytes.at[..., e].multiply(ratio), shapes=shapes)


def priced(cells: Sequence[dict[str, Any]]) -> dict[str, npt.NDArray[np.float64]]:
    """What the model says of the cells (as of `read_cells`): part -> seconds, "cell"."""
    device, network, footprint = catalog.device(DEVICE), catalog.architecture(NETWORK), uniform_footprint(16.0)
    sizes = int(network.num_experts), int(network.experts_per_token)
    steps, touched = [], []
    for cell in cells:
        batch, tokens, prefill = cell["batch"], cell["tokens"], cell["step"] == "prefill"
        workload = Workload(batch=batch, context_tokens=0.0 if prefill else tokens, prompt_tokens=tokens)
        steps.append((prefill_step if prefill else decode_step)(workload, footprint=footprint))
        touched.append(touched_in_table(DISTRIBUTION, int(batch * (tokens if prefill else 1)), *sizes))

    def operators_s(step: StepShape, touched: jax.Array) -> jax.Array:
        return step_cost(device, with_touched(step.operators(network), touched)).operator_s

    seconds = np.asarray(jax.jit(jax.vmap(operators_s))(stack_steps(steps), jnp.asarray(touched)), np.float64)
    by_name = dict(zip(OPERATORS, seconds.T))
    of = lambda *names: sum((by_name[name] for name in names), np.zeros(len(cells)))
    # A prefill's composition ends before the head.
    head = by_name["lm_head"] * np.array([cell["step"] == "decode" for cell in cells])
    parts = {
        "experts_s": of(*EXPERT_OPERATORS),
        "attention_s": of("attention"),
        "products_s": of("qkv", "latent", "o", "router") + head,
        "rest_s": of("norm", "embed"),
    }
    return parts | {"total_s": sum(parts.values(), np.zeros(len(cells)))}


def main() -> int:
    """Show every cell, with the model's error; exit code 2 where the package is wanted and missing."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.silicon.composed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", action="store_true", help="compose the cells anew and write them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write cells and errors there")
    arguments = parser.parse_args()
    if arguments.write:
        try:
            composed = compose()
        except KernelTableError as error:
            print(error, file=sys.stderr)
            return 2
        header = ",".join(composed[0])
        rows = [",".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in cell.values()) for cell in composed]
        write_text(CELLS, "\n".join([f"# {SOURCE}", header, *rows, ""]))
    cells = read_cells()
    ours, results = priced(cells), []
    for index, cell in enumerate(cells):
        error = {part: float(ours[part][index] / cell[part] - 1) for part in (*PARTS, "total_s")}
        results.append(cell | {"error": error})
        print(
            f"{cell['step']:8}batch {cell['batch']:3g}, {cell['tokens']:5g} tokens: {1e3 * ours['total_s'][index]:7.2f} ms, "
            f"composed {1e3 * cell['total_s']:7.2f} ms {error['total_s']:+6.1%}; experts {error['experts_s']:+6.1%}"
        )
    for step in ("decode", "prefill"):
        for part in ("total_s", "experts_s"):
            size = np.abs([row["error"][part] for row in results if row["step"] == step])
            print(f"{step}, {part}: median error {np.median(size):.1%}, largest {size.max():.1%}")
    if arguments.json:
        write_text(arguments.json, to_json({"schema_version": 1, "source": SOURCE, "cells": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
