"""Activations of feed-forward networks, by the names that `hwmodels.networks.ACTIVATION_NAMES` makes of those of files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
from jaxtyping import Array

__all__ = ["ACTIVATIONS"]

#: Name -> function of each element.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_pytorch_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "relu2": lambda x: jax.nn.relu(x) ** 2,
}
