"""The proof: prompts decoded with and without speculation, and counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxspec.checks import check_lengths, check_sampling, check_tokens
from jaxspec.errors import InputError
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.mesh import mesh_of, split_rows
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.chunks import Prompts, gather, generated_tokens, prompt_chunks
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.dynamic_tree import DynamicTree
from jaxspec.speculate.engine import autoregressive_tree, decode
from jaxspec.speculate.expansion import CandidateLaw, TreeLimits, chain_limits
from jaxspec.speculate.loop import Request
from jaxspec.trees.public_trees import chain_tree
from jaxspec.trees.topology import Tree

__all__ = [
    "TIE_MARGIN",
    "WIDTH",
    "check_logits",
    "continuation_length",
    "continue_texts",
    "count_mismatches",
    "decode_chains",
    "decode_prompts",
]

#: Largest static width of a verification of a chain: whatever is drafted, and for autoregressive decoding too.
WIDTH = MAX_DRAFT_LENGTH + 1

#: Greedy differences of a text count on a GPU unless the two largest logits were closer than this at the first of them.
TIE_MARGIN = 1e-3


def _nothing() -> None:
    """No progress is shown."""


def continuation_length(output_tokens: int) -> int:
    """Tokens to decode autoregressively so that drafts can be measured at every start within `output_tokens`, and two blocks of
    the longest draft fit (see `block_pass`)."""
    return max(output_tokens, 2 * MAX_DRAFT_LENGTH - WIDTH) + WIDTH


def decode_prompts(
    target: Params,
    config: DecoderConfig,
    draft: ReadyDraft | None,
    prompts: Prompts,
    tree: Tree | DynamicTree,
    *,
    law: CandidateLaw = "top",
    limits: TreeLimits | None = None,
    room: int | None = None,
    advance: Callable[[], None] = _nothing,
) -> dict[str, np.ndarray]:
    """`decode` over all prompts, chunk by chunk.

    Args:
        draft: None where the tree has no nodes.
        law, limits, room: as for `decode`.
        advance: called after each chunk.
    Returns:
        The fields of `Decoded`, over all prompts.
    Raises:
        ValueError: see `decode`.
        InputError: logits that are no numbers.
    """
    count, places = check_tokens("prompts", prompts.tokens, vocab_size=config.vocab_size)
    check_lengths(prompts.lengths, count, places)
    check_sampling(prompts.decoding)
    temperature = jnp.asarray(prompts.decoding.temperature, jnp.float32)
    decoding = dataclasses.replace(prompts.decoding, temperature=temperature)
    options = {"config": config, "law": law, "limits": limits, "room": room}
    options |= {"draft": None if draft is None else draft.draft}
    stop = jnp.asarray(prompts.stop, jnp.int32)
    params = None if draft is None else draft.params
    parts = []
    for chunk in prompt_chunks(prompts.tokens, mesh_of(target), sharing=1 if draft is None else draft.sharing):
        key = jax.random.key(prompts.seed)
        rows = (chunk.prompts, chunk.ids, chunk.of(prompts.known_lengths))
        prompts_here, ids, of_these = split_rows(target, *rows)
        request = Request(prompts_here, ids, key, prompts.num_tokens, of_these, stop)
        result = decode(target, params, request, tree, decoding, **options)
        parts.append((jax.block_until_ready(result), chunk.real))
        advance()
    return _of_numbers(gather(parts))


def _of_numbers(decoded: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same. Logits that are no numbers choose one token for target and draft, whatever these are: all would be accepted."""
    check_logits(decoded["margin"])
    return decoded


def decode_chains(
    target: Params,
    config: DecoderConfig,
    draft: ReadyDraft,
    prompts: Prompts,
    draft_length: int,
    *,
    longest: int = MAX_DRAFT_LENGTH,
    room: int | None = None,
    advance: Callable[[], None] = _nothing,
) -> dict[str, np.ndarray]:
    """`decode_prompts` with chains of 0 to `longest` tokens, all at one static width; 0 decodes autoregressively.

    Decoding with any lengths and any parameters of one draft shares one compilation. The draft samples when the target does.

    Args:
        longest: static; whatever is compared token by token is decoded with the same.
    """
    tree, law = chain_tree(draft_length, longest + 1), "top" if prompts.decoding.greedy else "sampled"
    how = {"limits": chain_limits(longest + 1), "room": room, "advance": advance}
    return decode_prompts(target, config, draft, prompts, tree, law=law, **how)


def continue_texts(
    target: Params, config: DecoderConfig, prompts: Prompts, *, advance: Callable[[], None] = _nothing
) -> dict[str, np.ndarray]:
    """`decode_prompts` without a draft, one token per step: several times as fast as at the width of a verification.

    Its products are narrower than a verification's, so that their last bits may differ: it is no baseline of a proof.
    """
    alone = chain_limits(1)
    return decode_prompts(target, config, None, prompts, autoregressive_tree(alone), limits=alone, advance=advance)


def count_mismatches(
    speculative: dict[str, np.ndarray],
    autoregressive: dict[str, np.ndarray],
    prompt_tokens: int | np.ndarray,
    num_tokens: int,
) -> dict[str, int | float]:
    """Greedy outputs compared token by token, up to `num_tokens` or to where they stopped.

    Args:
        prompt_tokens: of all prompts, or of each.
    Returns:
        prompts, tokens (compared), mismatches (prompts' tokens after a first difference count too, and what one output has
        where the other has ended), ties (differences of texts whose first one has a margin below TIE_MARGIN, told apart
        only off CPUs), smallest_margin.
    """
    lengths = np.broadcast_to(np.asarray(prompt_tokens), len(speculative["tokens"]))

    def of_both(name: str) -> list[np.ndarray]:
        both = speculative, autoregressive
        return [generated_tokens(one[name], lengths, one["generated"], num_tokens) for one in both]

    ours, theirs = of_both("tokens")
    differs = ours != theirs
    # What led to a text's first difference is the same for both; from there on they are two texts. No tie ends one alone.
    margin = np.where((ours < 0) | (theirs < 0), np.inf, np.minimum(*of_both("margin")))
    tied = np.take_along_axis(margin, differs.argmax(axis=1)[:, None], axis=1)[:, 0] < TIE_MARGIN
    excused = differs & tied[:, None] if jax.default_backend() != "cpu" else np.zeros_like(differs)
    return {
        "prompts": int(differs.shape[0]),
        "tokens": int(np.sum((ours >= 0) | (theirs >= 0))),
        "mismatches": int(np.sum(differs & ~excused)),
        "ties": int(np.sum(excused)),
        "smallest_margin": float(np.min(speculative["margin"])),
    }


def check_logits(following: Float[np.ndarray, "text place"]) -> None:
    """Refuse what a network decoded with logits that are no numbers.

    Args:
        following: of each token, what follows from its logits alone, as a log-probability; NaN where they were no numbers.
    Raises:
        InputError: some were not.
    """
    if wrong := int(np.count_nonzero(np.isnan(following).any(axis=1))):
        raise InputError(
            f"the network's logits are no numbers (NaN) for {wrong} of {len(following)} texts: its weights hold NaN or "
            "infinities, or values overflow in its number format; check the checkpoint"
        )
