"""Memory that tuning takes, by XLA's own analysis of its compiled programs: `python -m experiments.memory_analysis`.

Nothing is allocated, so that networks of any size can be asked about on any machine. Two programs are compiled for each
network: a gradient step over all knobs, and the measurement of one bit-exact draft.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from experiments.released_shapes import SHAPES
from hwmodels import Workload, catalog
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.kv import prepare_kv
from jaxspec.compress.schemes import DEFAULT_SCHEME
from jaxspec.compress.weights import prepare
from jaxspec.files import write_text
from jaxspec.models.architecture import architecture_of
from jaxspec.models.config import INPUT_OF, DecoderConfig
from jaxspec.models.decoder import abstract_params
from jaxspec.models.families import decoder_config
from jaxspec.models.kv_cache import empty_cache
from jaxspec.models.mesh import make_mesh, on_mesh
from jaxspec.models.stored import as_stored
from jaxspec.models.streamed import Streamed, stays_in_host
from jaxspec.speculate.acceptance import TargetText
from jaxspec.speculate.sampling import SAMPLING
from jaxspec.tuning.calibration import Calibration
from jaxspec.tuning.gradient import AscentState, Goal, ascend_once, first_state
from jaxspec.tuning.hard import measured_windows
from jaxspec.tuning.objective import Pricing

__all__ = ["abstract_calibration", "analyse"]

#: Position of the first root.
_FIRST = 31

#: What is asked unless told otherwise: name, windows of text, their tokens, windows per step.
_DEFAULT = (
    ("qwen3-0.6b", 96, 128, 4),
    ("llama-3.2-1b", 96, 200, 16),
    ("llama-3.1-8b", 96, 200, 16),
    ("llama-3.1-70b", 96, 200, 16),
)


def abstract_calibration(
    config: DecoderConfig, windows: int, tokens: int, *, stream: bool = False, tensor: int = 1
) -> Calibration:
    """Shapes and types of a calibration on bfloat16 weights.

    Args:
        stream: its layers stay in host memory. tensor: devices that matrices are split over.
    """
    width = {kind: config.matrix_shape(kind)[1] for kind in config.matrix_kinds}
    norms = {INPUT_OF[kind]: jax.ShapeDtypeStruct((config.num_layers, width[kind]), jnp.float32) for kind in width}

    def narrow(path: Any, leaf: Any) -> Any:
        place = tuple(key.key for key in path)
        if stream and stays_in_host(place, leaf.shape, tied=config.tie_embeddings):
            return Streamed.abstract(leaf.shape, jnp.bfloat16)
        return jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16)

    params = jax.eval_shape(as_stored, jax.tree_util.tree_map_with_path(narrow, abstract_params(config)))
    cache = jax.eval_shape(lambda: empty_cache(config, windows, tokens - 1))
    kv = jax.eval_shape(lambda cache: prepare_kv(DEFAULT_SCHEME, cache), cache)
    mesh = None if tensor == 1 else make_mesh(1, tensor)
    if mesh is not None:
        params = on_mesh(params, config, mesh)
        by_head = NamedSharding(mesh, PartitionSpec(None, None, None, None, "tensor"))
        split = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=by_head)
        kv = kv.replace(rows=jax.tree.map(split, kv.rows))
    if stream:
        kv = kv.replace(rows=jax.tree.map(lambda leaf: Streamed.abstract(leaf.shape, leaf.dtype), kv.rows))
    return Calibration(
        params=params,
        prepared=jax.eval_shape(lambda *given: prepare(DEFAULT_SCHEME, *given), params, norms),
        text=jax.eval_shape(
            lambda: TargetText(
                tokens=jnp.zeros((windows, tokens), jnp.int32),
                hidden=jnp.zeros((windows, tokens - 1 - _FIRST, config.hidden_size)),
            )
        ),
        kv=kv,
        config=config,
        mesh=mesh,
    )


def analyse(
    config: DecoderConfig, windows: int, tokens: int, per_step: int, *, stream: bool = False, tensor: int = 1
) -> dict[str, dict[str, float]]:
    """Program -> bytes of its arguments, of everything else, of both, and seconds to compile it."""
    calibration = abstract_calibration(config, windows, tokens, stream=stream, tensor=tensor)
    knobs = uniform_knobs(DEFAULT_SCHEME, config)
    pricing = Pricing(
        catalog.device("jetson-agx-orin"), architecture_of(config), Workload(batch=1.0, context_tokens=1024.0)
    )
    number, decoding = jnp.asarray(0.1), SAMPLING.for_program()
    goal = Goal(windows_per_step=per_step)
    state: AscentState = first_state(knobs)

    def step() -> Any:
        whole = jnp.asarray(0)
        return ascend_once.lower(
            state, calibration, pricing, whole, number, number, jnp.asarray(False), goal, DEFAULT_SCHEME
        )

    return {
        "gradient step": _compiled(step),
        "hard draft": _compiled(lambda: measured_windows.lower(calibration, knobs, jnp.arange(per_step), decoding)),
    }


def _compiled(lower: Callable[[], Any]) -> dict[str, float]:
    began = time.monotonic()
    compiled = lower().compile()
    seconds, memory = time.monotonic() - began, compiled.memory_analysis()
    arguments, temporary = memory.argument_size_in_bytes, memory.temp_size_in_bytes + memory.output_size_in_bytes
    return {
        "arguments_bytes": arguments,
        "temporary_bytes": temporary,
        "total_bytes": arguments + temporary,
        "compile_s": seconds,
    }


def main(arguments: list[str] | None = None) -> int:
    """Print the table, and write it as JSON on request."""
    parser = argparse.ArgumentParser(prog="python -m experiments.memory_analysis", description=__doc__)
    parser.add_argument(
        "network", nargs="*", choices=[*SHAPES, []], help=f"of {', '.join(SHAPES)}; all of them by default"
    )
    parser.add_argument("--layers", type=int, help="instead of the network's own number")
    parser.add_argument("--stream", action="store_true", help="with the layers in host memory")
    parser.add_argument("--tensor", type=int, default=1, help="devices that matrices are split over; bytes are of one")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the numbers here")
    given = parser.parse_args(arguments)
    if given.tensor > 1:
        jax.config.update("jax_num_cpu_devices", given.tensor)
    print(
        f"{'network':<14} {'layers':>6} {'text':>9} {'step':>5}  {'program':<14} {'file':>8} {'needs':>8} {'compile':>8}"
    )
    rows = []
    for name, windows, tokens, per_step in _DEFAULT:
        if given.network and name not in given.network:
            continue
        config = decoder_config(SHAPES[name])
        if given.layers is not None:
            config = dataclasses.replace(config, num_layers=given.layers)
        file_bytes = 2 * config.num_parameters()
        for program, found in analyse(
            config, windows, tokens, per_step, stream=given.stream, tensor=given.tensor
        ).items():
            rows.append({"network": name, "layers": config.num_layers, "windows": windows, "tokens": tokens} | found)
            rows[-1] |= {"windows_per_step": per_step, "program": program, "file_bytes": file_bytes}
            rows[-1] |= {"streamed": given.stream, "devices": given.tensor}
            print(
                f"{name:<14} {config.num_layers:>6} {f'{windows}x{tokens}':>9} {per_step:>5}  {program:<14} "
                f"{file_bytes / 1e9:>5.2f} GB {found['total_bytes'] / 1e9:>5.2f} GB {found['compile_s']:>6.1f} s",
                flush=True,
            )
    if given.json is not None:
        write_text(given.json, json.dumps({"rows": rows, "jax": jax.__version__}, indent=2, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
