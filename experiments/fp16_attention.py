"""Attention in float16 with exponentials from a table, beside float32 attention: `python -m experiments.fp16_attention`.

On held-out text of the embedded network, or of any directory: at how many places the likeliest next token is the same, and
bits per token of both.
"""

from __future__ import annotations

import argparse
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxspec.models.decoder import forward_text
from jaxspec.models.embedded import EMBEDDED_NAME, load_model
from jaxspec.models.fp16_attention import attend_fp16
from jaxspec.models.stored import as_computed
from jaxspec.text import load_text
from jaxspec.tuning import target_params

_AT_ONCE = 4


def compared(model: str, texts: int, tokens: int) -> dict[str, float]:
    """Share of places with the same likeliest token, and nats per token with float32 and with float16 attention."""
    loaded = load_model(model)
    config, params = loaded.config, as_computed(target_params(loaded.params))
    rows = np.asarray(load_text("stdlib", loaded.tokenizer).held_out_windows(texts, tokens + 1, 0))

    @jax.jit
    def both(params, part):
        exact, found = (forward_text(params, config, part[:, :-1], attend=way).logits for way in (None, attend_fp16))
        nats = [optax.softmax_cross_entropy_with_integer_labels(x, part[:, 1:]).mean() for x in (exact, found)]
        return jnp.mean(jnp.argmax(exact, -1) == jnp.argmax(found, -1)), *nats

    parts = [both(params, jnp.asarray(part)) for part in np.array_split(rows, max(1, texts // _AT_ONCE))]
    weights = [len(part) for part in np.array_split(rows, max(1, texts // _AT_ONCE))]
    names = ("same_likeliest", "float32_nats", "float16_nats")
    return dict(zip(names, np.average(np.asarray(parts, np.float64), axis=0, weights=weights).tolist(), strict=True))


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(prog="python -m experiments.fp16_attention", description=__doc__)
    parser.add_argument("--model", default=EMBEDDED_NAME, help="an embedded network or a directory")
    parser.add_argument("--texts", type=int, default=64, help="windows of held-out text")
    parser.add_argument("--tokens", type=int, default=512, help="tokens of a window")
    args = parser.parse_args()
    found = compared(args.model, args.texts, args.tokens)
    print(f"same likeliest next token: {found['same_likeliest']:.3%} of {args.texts * args.tokens} places (measured)")
    exact, half = (found[name] / math.log(2) for name in ("float32_nats", "float16_nats"))
    print(f"bits per token: {exact:.5f} in float32, {half:.5f} in float16: {half / exact - 1:+.4%} (measured)")


if __name__ == "__main__":
    main()
