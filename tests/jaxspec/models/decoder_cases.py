"""A small network with every option, and a text, for tests of the forward pass."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import abstract_params, forward

CONFIG = DecoderConfig(
    vocab_size=13,
    hidden_size=20,
    intermediate_size=14,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=6,
    rope_theta=500.0,
    qk_norm=True,
)
CLOSE = {"rtol": 2e-5, "atol": 2e-5}  # float32, logits of order 1


def random_params(config=CONFIG, seed=0):
    # From NumPy: `init_params` compiles a generator for every shape. Norm weights are random too.
    rng = np.random.default_rng(seed)

    def draw(leaf):
        value = rng.standard_normal(leaf.shape, np.float32)
        return jnp.asarray(1 + 0.3 * value if leaf.ndim < 3 and leaf.shape[0] != 13 else leaf.shape[-1] ** -0.5 * value)

    return jax.tree.map(draw, abstract_params(config))


PARAMS = random_params()
TOKENS = np.random.default_rng(1).integers(13, size=(2, 9)).astype(np.int32)
POSITIONS = np.broadcast_to(np.arange(9, dtype=np.int32), (2, 9))


def forward_of(params, config, tokens, **options):
    """`forward` with the fields of its step by name, for `jit`."""
    step = StepInput(**{name: options.pop(name) for name in StepInput._fields if name in options})
    return forward(params, config, tokens, step, **options)
