"""Tiny networks with linear attention, for studies of them."""

import dataclasses

import jax

from hwmodels.networks import ExpertSizes, LinearSizes
from jaxspec.models import DecoderConfig, init_params, save_directory
from jaxspec.models.blocks import Experts, GatedDeltaNet, GroupedAttention

DENSE = DecoderConfig(
    vocab_size=256,
    hidden_size=24,
    intermediate_size=32,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    rotary_dim=2,
    norm="shifted_rms",
    norm_eps=1e-6,
    qk_norm=True,
    attention_gate=True,
    linear=LinearSizes(key_heads=2, value_heads=4, key_dim=6, value_dim=5, conv_tokens=4),
    # Two turns of one loop where layers are not kept apart, as in tuning.
    attention=(GatedDeltaNet(), GroupedAttention()),
)

WITH_EXPERTS = dataclasses.replace(
    DENSE,
    intermediate_size=12,
    experts=ExpertSizes(num_experts=6, per_token=2, inner_size=12, shared_size=10, shared_gated=True),
    feed_forward=(Experts(),),
)


def saved(config, directory):
    """A checkpoint of random parameters, whose matrices are large enough for tokens to differ."""
    params = jax.tree.map(lambda x: 3.0 * x if x.ndim > 2 else x, init_params(config, jax.random.key(3)))
    save_directory(params, config, directory, max_positions=128)
    return directory


def settings_of(kind, shared):
    """Those of shared settings that a study has."""
    return {name: value for name, value in shared.items() if name in kind.__dataclass_fields__}
