"""Layers of experts: what a step takes beside the products of its active experts alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.harness import row
from experiments.clock import medians_s
from jaxspec.models.blocks import Experts, StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.expert_sizes import ExpertSizes
from jaxspec.models.stored import stack_of

__all__ = ["expert_dispatch"]

#: Experts and choices of Qwen3-30B-A3B, at half its width, so that a layer in float32 has 0.6 GB.
_CONFIG = DecoderConfig(
    vocab_size=8,
    hidden_size=1024,
    intermediate_size=384,
    num_layers=1,
    num_heads=8,
    num_kv_heads=2,
    head_dim=128,
    experts=ExpertSizes(num_experts=128, per_token=8, inner_size=384),
    feed_forward=(Experts(),),
)

_TOKENS = (1, 16, 256)


def expert_dispatch() -> list[dict[str, Any]]:
    """A whole layer of experts (router, choice, sorting, products, weighing) against the products of the experts that are
    chosen, each with the rows that chose it, all known when the program is compiled: no dispatch can be faster."""
    rng = np.random.default_rng(0)
    draw = lambda shape: jnp.asarray(rng.standard_normal(shape, np.float32) * shape[-1] ** -0.5)
    weights = {name: draw(shape) for name, shape in Experts().matrices(_CONFIG).items()}
    rows = []
    for dtype in (jnp.float32, jnp.bfloat16):
        stored = {name: value.astype(dtype) for name, value in weights.items()}
        for tokens in _TOKENS:
            x = jnp.asarray(rng.standard_normal((1, tokens, _CONFIG.hidden_size), np.float32))
            ours, peer = _programs(stored, x)
            ours_s, peer_s = medians_s((ours, peer), 9)
            workload = f"{tokens} tokens, 128 experts, top-8, stored in {jnp.dtype(dtype).name}"
            rows.append(
                row("expert_dispatch", workload, ours_s, peer_s, "active experts' products", "s", peer_s / ours_s)
            )
    return rows


def _programs(stored: dict[str, Any], x: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The layer, and the products of its active experts."""
    tokens = x.shape[1]
    step = StepInput(jnp.arange(tokens)[None], jnp.ones((1, tokens, tokens), bool))
    kept = {name: value if name == "router" else stack_of(value) for name, value in stored.items()}
    layer = jax.jit(lambda kept, x: Experts().apply(x, kept, _CONFIG, step)._replace(inputs={}))
    choices = layer(kept, x).choices
    assert choices is not None
    used = np.asarray(choices.used[0])
    active = [
        (
            {name: stack_of(value[expert]) for name, value in stored.items() if name != "router"},
            x[0][(used == expert).any(1)],
        )
        for expert in np.unique(used)
    ]

    def product(weights: dict[str, Any], rows: Any) -> Any:
        # Behind a barrier: XLA would fuse widening into products of one row, which makes them slow.
        wide = lambda kind: jax.lax.optimization_barrier(weights[f"expert_{kind}"].values().astype(x.dtype))
        times = lambda x, kind: x @ wide(kind).T
        return times(jax.nn.silu(times(rows, "gate")) * times(rows, "up"), "down")

    products = jax.jit(lambda active: [product(*one) for one in active])
    return lambda: layer(kept, x).output, lambda: products(active)
