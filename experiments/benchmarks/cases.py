"""Benchmarks of decoding, samples and experts; those of design points, trees and coding are beside them."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.hardware import decode_steps, gpu_gradients, matrix_units
from experiments.benchmarks.harness import median_s, medians_s, row
from experiments.benchmarks.model_peers import model_peers
from experiments.benchmarks.trees import trace_walks, tree_search, tree_simulation
from experiments.random_checkpoint import SHAPES, write_checkpoint
from hwmodels.networks import ExpertSizes
from jaxspec.models.blocks import Experts, StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.dots import dot_few_rows, dot_rows
from jaxspec.models.embedded import embedded_directory, load_model
from jaxspec.models.matrix import stack_of
from jaxspec.models.stored import as_computed
from jaxspec.scaling import sample_continuations
from jaxspec.speculate import GREEDY, chain_limits, decode_autoregressively
from jaxspec.text import load_text, windows
from jaxspec.tuning import target_params

__all__ = [
    "expert_dispatch",
    "few_rows",
]


# Tokens per second of greedy decoding beside transformers: same machine, same number of threads, same weights and
# prompts.
#
# python -m experiments.benchmarks transformers_decoding
#
# Needs torch and transformers, which are no dependencies. The embedded network, and random weights in the shape of
# Qwen3-0.6B in the type that they are stored in; both decode with a KV cache, one token per step.

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


_ROWS = (1, 2, 5, 9, 17, 32, 64, 144)

#: Passes over the network in one program.
_PASSES = 50


def few_rows() -> list[dict[str, Any]]:
    """Rows read by their transpose, against rows as they lie."""
    layers = target_params(load_model("embedded").params)["layers"]
    kinds = [stack for stack in map(stack_of, layers.values()) if len(stack.shape) == 3]
    values = [stack.values() for stack in kinds]
    matrices = [jnp.asarray(stack[place], jnp.float32).T for place in range(len(values[0])) for stack in values]
    calls: list[Callable[[], Any]] = []
    for rows in _ROWS:
        for product in (dot_few_rows, lambda x, matrix: dot_rows(x, matrix.T)):
            calls.append(_passes(product, matrices, rows))
    seconds = np.array(medians_s(calls, 15)).reshape(-1, 2) / _PASSES
    return [
        row("few_rows", f"{rows} rows, embedded network, float32", ours, peer, "rows as they lie", "s", peer / ours)
        for rows, (ours, peer) in zip(_ROWS, seconds.tolist(), strict=True)
    ]


def _passes(product: Callable[..., Any], matrices: list[Any], rows: int) -> Callable[[], Any]:
    widest = max(matrix.shape[0] for matrix in matrices)

    @jax.jit
    def run(x: Any, matrices: list[Any]) -> Any:
        def one(_: Any, x: Any) -> Any:
            for matrix in matrices:
                # What comes next waits for the product, and is what it was.
                x = x + 1e-30 * jnp.mean(product(x[:, : len(matrix)], matrix))
            return x

        return jax.lax.fori_loop(0, _PASSES, one, x)

    x = jnp.asarray(np.random.default_rng(rows).standard_normal((rows, widest), np.float32))
    return lambda: run(x, matrices)


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
    rates = ((samples, tokens_per_s(samples, samples)) for samples in (4, 16, 64))
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
        for samples, together in rates
    ]


#: Experts and choices of Qwen3-30B-A3B, at half its width, so that a layer in float32 has 0.6 GB.
_CONFIG = DecoderConfig(
    vocab_size=8,
    hidden_size=1024,
    intermediate_size=384,
    num_layers=1,
    num_heads=8,
    num_kv_heads=2,
    head_dim=128,
    experts=ExpertSizes(num_experts=128, per_token=8, inner_size=384),
    feed_forward=(Experts(),),
)

_TOKENS = (1, 16, 256)


def expert_dispatch() -> list[dict[str, Any]]:
    """A whole layer of experts (router, choice, sorting, products, weighing) against the products of the experts that are
    chosen, each with the rows that chose it, all known when the program is compiled: no dispatch can be faster."""
    rng = np.random.default_rng(0)
    draw = lambda shape: jnp.asarray(rng.standard_normal(shape, np.float32) * shape[-1] ** -0.5)
    weights = {name: draw(shape) for name, shape in Experts().matrices(_CONFIG).items()}
    rows = []
    for dtype in (jnp.float32, jnp.bfloat16):
        stored = {name: value.astype(dtype) for name, value in weights.items()}
        for tokens in _TOKENS:
            x = jnp.asarray(rng.standard_normal((1, tokens, _CONFIG.hidden_size), np.float32))
            ours, peer = _programs(stored, x)
            ours_s, peer_s = medians_s((ours, peer), 9)
            workload = f"{tokens} tokens, 128 experts, top-8, stored in {jnp.dtype(dtype).name}"
            rows.append(
                row("expert_dispatch", workload, ours_s, peer_s, "active experts' products", "s", peer_s / ours_s)
            )
    return rows


def _programs(stored: dict[str, Any], x: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The layer, and the products of its active experts."""
    tokens = x.shape[1]
    step = StepInput(jnp.arange(tokens)[None], jnp.ones((1, tokens, tokens), bool))
    kept = {name: value if name == "router" else stack_of(value) for name, value in stored.items()}
    layer = jax.jit(lambda kept, x: Experts().apply(x, kept, _CONFIG, step)._replace(inputs={}))
    choices = layer(kept, x).choices
    assert choices is not None
    used = np.asarray(choices.used[0])
    active = [
        (
            {name: stack_of(value[expert]) for name, value in stored.items() if name != "router"},
            x[0][(used == expert).any(1)],
        )
        for expert in np.unique(used)
    ]

    def product(weights: dict[str, Any], rows: Any) -> Any:
        # Behind a barrier: XLA would fuse widening into products of one row, which makes them slow.
        wide = lambda kind: jax.lax.optimization_barrier(weights[f"expert_{kind}"].values().astype(x.dtype))
        times = lambda x, kind: x @ wide(kind).T
        return times(jax.nn.silu(times(rows, "gate")) * times(rows, "up"), "down")

    products = jax.jit(lambda active: [product(*one) for one in active])
    return lambda: layer(kept, x).output, lambda: products(active)


def lossless() -> list[dict[str, Any]]:
    """Decoding and packing of 64 M bfloat16 weights on one core, beside constriction, zipnn, pcodec, NumPy and gzip."""
    command = [sys.executable, "-m", "experiments.benchmarks.lossless"]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    exact = report["exact_huffman_bits"]["varied"]
    rows = []
    for ours, peer in report["pairs"]:
        bits = f"{ours['bits_per_weight']:.3f} against {peer['bits_per_weight']:.3f} bits per weight"
        workload = f"{ours['name'].removeprefix('ours: ')}; {bits}, exact Huffman of the exponents {exact:.3f}"
        ratio = ours["rate"] / peer["rate"]
        rows.append(
            row("lossless", workload, ours["rate"], peer["rate"], peer["name"], "MB/s of bfloat16, one core", ratio)
        )
    return rows + [{"name": "lossless", "failed": reason} for reason in report["absent"]]


CASES = {
    "decode_steps": decode_steps,
    "matrix_units": matrix_units,
    "gpu_gradients": gpu_gradients,
    "model_peers": model_peers,
    "transformers_decoding": transformers_decoding,
    "sampling": sampling,
    "lossless": lossless,
    "tree_simulation": tree_simulation,
    "tree_search": tree_search,
    "trace_walks": trace_walks,
    "expert_dispatch": expert_dispatch,
    "few_rows": few_rows,
}
