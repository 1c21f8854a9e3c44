"""Speculative decoding in wall-clock time: chains of each draft beside the target alone, one prompt at a time."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.harness import row
from experiments.clock import median_s
from jaxspec.compress import DEFAULT_SCHEME, hard_draft, uniform_knobs
from jaxspec.models.embedded import HEAD_NAME, SMALL_NAME, load_model
from jaxspec.models.stored import as_computed
from jaxspec.speculate import GREEDY, chain_limits, decode, decode_autoregressively
from jaxspec.speculate.drafts import ReadyDraft, make_draft, self_draft
from jaxspec.text import load_text, windows
from jaxspec.trees import chain_tree
from jaxspec.tuning import calibrate, target_params

TOKENS, PROMPT_TOKENS = 64, 128

#: Draft and its draft length: the ones that pay, and those of which one would like to know by how much they do not.
CHAINS = (("ngram", 1), ("ngram", 4), (HEAD_NAME, 4), (SMALL_NAME, 1), ("self", 4))


def decoding_speed() -> list[dict[str, Any]]:
    """Tokens per second of chains, against autoregressive decoding at width 1."""
    loaded = load_model("embedded")
    config, stored = loaded.config, target_params(loaded.params)
    target = as_computed(stored)
    text = load_text("stdlib", loaded.tokenizer)
    prompt, ids = jnp.asarray(windows(text.held_out, 1, PROMPT_TOKENS, 0)), jnp.zeros(1, jnp.int32)

    def compressed():
        knobs = uniform_knobs(DEFAULT_SCHEME, config)
        sample = jnp.asarray(windows(text.calibration, 8, 2 * PROMPT_TOKENS, 0))
        prepared = calibrate(stored, config, sample, scheme=DEFAULT_SCHEME, first=PROMPT_TOKENS).prepared
        return self_draft(config, as_computed(hard_draft(stored, prepared, knobs)), knobs)

    def tokens_per_s(run: Any) -> float:
        found = run()
        return float(np.sum(found.generated)) / median_s(run)

    shared = {"config": config, "num_tokens": TOKENS}

    def chain_speed(draft: ReadyDraft, length: int) -> float:
        def run():
            tree, options = chain_tree(length, length + 1), {"draft": draft.draft, **shared}
            return decode(target, draft.params, prompt, ids, tree, jax.random.key(0), GREEDY, **options)

        return tokens_per_s(run)

    alone = functools.partial(decode_autoregressively, target, None, prompt, ids, jax.random.key(0), GREEDY)
    peer = tokens_per_s(lambda: alone(draft=None, limits=chain_limits(1), **shared))
    rows = []
    for name, length in CHAINS:
        speed = chain_speed(compressed() if name == "self" else make_draft(name, loaded), length)
        workload = f"draft {name}, draft length {length}, embedded network, 1 prompt x {TOKENS} tokens, greedy"
        rows.append(row("decoding_speed", workload, speed, peer, "the target alone", "tokens/s", speed / peer))
    return rows
