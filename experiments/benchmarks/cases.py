"""The benchmarks of the main job: design points per second, acceptance of a draft, a cold start."""

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hwmodels
from experiments.benchmarks.hardware import decode_steps, gpu_gradients, matrix_units
from experiments.benchmarks.harness import median_s, medians_s, row
from experiments.benchmarks.model_peers import model_peers
from experiments.benchmarks.trees import trace_walks, tree_search, tree_simulation
from experiments.random_checkpoint import SHAPES, write_checkpoint
from hwmodels import catalog
from hwmodels.networks import ExpertSizes
from jaxspec.compress import DEFAULT_SCHEME, MAX_DRAFT_LENGTH, hard_draft, uniform_knobs
from jaxspec.models.blocks import Experts, StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.dots import dot_few_rows, dot_rows
from jaxspec.models.embedded import HEAD_NAME, SMALL_NAME, embedded_directory, load_model
from jaxspec.models.matrix import stack_of
from jaxspec.models.stored import as_computed
from jaxspec.runs import Reporter, RunDirectory
from jaxspec.scaling import sample_continuations
from jaxspec.speculate import GREEDY, chain_limits, decode, decode_autoregressively, decode_chains
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import ReadyDraft, make_draft, self_draft
from jaxspec.speculate.loop import Request
from jaxspec.speculate.proof import continuation_length
from jaxspec.studies import TuneConfig
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.run_context import begin_run
from jaxspec.text import load_text, windows
from jaxspec.trees import chain_tree
from jaxspec.tuning import calibrate, target_params

__all__ = ["expert_dispatch", "few_rows", "sweeps"]


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


# A sweep of ten million design points as a user runs it, from a new process to the finished file, figure and front.
#
# python -m experiments.benchmarks sweeps
#
# Timed is everything: starting, compiling, evaluating, writing parts, joining them, the front of three results for each
# batch, the figure, the result. Peak memory is that of the process. Axes: bandwidth, context, batch, width of the
# draft's weights, acceptance; every point has its best of eight draft lengths.

#: Seconds and bytes that ten million points may take on two cores.
TARGET_S, TARGET_BYTES = 60.0, 2e9

#: Device -> what its matrix unit is.
DEVICES = {"rtx-4090-calibrated": "calibrated GPU", "rtx-4090": "roofline", "hexagon-v75": "matrix-vector NPU"}

#: Ten million points; "DEVICE" is replaced by the name of a device.
SWEEP = Path(__file__).with_name("sweep.toml").read_text(encoding="utf-8")


def sweeps() -> list[dict[str, Any]]:
    """Seconds of a sweep of ten million points for each device, against the target."""
    rows = []
    for device, unit in DEVICES.items():
        try:
            seconds, peak = _timed(device)
        except subprocess.CalledProcessError as error:  # a failed benchmark is a result too
            rows.append({"name": "sweeps", "failed": f"{device}: {error.stderr.splitlines()[-1]}"})
            continue
        workload = f"10^7 points, {device} ({unit}): {1e7 / seconds:.3g} points/s, {peak / 1e9:.2f} GB"
        timed = row("sweeps", workload, seconds, TARGET_S, "target", "s", TARGET_S / seconds)
        rows.append(timed | {"peak_bytes": peak, "peak_target_bytes": TARGET_BYTES, "load": os.getloadavg()[0]})
    return rows


def _timed(device: str) -> tuple[float, int]:
    """Seconds and peak bytes of one sweep."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "sweep.toml"
        settings.write_text(SWEEP.replace("DEVICE", device))
        command = [sys.executable, "-m", "jaxspec", "sweep", str(settings), "--out", str(Path(folder) / "run")]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            error = process.stderr.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, stderr=error)
        return time.perf_counter() - began, used.ru_maxrss * 1024


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
        result = run()
        return float(np.sum(result.generated)) / median_s(run)

    request = Request(prompt, ids, jax.random.key(0), TOKENS)

    def chain_speed(draft: ReadyDraft, length: int) -> float:
        def run():
            tree = chain_tree(length, length + 1)
            return decode(target, draft.params, request, tree, GREEDY, draft=draft.draft, config=config)

        return tokens_per_s(run)

    alone = functools.partial(decode_autoregressively, target, None, request, GREEDY)
    peer = tokens_per_s(lambda: alone(draft=None, limits=chain_limits(1), config=config))
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


SAMPLED_PROMPT, SAMPLED_TOKENS = 256, 128


def sampling() -> list[dict[str, Any]]:
    """Tokens per second of N samples, against N samples one after the other at width 1."""
    loaded = load_model("embedded")
    params = as_computed(target_params(loaded.params))
    text = load_text("stdlib", loaded.tokenizer)
    prompt = np.asarray(windows(text.held_out, 1, SAMPLED_PROMPT, 0))[0]

    def tokens_per_s(samples: int, width: int) -> float:
        run = lambda: sample_continuations(
            params,
            loaded.config,
            prompt,
            samples=samples,
            num_tokens=SAMPLED_TOKENS,
            seed=jax.random.key(0),
            width=width,
        )
        return samples * SAMPLED_TOKENS / median_s(run, repeats=3)

    one = tokens_per_s(4, 1)
    rates = ((samples, tokens_per_s(samples, samples)) for samples in (4, 16, 64))
    return [
        row(
            "sampling",
            f"{samples} samples x {SAMPLED_TOKENS} tokens of a prompt of {SAMPLED_PROMPT}, embedded network, temperature 1",
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
        result = hwmodels.priced_chains(
            hwmodels.Case(device, shape, workload=workload, footprint=footprint), acceptance
        ).result
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
        run = begin_run(config, directory, Reporter())
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
                Prompts(run.setup.prompts, num_tokens=64, decoding=GREEDY, seed=0),
                MAX_DRAFT_LENGTH,
            )

        peer = median_s(decoded, repeats=3)
        directory.close()
    workload = "48 prompts x 64 tokens, draft lengths 1 to 8, embedded network"
    return row("acceptance", workload, ours, peer, "speculative decoding of the same prompts", "s", peer / ours)


def _new_process(*command: str, cache: str) -> float:
    """Seconds of a new Python process, which keeps programs in a cache of its own, and bytecode as Python does by default."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    asked = [sys.executable, *command]
    started = time.perf_counter()
    subprocess.run(
        asked, check=True, env=own | {"XDG_CACHE_HOME": cache}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return time.perf_counter() - started


def cold_start() -> dict[str, Any]:
    """`jaxspec tune` from a new process to the finished report, beside `--quick`; peak memory in the workload's name."""

    def run(*flags: str) -> float:
        with tempfile.TemporaryDirectory() as folder:
            return _new_process("-m", "jaxspec", "tune", "--out", f"{folder}/run", *flags, cache=folder)

    quick = run("--quick")
    whole = run()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    workload = f"embedded network, no program kept from before, peak memory {peak / 1e9:.2f} GB"
    return row("cold_start", workload, whole, quick, "the same with --quick", "s", quick / whole)


#: Commands whose start is timed, and times that each starts.
_STARTED = ("--help", "predict --device rtx-4090", "predict", "predict --device h100-sxm", "advise --device h100-sxm")
_STARTS = 5


def start_up() -> list[dict[str, Any]]:
    """Short commands in new processes, without and with the programs of an earlier run; medians of five.

    The peer is a process that adds two numbers with JAX.
    """
    with tempfile.TemporaryDirectory() as folder:
        return [line for command in _STARTED for line in _starts(command, f"{folder}/{command}")]


def _starts(command: str, folder: str) -> list[dict[str, Any]]:
    arguments = ("-m", "jaxspec", *command.split())
    alone = "import jax; jax.jit(lambda x: x + 1)(1.0).block_until_ready()"
    unused = map(str, range(_STARTS + 1))  # the first is the warm-up's, whose programs are kept
    none, kept, peer = medians_s(
        [
            lambda: _new_process(*arguments, cache=f"{folder}/{next(unused)}"),
            lambda: _new_process(*arguments, cache=f"{folder}/0"),
            lambda: _new_process("-c", alone, cache=f"{folder}/peer"),
        ],
        _STARTS,
    )
    return [
        row("start_up", f"jaxspec {command}, {how}", ours, peer, "JAX alone: one addition", "s", peer / ours)
        for how, ours in (("no program kept", none), ("programs kept", kept))
    ]


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
    "design_points": design_points,
    "decode_steps": decode_steps,
    "matrix_units": matrix_units,
    "gpu_gradients": gpu_gradients,
    "model_peers": model_peers,
    "acceptance": acceptance,
    "decoding_speed": decoding_speed,
    "transformers_decoding": transformers_decoding,
    "sampling": sampling,
    "start_up": start_up,
    "cold_start": cold_start,
    "sweeps": sweeps,
    "lossless": lossless,
    "tree_simulation": tree_simulation,
    "tree_search": tree_search,
    "trace_walks": trace_walks,
    "expert_dispatch": expert_dispatch,
    "few_rows": few_rows,
}
