"""The benchmarks of the main job: design points per second, acceptance of a draft, a cold start."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hwmodels
from experiments.benchmarks.decoding import decoding_speed
from experiments.benchmarks.expert_dispatch import expert_dispatch
from experiments.benchmarks.few_rows import few_rows
from experiments.benchmarks.gpu_gradients import gpu_gradients
from experiments.benchmarks.hardware import decode_steps, matrix_units
from experiments.benchmarks.harness import row
from experiments.benchmarks.model_peers import model_peers
from experiments.benchmarks.sampling import sampling
from experiments.benchmarks.sweeps import sweeps
from experiments.benchmarks.transformers_decoding import transformers_decoding
from experiments.benchmarks.trees import trace_walks, tree_search, tree_simulation
from experiments.clock import median_s
from hwmodels import catalog
from jaxspec.compress import MAX_DRAFT_LENGTH, uniform_knobs
from jaxspec.runs import Reporter, RunDirectory
from jaxspec.speculate import GREEDY, decode_chains
from jaxspec.speculate.proof import continuation_length
from jaxspec.studies import TuneConfig
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.work import begin_work


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
