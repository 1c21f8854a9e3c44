"""Memory of programs that tuning compiles, by XLA's own analysis; nothing is allocated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from hwmodels import Case, Workload, catalog
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.kv import prepare_kv
from jaxspec.compress.schemes import DEFAULT_SCHEME
from jaxspec.compress.weights import prepare
from jaxspec.models.architecture import architecture_of
from jaxspec.models.config import INPUT_OF, DecoderConfig
from jaxspec.models.decoder import abstract_params
from jaxspec.models.kv_cache import empty_cache
from jaxspec.models.mesh import by_row, filled_rows, make_mesh, on_mesh, rows_that_split
from jaxspec.models.stored import as_stored
from jaxspec.speculate.acceptance import TargetText
from jaxspec.speculate.sampling import SAMPLING
from jaxspec.studies.measured.memory import calibration_bytes, network_bytes, pass_bytes
from jaxspec.tuning.calibration import Calibration, calibration_pass, windows_per_pass
from jaxspec.tuning.compression_objective import measured_windows
from jaxspec.tuning.gradient import Goal, marginal_returns

#: Position of the first root.
_FIRST = 31


def abstract_calibration(config: DecoderConfig, windows: int, tokens: int, *, mesh: Mesh | None = None) -> Calibration:
    """Shapes and types of a calibration on bfloat16 weights.

    Args:
        mesh: of the devices that it is split over; None: one device.
    """
    width = {kind: config.matrix_shape(kind)[1] for kind in config.matrix_kinds}
    norms = {INPUT_OF[kind]: jax.ShapeDtypeStruct((config.num_layers, width[kind]), jnp.float32) for kind in width}

    narrow = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16)
    params = jax.eval_shape(as_stored, jax.tree.map(narrow, abstract_params(config)))
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
        rows_that_split(mesh, windows), windows_per_pass(config, tokens) * (1 if mesh is None else mesh.shape["data"])
    )


def analyse(
    config: DecoderConfig, windows: int, tokens: int, per_step: int, sizes: tuple[int, int], program: str
) -> tuple[float, float]:
    """Bytes of a program, "gradient step" or "hard draft", on each device of a mesh: as estimated before a run, and by XLA."""
    mesh = make_mesh(*sizes)
    calibration = abstract_calibration(config, windows, tokens, mesh=mesh)
    knobs, gradient = uniform_knobs(DEFAULT_SCHEME, config), program == "gradient step"
    if gradient:
        workload, whole = Workload(batch=1.0, context_tokens=1024.0), jnp.asarray(0)
        pricing = Case(catalog.device("jetson-agx-orin"), architecture_of(config), workload)
        goal = Goal(windows_per_step=per_step)
        compiled = marginal_returns.lower(knobs, calibration, pricing, whole, whole, goal).compile()
    else:
        places, counted = filled_rows(mesh, jnp.arange(per_step))
        decoding = SAMPLING.for_program()
        compiled = measured_windows.lower(calibration, knobs, places, decoding, counted=counted).compile()
    held = network_bytes(config, stream=False, tensor=sizes[1]) + calibration_bytes(config, windows, tokens, mesh=sizes)
    memory = compiled.memory_analysis()
    total = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
    return held + pass_bytes(config, per_step, tokens, gradient=gradient, mesh=sizes), total
