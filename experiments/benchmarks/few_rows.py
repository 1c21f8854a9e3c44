"""Products of few rows by all matrices of the embedded network, one after the other, as a decoding step takes them.

    python -m experiments.benchmarks few_rows

Compares the two kernels that XLA on CPUs has for them, on any processor; `jaxspec.models.few_rows` chooses between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.harness import row
from experiments.clock import medians_s
from jaxspec.models.dots import dot_rows
from jaxspec.models.embedded import load_model
from jaxspec.models.few_rows import dot_few_rows
from jaxspec.models.stored import stack_of
from jaxspec.tuning import target_params

__all__ = ["few_rows"]

_ROWS = (1, 2, 5, 9, 17, 32, 64, 144)

#: Passes over the network in one program.
_PASSES = 50


def few_rows() -> list[dict[str, Any]]:
    """Rows read by their transpose, against rows as they lie."""
    layers = target_params(load_model("embedded").params)["layers"]
    kinds = [stack for stack in map(stack_of, layers.values()) if len(stack.shape) == 3]
    values = [stack.values() for stack in kinds]
    matrices = [jnp.asarray(stack[place], jnp.float32).T for place in range(len(values[0])) for stack in values]
    calls: list[Callable[[], Any]] = []
    for rows in _ROWS:
        for product in (dot_few_rows, lambda x, matrix: dot_rows(x, matrix.T)):
            calls.append(_passes(product, matrices, rows))
    seconds = np.array(medians_s(calls, 15)).reshape(-1, 2) / _PASSES
    return [
        row("few_rows", f"{rows} rows, embedded network, float32", ours, peer, "rows as they lie", "s", peer / ours)
        for rows, (ours, peer) in zip(_ROWS, seconds.tolist(), strict=True)
    ]


def _passes(product: Callable[..., Any], matrices: list[Any], rows: int) -> Callable[[], Any]:
    widest = max(matrix.shape[0] for matrix in matrices)

    @jax.jit
    def run(x: Any, matrices: list[Any]) -> Any:
        def one(_: Any, x: Any) -> Any:
            for matrix in matrices:
                # What comes next waits for the product, and is what it was.
                x = x + 1e-30 * jnp.mean(product(x[:, : len(matrix)], matrix))
            return x

        return jax.lax.fori_loop(0, _PASSES, one, x)

    x = jnp.asarray(np.random.default_rng(rows).standard_normal((rows, widest), np.float32))
    return lambda: run(x, matrices)
