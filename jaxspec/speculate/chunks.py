"""Many prompts through one compiled shape: in chunks of a fixed size, the last one padded with copies."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

__all__ = ["CHUNK", "gather", "prompt_chunks"]

#: Prompts decoded together. One compiled shape serves every number of prompts, and results do not depend on it.
CHUNK = 24


def prompt_chunks(prompts: np.ndarray) -> list[tuple[Int[Array, "chunk prompt"], Int[Array, " chunk"], int]]:
    """Prompts in chunks of CHUNK; their ids, and how many are real."""
    chunks = []
    for start in range(0, len(prompts), CHUNK):
        part = prompts[start : start + CHUNK]
        index = np.arange(CHUNK) % len(part)
        chunks.append((jnp.asarray(part[index]), jnp.asarray(start + index), len(part)))
    return chunks


def gather(parts: list[tuple[Any, int]]) -> dict[str, np.ndarray]:
    """Fields of the chunks' results (with `_asdict`) over all real prompts, on the host."""
    kept = [jax.tree.map(lambda x, count=count: np.asarray(x)[:count], result._asdict()) for result, count in parts]
    return jax.tree.map(lambda *x: np.concatenate(x), *kept)
