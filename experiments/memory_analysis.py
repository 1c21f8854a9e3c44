"""Memory that tuning takes, by XLA's own analysis of its compiled programs: `python -m experiments.memory_analysis`.

Nothing is allocated, so that networks of any size can be asked about on any machine. Four programs are compiled for each
network: a gradient step over all knobs, the measurement of one bit-exact draft, decoding without a draft, and a pass over the
calibration text (as many windows as one takes). Beside XLA's figures stands what the line before a run would say of the
program. With a mesh, as many devices as it has are made of the processor.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array

from experiments.random_checkpoint import SHAPES
from hwmodels import Case, Workload, catalog
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
from jaxspec.models.mesh import by_row, filled_rows, make_mesh, on_mesh, rows_that_split
from jaxspec.models.stored import as_stored
from jaxspec.models.streamed import Streamed, stays_in_host
from jaxspec.settings.common import mesh_sizes
from jaxspec.speculate.acceptance import TargetText
from jaxspec.speculate.engine import autoregressive_tree
from jaxspec.speculate.expansion import chain_limits
from jaxspec.speculate.loop import decoding_loop
from jaxspec.speculate.sampling import GREEDY, SAMPLING
from jaxspec.studies.measured.memory import (
    ONE_DEVICE,
    ROOM_BYTES,
    calibration_bytes,
    decoding_bytes,
    network_bytes,
    pass_bytes,
)
from jaxspec.tuning.calibration import Calibration, calibration_pass, windows_per_pass
from jaxspec.tuning.gradient import Goal, marginal_returns
from jaxspec.tuning.hard import measured_windows

__all__ = ["PROGRAMS", "abstract_calibration", "analyse"]

#: What is compiled.
PROGRAMS = ("gradient step", "hard draft", "decoding", "calibration pass")

#: Prompts that are decoded, their tokens, and those that follow.
_PROMPTS, _PROMPT_TOKENS, _OUTPUT_TOKENS = 24, 128, 64

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
    config: DecoderConfig, windows: int, tokens: int, *, stream: bool = False, mesh: Mesh | None = None
) -> Calibration:
    """Shapes and types of a calibration on bfloat16 weights.

    Args:
        stream: its layers stay in host memory. mesh: of the devices that it is split over; None: one device.
    """
    width = {kind: config.matrix_shape(kind)[1] for kind in config.matrix_kinds}
    norms = {INPUT_OF[kind]: jax.ShapeDtypeStruct((config.num_layers, width[kind]), jnp.float32) for kind in width}

    def narrow(path: Any, leaf: Any) -> Any:
        place = tuple(key.key for key in path)
        if stream and stays_in_host(place, leaf.shape, tied=config.tie_embeddings):
            return Streamed.abstract(leaf.shape, jnp.bfloat16)
        return jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16)

    params = jax.eval_shape(as_stored, jax.tree_util.tree_map_with_path(narrow, abstract_params(config)))
    places = rows_that_split(mesh, windows)
    cache = jax.eval_shape(lambda: empty_cache(config, places, tokens - 1))
    kv = jax.eval_shape(lambda cache: prepare_kv(DEFAULT_SCHEME, cache), cache)
    text = jax.eval_shape(
        lambda: TargetText(
            tokens=jnp.zeros((places, tokens), jnp.int32),
            hidden=jnp.zeros((places, tokens - 1 - _FIRST, config.hidden_size)),
        )
    )
    if mesh is not None:
        params = on_mesh(params, config, mesh)
        # Where the pass over the text leaves them.
        lies = lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)
        _, hidden, of_kv, _ = _pass_over_text(params, config, windows, tokens, mesh).output_shardings
        text = text._replace(hidden=lies(text.hidden, hidden))
        kv = kv.replace(rows=jax.tree.map(lies, kv.rows, of_kv.rows))
    if stream:
        kv = kv.replace(rows=jax.tree.map(lambda leaf: Streamed.abstract(leaf.shape, leaf.dtype), kv.rows))
    return Calibration(
        params=params,
        prepared=jax.eval_shape(lambda *given: prepare(DEFAULT_SCHEME, *given), params, norms),
        text=text,
        kv=kv,
        config=config,
        filling=places - windows,
        mesh=mesh,
    )


def _pass_over_text(params: Any, config: DecoderConfig, windows: int, tokens: int, mesh: Mesh | None) -> Any:
    """The compiled pass that makes hidden states and KV of as many windows as it takes at once."""
    count = _at_once(config, windows, tokens, mesh)
    where = None if mesh is None else by_row(mesh, count)
    text = jax.ShapeDtypeStruct((count, tokens), jnp.int32, sharding=where)
    counted = (
        None
        if rows_that_split(mesh, windows) == windows
        else jax.ShapeDtypeStruct((count,), jnp.float32, sharding=where)
    )
    return calibration_pass.lower(params, config, text, scheme=DEFAULT_SCHEME, first=_FIRST, counted=counted).compile()


def _at_once(config: DecoderConfig, windows: int, tokens: int, mesh: Mesh | None) -> int:
    """Windows of a pass, with those that fill places on the mesh."""
    return min(
        rows_that_split(mesh, windows),
        windows_per_pass(config, tokens) * (1 if mesh is None else mesh.shape["data"]),
    )


def analyse(
    config: DecoderConfig,
    windows: int,
    tokens: int,
    per_step: int,
    *,
    stream: bool = False,
    sizes: tuple[int, int] = ONE_DEVICE,
    programs: Sequence[str] = PROGRAMS,
) -> dict[str, dict[str, float]]:
    """Program -> bytes of its arguments, of everything else, of both, as estimated before a run, and seconds to compile it.

    Args:
        sizes: devices along data and tensor; bytes are of each.
        programs: of `PROGRAMS`.
    """
    mesh = None if sizes == ONE_DEVICE else make_mesh(*sizes)
    calibration = abstract_calibration(config, windows, tokens, stream=stream, mesh=mesh)
    knobs = uniform_knobs(DEFAULT_SCHEME, config)
    pricing = Case(
        catalog.device("jetson-agx-orin"), architecture_of(config), Workload(batch=1.0, context_tokens=1024.0)
    )
    decoding = SAMPLING.for_program()
    goal = Goal(windows_per_step=per_step)

    def step() -> Any:
        whole = jnp.asarray(0)
        return marginal_returns.lower(knobs, calibration, pricing, whole, whole, goal).compile()

    def hard() -> Any:
        whole, counted = filled_rows(mesh, jnp.arange(per_step))
        return measured_windows.lower(calibration, knobs, whole, decoding, counted=counted).compile()

    network = network_bytes(config, stream=stream, tensor=sizes[1])
    held = network + calibration_bytes(config, windows, tokens, stream=stream, mesh=sizes)
    found = {}
    for name, compiled in zip(PROGRAMS[:2], (step, hard), strict=True):
        if name in programs:
            works = pass_bytes(config, per_step, tokens, gradient=compiled is step, mesh=sizes)
            found[name] = _of_program(compiled) | {"estimated_bytes": held + works}
    if "decoding" in programs:
        works = decoding_bytes(config, [_PROMPT_TOKENS] * _PROMPTS, _OUTPUT_TOKENS, [], sizes) + ROOM_BYTES
        compiled = partial(_decoding, calibration.params, config, mesh)
        found["decoding"] = _of_program(compiled) | {"estimated_bytes": network + works}
    if "calibration pass" in programs:
        compiled = partial(_pass_over_text, calibration.params, config, windows, tokens, mesh)
        count = _at_once(config, windows, tokens, mesh)
        written = calibration_bytes(config, count, tokens, mesh=sizes)
        works = pass_bytes(config, count, tokens, gradient=False, mesh=sizes)
        found["calibration pass"] = _of_program(compiled) | {"estimated_bytes": network + written + works}
    return found


def _decoding(params: Any, config: DecoderConfig, mesh: Mesh | None) -> Any:
    """The compiled program that decodes without a draft, one token per step."""
    limits = chain_limits(1)
    static = {"draft": None, "config": config, "room": _OUTPUT_TOKENS, "law": "top", "limits": limits, "growing": None}
    where = None if mesh is None else by_row(mesh, _PROMPTS)
    of = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.int32, sharding=where)

    def decode(params: Any, prompts: Array, ids: Array, lengths: Array) -> Any:
        given = autoregressive_tree(limits), jax.random.key(0), GREEDY.for_program(), jnp.asarray(_OUTPUT_TOKENS)
        return decoding_loop(params, None, prompts, ids, *given, lengths=lengths, **static)

    return jax.jit(decode).lower(params, of(_PROMPTS, _PROMPT_TOKENS), of(_PROMPTS), of(_PROMPTS)).compile()


def _of_program(compiled: Callable[[], Any]) -> dict[str, float]:
    began = time.process_time()
    memory = compiled().memory_analysis()
    seconds = time.process_time() - began
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
    parser.add_argument("--windows", type=int, help="windows of calibration text, instead of 96")
    parser.add_argument("--stream", action="store_true", help="with the layers in host memory")
    parser.add_argument(
        "--mesh", default="data=1", help="devices along the axes, as in data=4,tensor=2; bytes are of each"
    )
    parser.add_argument("--program", choices=PROGRAMS, help="one of them; all by default")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the numbers here")
    given = parser.parse_args(arguments)
    sizes = tuple(mesh_sizes(given.mesh).values())
    if math.prod(sizes) > 1:
        jax.config.update("jax_num_cpu_devices", math.prod(sizes))
    print(
        f"{'network':<14} {'layers':>6} {'text':>9} {'step':>5}  {'program':<14} {'file':>9} {'needs':>9} {'estimated':>9} "
        f"{'off':>6} {'compile':>8}"
    )
    rows = []
    for name, windows, tokens, per_step in _DEFAULT:
        if given.network and name not in given.network:
            continue
        config, windows = decoder_config(SHAPES[name]), given.windows or windows
        if given.layers is not None:
            config = dataclasses.replace(config, num_layers=given.layers)
        file_bytes = 2 * config.num_parameters()
        programs = PROGRAMS if given.program is None else (given.program,)
        options = {"stream": given.stream, "sizes": sizes, "programs": programs}
        for program, found in analyse(config, windows, tokens, per_step, **options).items():
            rows.append({"network": name, "layers": config.num_layers, "windows": windows, "tokens": tokens} | found)
            rows[-1] |= {"windows_per_step": per_step, "program": program, "file_bytes": file_bytes}
            rows[-1] |= {"streamed": given.stream, "mesh": {"data": sizes[0], "tensor": sizes[1]}}
            off = found["estimated_bytes"] / found["total_bytes"] - 1.0
            print(
                f"{name:<14} {config.num_layers:>6} {f'{windows}x{tokens}':>9} {per_step:>5}  {program:<14} "
                f"{file_bytes / 1e9:>6.2f} GB {found['total_bytes'] / 1e9:>6.2f} GB {found['estimated_bytes'] / 1e9:>6.2f} GB "
                f"{100 * off:>+4.0f} % {found['compile_s']:>6.1f} s",
                flush=True,
            )
    if given.json is not None:
        write_text(given.json, json.dumps({"rows": rows, "jax": jax.__version__}, indent=2, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
