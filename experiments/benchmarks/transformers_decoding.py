"""Tokens per second of greedy decoding beside transformers: same machine, same number of threads, same weights and prompts.

    python -m experiments.benchmarks transformers_decoding

Needs torch and transformers, which are no dependencies. The embedded network, and random weights in the shape of Qwen3-0.6B in
the type that they are stored in; both decode with a KV cache, one token per step.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.harness import row
from experiments.clock import medians_s
from experiments.random_checkpoint import SHAPES, write_checkpoint
from jaxspec.models.embedded import embedded_directory, load_model
from jaxspec.models.stored import as_computed
from jaxspec.speculate import GREEDY, chain_limits, decode_autoregressively
from jaxspec.tuning import target_params

#: Network, prompts, tokens of a prompt, tokens decoded, repeats.
_CASES = (
    ("embedded", 1, 64, 64, 5),
    ("embedded", 32, 64, 64, 5),
    ("qwen3-0.6b", 1, 32, 16, 3),
    ("qwen3-0.6b", 32, 32, 8, 3),
)


def transformers_decoding() -> list[dict[str, Any]]:
    """Ours beside `generate`, both after one run that compiles and warms up."""
    try:
        import torch  # noqa: F401  # pyright: ignore[reportMissingImports]
        import transformers  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        return [{"name": "transformers_decoding", "failed": f"not installed ({error.name})"}]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, batch, prompt_tokens, new_tokens, repeats in _CASES:
            directory = embedded_directory() if name == "embedded" else Path(folder) / name
            if not directory.is_dir():
                write_checkpoint(SHAPES[name], directory)
            case = directory, batch, prompt_tokens, new_tokens
            seconds = medians_s((_ours(*case), _theirs(*case)), repeats)
            ours, theirs = (batch * new_tokens / one for one in seconds)
            workload = f"{name}, {batch} prompts of {prompt_tokens}, {new_tokens} tokens each, greedy"
            peer = f"transformers {_stored_type(name)}"
            rows.append(row("transformers_decoding", workload, ours, theirs, peer, "tokens/s", ours / theirs))
    return rows


def _stored_type(name: str) -> str:
    # A small network is decoded in float32 by both: that is the faster way for each of them.
    return "float32" if name == "embedded" else "bfloat16"


def _prompts(vocab_size: int, batch: int, tokens: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, vocab_size, (batch, tokens)).astype(np.int32)


def _ours(directory: Path, batch: int, prompt_tokens: int, new_tokens: int) -> Any:
    loaded = load_model(directory)
    params = as_computed(target_params(loaded.params))
    prompts = jnp.asarray(_prompts(loaded.config.vocab_size, batch, prompt_tokens))
    options = {"draft": None, "limits": chain_limits(1), "config": loaded.config, "num_tokens": new_tokens}
    return functools.partial(
        decode_autoregressively, params, None, prompts, jnp.arange(batch), jax.random.key(0), GREEDY, **options
    )


def _theirs(directory: Path, batch: int, prompt_tokens: int, new_tokens: int) -> Any:
    import torch  # pyright: ignore[reportMissingImports]
    from transformers import AutoModelForCausalLM  # pyright: ignore[reportMissingImports]

    dtype = torch.float32 if directory == embedded_directory() else torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
    prompts = torch.tensor(_prompts(model.config.vocab_size, batch, prompt_tokens)).long()
    settings = {"do_sample": False, "min_new_tokens": new_tokens, "max_new_tokens": new_tokens, "pad_token_id": 0}

    def run() -> np.ndarray:
        with torch.inference_mode():
            return model.generate(prompts, attention_mask=torch.ones_like(prompts), **settings).numpy()

    return run
