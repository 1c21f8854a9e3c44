"""How often a draft's likeliest token is the target's, depth by depth, on text that the target wrote after held-out prompts."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.embedded import load_model
from jaxspec.speculate.drafts.interface import Draft
from jaxspec.speculate.engine import decode_autoregressively
from jaxspec.speculate.expansion import chain_limits
from jaxspec.speculate.loop import Request
from jaxspec.speculate.measured_ranks import measure_ranks
from jaxspec.speculate.sampling import GREEDY
from jaxspec.text.windows import load_text, windows
from jaxspec.trees.rank_traces import UNKNOWN

PROMPTS, PROMPT_TOKENS, NEW_TOKENS, DEPTH, SEED = 64, 128, 128, 5, 0


class Agreement(NamedTuple):
    """Shares of roots, by depth.

    Attributes:
        given_target: the draft's likeliest token is the target's, after the target's own tokens before it.
        survival: it is so at this depth and at all before it: what a greedy chain accepts.
        roots: how many roots there are of depth 1.
    """

    given_target: Float[Array, " depth"]
    survival: Float[Array, " depth"]
    roots: int


def measure_agreement(
    target: Params, config: DecoderConfig, draft: Draft, draft_params: Any, prompts: np.ndarray
) -> Agreement:
    """Agreement under greedy decoding, every token of the target's text being a root once.

    Args:
        prompts: "batch token".
    """
    batch, length = prompts.shape
    decoded = decode_autoregressively(
        target,
        None,
        Request(jnp.asarray(prompts), jnp.arange(batch), jax.random.key(SEED), NEW_TOKENS),
        GREEDY,
        draft=None,
        config=config,
        limits=chain_limits(1),
    )
    texts = decoded.tokens[:, : length + NEW_TOKENS]
    ranks = measure_ranks(
        target, draft_params, texts, draft=draft, config=config, prompt_tokens=length, depth=DEPTH
    ).rank
    known, first = ranks != UNKNOWN, ranks == 0
    share = lambda hit: jnp.sum(hit & known, axis=(0, 1)) / jnp.sum(known, axis=(0, 1))
    survival = jnp.cumprod(first.astype(jnp.int32), axis=-1).astype(bool)
    return Agreement(share(first), share(survival), int(jnp.sum(known[..., 0])))


def embedded_agreement(draft: Draft, draft_params: Any, target_name: str = "embedded") -> Agreement:
    """Agreement of a draft with a network that ships, on the held-out modules of the committed snapshot."""
    target = load_model(target_name, dtype=jnp.float32)
    prompts = windows(load_text("stdlib", target.tokenizer).held_out, PROMPTS, PROMPT_TOKENS, SEED)
    return measure_agreement(target.params, target.config, draft, draft_params, prompts)


def agreement_lines(agreement: Agreement) -> str:
    """Lines of a model card, which go on from a sentence that says on which text."""
    row = lambda values: ", ".join(f"{float(value):.3f}" for value in values)
    return (
        f"the likeliest tokens agree at depths 1 to {DEPTH}\n"
        f"  in {row(agreement.given_target)} of the cases, the network's own tokens before them given, and in\n"
        f"  {row(agreement.survival)} together with all before them\n"
        f"  (greedy; {PROMPTS} prompts of {PROMPT_TOKENS} bytes, {NEW_TOKENS} bytes after each, {agreement.roots} roots)."
    )
