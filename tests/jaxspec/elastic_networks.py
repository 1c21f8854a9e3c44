"""A tiny mixture of experts with a dense layer, uneven routers, and its elastic drafts."""

import jax
import jax.numpy as jnp
import numpy as np

from hwmodels.networks import ExpertSizes
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.elastic import ELASTIC
from jaxspec.compress.weights import hard_draft, target_network
from jaxspec.models.blocks import DenseFeedForward, Experts
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import abstract_params
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.speculate.drafts import SelfDraftParams


def mixture(vocab_size):
    """Shape of a network whose layer 0 is dense."""
    return DecoderConfig(
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=12,
        num_layers=3,
        num_heads=4,
        num_kv_heads=2,
        head_dim=4,
        experts=ExpertSizes(num_experts=9, per_token=2, inner_size=10, shared_size=6),
        feed_forward=(DenseFeedForward(), Experts(), Experts()),
    )


def uneven_network(config, seed, *, sharpness):
    """Random parameters with bfloat16 values; routers prefer some experts, and texts differ in which.

    Args:
        sharpness: size of the logits.
    """
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        name, value = path[-1].key, rng.standard_normal(leaf.shape, np.float32)
        if name.endswith("norm"):
            value = 1 + 0.2 * value
        elif name != "embed":
            value *= leaf.shape[-1] ** -0.5 * (sharpness if name == "lm_head" else 1.0)
        if name == "router":
            value *= np.geomspace(3, 0.3, leaf.shape[-2])[rng.permutation(leaf.shape[-2])][:, None]
        if name.startswith("expert_"):
            value *= 2.0
        return jnp.asarray(value.astype(jnp.bfloat16).astype(np.float32))

    return jax.tree_util.tree_map_with_path(draw, abstract_params(config))


def elastic_pair(config, seed, *, sharpness=3.0, **knobs):
    """An INT8 target, and parameters of its elastic draft."""
    stored = target_network(ELASTIC, as_stored(uneven_network(config, seed, sharpness=sharpness)))
    knobs = uniform_knobs(ELASTIC, config, **knobs)
    nothing = dict.fromkeys(config.matrix_kinds)
    draft = as_computed(hard_draft(stored, nothing, knobs, config))
    return as_computed(stored), SelfDraftParams(draft, knobs)
