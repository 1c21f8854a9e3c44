"""Cycles of a chain of drafted tokens along a known text, one after the other, with the memory that decoding would have.

For drafts whose acceptance at a root depends on earlier cycles: an elastic draft's pool of experts follows from all tokens
that it drafted, refused ones too. Of other drafts the renewal of cycles (`jaxspec.speculate.expected_cycles`) tells the mean
over all ways along the text; here one way is drawn, which under greedy decoding is the only one.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, unembed
from jaxspec.speculate.drafts.interface import Draft, Memory
from jaxspec.speculate.expected_cycles import CycleStatistics
from jaxspec.speculate.heard_text import chain_level, hear
from jaxspec.speculate.keys import Purpose, draw_keys
from jaxspec.speculate.rules import residual_distribution
from jaxspec.speculate.sampling import Decoding, token_distribution

__all__ = ["follow_cycles"]


class _State(NamedTuple):
    memory: Memory
    generated: Array  # tokens behind the prompt, the root included
    cycles: Array
    survival: Array


@partial(jax.jit, static_argnames=("draft", "config", "prompt_tokens", "most_drafted"))
def follow_cycles(
    target_params: Params,
    draft_params: Any,
    texts: Int[Array, "batch token"],
    text_ids: Int[Array, " batch"],
    lengths: Int[Array, " batch"],
    ends: Int[Array, " batch"],
    draft_length: Int[Array, ""] | int,
    num_tokens: Int[Array, ""] | int,
    seed: Key[Array, ""],
    decoding: Decoding,
    *,
    draft: Draft,
    config: DecoderConfig,
    prompt_tokens: int,
    most_drafted: int,
) -> CycleStatistics:
    """Let the draft go along texts that the target put out: it drafts, is told how much of it the text accepts, and goes on.

    A drafted token is accepted with the probability that it had given that decoding put out this very text. A refused one is
    drawn from what the draft proposes too often, and those behind it from the draft, as in decoding: memory gets what it would.

    Args:
        texts: prompts and what the target put out after them, each from place 0 on; those that are decoded together.
        text_ids: name the texts for random draws.
        lengths: of the prompts. ends: tokens up to where each text stops; more than there are where it does not.
        draft_length: 1 to `most_drafted`, which is static: lengths share one compilation.
        num_tokens: cycles end with the one that reaches this many; the texts have `most_drafted` more.
        prompt_tokens: static; places of the longest prompt.
    Returns:
        Counts of one way along each text. Its mean over draws, and over texts that are samples, is what is expected.
    Source: Leviathan et al. 2023, arXiv:2211.17192, Algorithm 1, conditioned on the tokens that it puts out.
    """
    batch, window = texts.shape[0], most_drafted + 1
    numbers = window + 1
    # A sequence that has finished goes on from its last root until all have; it may reach over its text's end.
    heard = hear(target_params, config, texts, padding=1, beyond=2 * window)
    slots = heard.tokens.shape[1]

    def judge(
        logits: Array, followed: Bool[Array, " batch"], depth: Array, root: Array
    ) -> tuple[Int[Array, " batch"], Bool[Array, " batch"]]:
        """The drafted token of a depth, and whether it and all before it are accepted."""
        position = root + depth
        said = jnp.take_along_axis(heard.target.hidden, position[:, None, None] - 1, axis=1)[:, 0]
        p, q = token_distribution(unembed(said, target_params, config), decoding), token_distribution(logits, decoding)
        token = heard.token_at(position)
        p_text, q_text = (jnp.take_along_axis(x, token[:, None], axis=1)[:, 0] for x in (p, q))
        chance = jnp.where(p_text > 0, q_text / jnp.where(p_text > 0, p_text, 1.0), 0.0)
        accept_key, token_key = jax.vmap(jax.random.split, out_axes=1)(
            draw_keys(seed, Purpose.FOLLOW, text_ids, position)
        )
        accepted = followed & (jax.vmap(jax.random.uniform)(accept_key) < chance)
        # Given what came out, draft and target change places in the rules of a drafted token.
        others = jnp.where(followed[:, None], residual_distribution(q, p), q)
        other = jax.vmap(jax.random.categorical)(token_key, jnp.log(others))
        return jnp.where(accepted, token, other.astype(token.dtype)), accepted

    def cycle(state: _State) -> _State:
        position = lengths - 1 + state.generated
        root = heard.root(position)
        logits, memory = draft.open(draft_params, state.memory, root)

        def ask(depth: Array, carry: tuple) -> tuple:
            memory, logits, followed, count = carry
            token, followed = judge(logits, followed, depth, position)
            logits, memory = draft.extend(draft_params, memory, root, chain_level(token, depth, numbers))
            return memory, logits[:, 0], followed, count + followed.astype(count.dtype)

        carry = memory, logits, jnp.ones(batch, bool), jnp.zeros(batch, jnp.int32)
        memory, logits, followed, count = jax.lax.fori_loop(1, draft_length, ask, carry)
        _, followed = judge(logits, followed, jnp.asarray(draft_length), position)
        count = count + followed.astype(count.dtype)
        active = (state.generated < num_tokens) & (state.generated < ends)
        room = ends - state.generated  # a text's last token takes the place of the one that a cycle adds
        inside = jnp.minimum(count, room)
        yielded = jnp.minimum(count + 1, room)
        hits = (jnp.arange(most_drafted) < inside[:, None]) & active[:, None]
        return _State(
            memory=draft.commit(draft_params, memory, heard.committed(position, window, count + 1)),
            generated=jnp.where(active, state.generated + yielded, state.generated),
            cycles=state.cycles + active.astype(jnp.int32),
            survival=state.survival + hits.astype(jnp.int32),
        )

    # The barrier keeps XLA from computing, at compile time, what an empty memory makes of the prompt.
    memory, at_start = jax.lax.optimization_barrier(
        (draft.empty(draft_params, batch, slots, numbers), jnp.zeros(batch, jnp.int32))
    )
    memory = draft.commit(draft_params, memory, heard.committed(at_start, prompt_tokens - 1, lengths - 1))
    none = jnp.zeros(batch, jnp.int32)
    state = _State(memory, none, none, jnp.zeros((batch, most_drafted), jnp.int32))
    unfinished = lambda state: jnp.any((state.generated < num_tokens) & (state.generated < ends))
    state = jax.lax.while_loop(unfinished, cycle, state)
    real = lambda counts: counts.astype(jnp.float32)
    return CycleStatistics(real(state.cycles), real(state.survival), real(state.generated))
