"""Everything about a network and its calibration text that tuning needs, computed once."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Int

from jaxspec.checks import check_count, check_network, check_tokens
from jaxspec.compress.kv import PreparedKV, prepare_kv, round_kv
from jaxspec.compress.schemes import Scheme
from jaxspec.compress.weights import activation_norms, prepare
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.speculate.acceptance import TargetText


@struct.dataclass
class Calibration:
    """A target with what a scheme prepared of its weights, and text with the target's logits and its prepared KV.

    Attributes:
        params: float32 values of the stored bfloat16 parameters.
        prepared: of the weights, the scheme's own (see `Scheme.prepare`); leaves lead with a layer axis.
        text: windows of calibration text.
        kv: the target's KV of that text.
        config: static.
    """

    params: Params
    prepared: Any
    text: TargetText
    kv: PreparedKV
    config: DecoderConfig = struct.field(pytree_node=False)

    @property
    def num_windows(self) -> int:
        """Windows of calibration text."""
        return self.text.tokens.shape[0]

    def window(self, index: Int[Array, " batch"]) -> tuple[TargetText, PreparedKV]:
        """Some of the windows, by traced or static numbers."""
        take = partial(jnp.take, indices=index, axis=0)
        text = jax.tree.map(take, self.text)
        return text, self.kv.window(index)


def target_params(stored: Params) -> Params:
    """Stored parameters rounded to bfloat16, as float32: the target that everything is compared with."""
    return jax.tree.map(lambda x: jnp.asarray(x).astype(jnp.bfloat16).astype(jnp.float32), stored)


def calibrate(
    params: Params, config: DecoderConfig, tokens: Int[Array, "batch token_plus_1"], *, scheme: Scheme, first: int
) -> Calibration:
    """Run the target over the calibration text once.

    Args:
        params: from `target_params`.
        tokens: windows of text; activation norms are taken over all of their tokens.
        scheme: static; whose knobs will be tried.
        first: static; position of the first root: what comes before is context only.
    Raises:
        ValueError: windows of less than two tokens, a token outside the vocabulary, or a first root beyond the text. Traced
            tokens are not checked.
    """
    _, length = check_tokens("tokens", tokens, vocab_size=config.vocab_size, least=2)
    check_count("first", first, least=0, most=length - 2)
    check_network(params, vocab_size=config.vocab_size, hidden_size=config.hidden_size)
    return _calibrate(params, config, tokens, scheme=scheme, first=first)


@partial(jax.jit, static_argnames=("config", "scheme", "first"))
def _calibrate(
    params: Params, config: DecoderConfig, tokens: Int[Array, "batch token_plus_1"], *, scheme: Scheme, first: int
) -> Calibration:
    result = forward_text(params, config, tokens[:, :-1], kv_codec=round_kv, keep_activations=True, logits_from=first)
    assert result.activations is not None
    return Calibration(
        params=params,
        prepared=prepare(scheme, params, activation_norms(result.activations)),
        text=TargetText(tokens=tokens, logits=result.logits),
        kv=prepare_kv(scheme, result.cache),
        config=config,
    )
