"""Samples of one prompt in one batch over one copy of its KV, beside a loop of single samples."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from experiments.benchmarks.harness import row
from experiments.clock import median_s
from jaxspec.models.embedded import load_model
from jaxspec.models.stored import as_computed
from jaxspec.scaling import sample_continuations
from jaxspec.text import load_text, windows
from jaxspec.tuning import target_params

PROMPT_TOKENS, TOKENS = 256, 128


def sampling() -> list[dict[str, Any]]:
    """Tokens per second of N samples, against N samples one after the other at width 1."""
    loaded = load_model("embedded")
    params = as_computed(target_params(loaded.params))
    text = load_text("stdlib", loaded.tokenizer)
    prompt = np.asarray(windows(text.held_out, 1, PROMPT_TOKENS, 0))[0]

    def tokens_per_s(samples: int, width: int) -> float:
        run = lambda: sample_continuations(
            params, loaded.config, prompt, samples=samples, num_tokens=TOKENS, seed=jax.random.key(0), width=width
        )
        return samples * TOKENS / median_s(run, repeats=3)

    one = tokens_per_s(4, 1)
    found = ((samples, tokens_per_s(samples, samples)) for samples in (4, 16, 64))
    return [
        row(
            "sampling",
            f"{samples} samples x {TOKENS} tokens of a prompt of {PROMPT_TOKENS}, embedded network, temperature 1",
            together,
            one,
            "one sample after the other",
            "tokens/s",
            together / one,
        )
        for samples, together in found
    ]
