"""The benchmarks of the main job: design points per second, acceptance of a draft, a cold start."""

from __future__ import annotations

import functools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hwmodels
from experiments.benchmarks.gpu_gradients import gpu_gradients
from experiments.benchmarks.hardware import decode_steps, matrix_units
from experiments.benchmarks.harness import row
from experiments.benchmarks.model_peers import model_peers
from experiments.benchmarks.sweeps import sweeps
from experiments.benchmarks.transformers_decoding import transformers_decoding
from experiments.benchmarks.trees import trace_walks, tree_search, tree_simulation
from experiments.clock import median_s, medians_s
from hwmodels import catalog
from hwmodels.networks import ExpertSizes
from jaxspec.compress import DEFAULT_SCHEME, MAX_DRAFT_LENGTH, hard_draft, uniform_knobs
from jaxspec.models.blocks import Experts, StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.dots import dot_few_rows, dot_rows
from jaxspec.models.embedded import HEAD_NAME, SMALL_NAME, load_model
from jaxspec.models.matrix import stack_of
from jaxspec.models.stored import as_computed
from jaxspec.runs import Reporter, RunDirectory
from jaxspec.scaling import sample_continuations
from jaxspec.speculate import GREEDY, chain_limits, decode, decode_autoregressively, decode_chains
from jaxspec.speculate.drafts import ReadyDraft, make_draft, self_draft
from jaxspec.speculate.proof import continuation_length
from jaxspec.studies import TuneConfig
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.work import begin_work
from jaxspec.text import load_text, windows
from jaxspec.trees import chain_tree
from jaxspec.tuning import calibrate, target_params

__all__ = ["expert_dispatch", "few_rows"]


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


def design_points() -> dict[str, Any]:
    """Speedup of a chain at every draft length, jit(vmap) over footprints, against the same formula in a NumPy loop."""
    points = 20_000
    rng = np.random.default_rng(0)
    bits = rng.uniform(3, 12, points)
    alpha = rng.uniform(0.3, 0.99, points)
    device, shape = catalog.device("rtx-4090"), catalog.architecture("llama-3.1-8b")
    workload = hwmodels.Workload()

    def one(bits, alpha):
        widths = hwmodels.uniform_weight_bits(bits, hwmodels.LAYER_MATRICES)
        footprint = hwmodels.Footprint(widths, hwmodels.uniform_weight_bits(13.9, hwmodels.LAYER_MATRICES), 6.85, 10.85)
        acceptance = hwmodels.Acceptance(jnp.full(8, alpha))
        result = hwmodels.speculation_speedup(
            device, shape, workload=workload, footprint=footprint, acceptance=acceptance
        )
        return jnp.max(result.speedup_vs_bf16_ar)

    many = jax.jit(jax.vmap(one))
    ours = median_s(lambda: many(bits, alpha)) / points

    def plain(bits: float, alpha: float) -> float:
        """The same model with NumPy arrays over operators, one point at a time."""

        def step(tokens: float, weight: float, kv: float) -> float:
            q, k, hidden, wide, layers, vocab = 4096, 1024, 4096, 14336, 32, 128256
            sizes = np.array([q, k, k, q, wide, wide, wide]) * hidden * layers
            acts = np.array([hidden + q, 0, 0, q + 2 * hidden, hidden, wide, wide + 2 * hidden]) * 2.0 * layers * tokens
            seen = 1024 + (tokens + 1) / 2
            flops = np.append(2.0 * sizes * tokens, [4.0 * layers * q * seen * tokens, 2.0 * vocab * hidden * tokens])
            moved = np.append(
                sizes * weight / 8 + acts,
                [
                    2 * layers * k * (1024 * kv / 8 + 2 * tokens) + 4 * layers * q * tokens,
                    vocab * hidden * 2 + 2 * tokens * (hidden + vocab),
                ],
            )
            return float(np.maximum(flops / 165.2e12, moved / 1008e9).sum())

        base, draft = step(1, 16, 16), step(1, bits, 6.85)
        tokens, best = 1.0, base / step(1, 13.9, 10.85)
        for length in range(1, 9):
            tokens += alpha**length
            best = max(best, base * tokens / (length * draft + step(length + 1, 13.9, 10.85)))
        return best

    few = 200
    agreement = max(
        abs(plain(b, a) / float(s) - 1) for b, a, s in zip(bits[:few], alpha[:few], many(bits[:few], alpha[:few]))
    )
    assert agreement < 2e-3, f"the two models differ by {agreement:.1%}"
    peer = median_s(lambda: [plain(b, a) for b, a in zip(bits[:few], alpha[:few])], repeats=3) / few
    workload_name = f"{points} footprints x 9 draft lengths, Llama-3.1-8B on RTX 4090"
    return row(
        "design_points", workload_name, 1 / ours, 1 / peer, "NumPy, one point at a time", "points/s", peer / ours
    )


def acceptance() -> dict[str, Any]:
    """Acceptance of one draft at every position of held-out text: block passes against decoding it."""
    config = TuneConfig(prompts=48, calibration_prompts=48)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory("benchmark", config, inputs={}, out=folder)
        run = begin_work(config, directory, Reporter())
        drafts = HardDrafts(run, continuation_length(config.output_tokens))
        knobs = uniform_knobs(run.setup.scheme, run.setup.config)
        drafts.measure(knobs)
        ours = median_s(lambda: drafts.measure(knobs))
        draft = drafts.ready(knobs)

        def decoded():
            return decode_chains(
                run.setup.params,
                run.setup.config,
                draft,
                run.setup.prompts,
                MAX_DRAFT_LENGTH,
                num_tokens=64,
                decoding=GREEDY,
                seed=0,
            )

        peer = median_s(decoded, repeats=3)
        directory.close()
    workload = "48 prompts x 64 tokens, draft lengths 1 to 8, embedded network"
    return row("acceptance", workload, ours, peer, "speculative decoding of the same prompts", "s", peer / ours)


def cold_start() -> dict[str, Any]:
    """`jaxspec tune` from a new process to the finished report, beside `--quick`; peak memory in the workload's name."""

    def run(*flags: str) -> float:
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            command = [sys.executable, "-m", "jaxspec", "tune", "--out", folder, *flags]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return time.perf_counter() - started

    quick = run("--quick")
    whole = run()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    workload = f"embedded network, RTX 4090, peak memory {peak / 1e9:.2f} GB"
    return row("cold_start", workload, whole, quick, "the same with --quick", "s", quick / whole)


def lossless() -> list[dict[str, Any]]:
    """Decoding and packing of 64 M bfloat16 weights on one core, beside constriction, zipnn, pcodec, NumPy and gzip."""
    command = [sys.executable, "-m", "experiments.benchmarks.lossless"]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    exact = found["exact_huffman_bits"]["varied"]
    rows = []
    for ours, peer in found["pairs"]:
        bits = f"{ours['bits_per_weight']:.3f} against {peer['bits_per_weight']:.3f} bits per weight"
        workload = f"{ours['name'].removeprefix('ours: ')}; {bits}, exact Huffman of the exponents {exact:.3f}"
        ratio = ours["rate"] / peer["rate"]
        rows.append(
            row("lossless", workload, ours["rate"], peer["rate"], peer["name"], "MB/s of bfloat16, one core", ratio)
        )
    return rows + [{"name": "lossless", "failed": reason} for reason in found["absent"]]


CASES = {
    "design_points": design_points,
    "decode_steps": decode_steps,
    "matrix_units": matrix_units,
    "gpu_gradients": gpu_gradients,
    "model_peers": model_peers,
    "acceptance": acceptance,
    "decoding_speed": decoding_speed,
    "transformers_decoding": transformers_decoding,
    "sampling": sampling,
    "cold_start": cold_start,
    "sweeps": sweeps,
    "lossless": lossless,
    "tree_simulation": tree_simulation,
    "tree_search": tree_search,
    "trace_walks": trace_walks,
    "expert_dispatch": expert_dispatch,
    "few_rows": few_rows,
}
