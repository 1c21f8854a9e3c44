"""Training of the embedded networks: shapes, the schedule, the optimiser, and one step."""

from __future__ import annotations

import dataclasses
import math
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jaxtyping import Array, Float, Int
from optax.contrib import MuonDimensionNumbers, muon
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hwmodels.networks import ExpertSizes
from hwmodels.tables import read_table
from jaxspec.models.blocks import Experts
from jaxspec.models.config import MATRIX_KINDS, DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.models.embedded import load_model
from jaxspec.speculate.drafts.interface import Draft
from jaxspec.speculate.engine import decode_autoregressively
from jaxspec.speculate.expansion import chain_limits
from jaxspec.speculate.loop import Request
from jaxspec.speculate.measured_ranks import measure_ranks
from jaxspec.speculate.sampling import GREEDY
from jaxspec.text.windows import load_text, windows
from jaxspec.trees.rank_traces import UNKNOWN

# How often a draft's likeliest token is the target's, depth by depth, on text that the target wrote after held-out prompts.

PROMPTS, PROMPT_TOKENS, NEW_TOKENS, DEPTH, SEED = 64, 128, 128, 5, 0


class Agreement(NamedTuple):
    """Shares of roots, by depth.

    Attributes:
        given_target: the draft's likeliest token is the target's, after the target's own tokens before it.
        survival: it is so at this depth and at all before it: what a greedy chain accepts.
        roots: how many roots there are of depth 1.
    """

    given_target: Float[Array, " depth"]
    survival: Float[Array, " depth"]
    roots: int


def measure_agreement(
    target: Params, config: DecoderConfig, draft: Draft, draft_params: Any, prompts: np.ndarray
) -> Agreement:
    """Agreement under greedy decoding, every token of the target's text being a root once.

    Args:
        prompts: "batch token".
    """
    batch, length = prompts.shape
    decoded = decode_autoregressively(
        target,
        None,
        Request(jnp.asarray(prompts), jnp.arange(batch), jax.random.key(SEED), NEW_TOKENS),
        GREEDY,
        draft=None,
        config=config,
        limits=chain_limits(1),
    )
    texts = decoded.tokens[:, : length + NEW_TOKENS]
    ranks = measure_ranks(
        target, draft_params, texts, draft=draft, config=config, prompt_tokens=length, depth=DEPTH
    ).rank
    known, first = ranks != UNKNOWN, ranks == 0
    share = lambda hit: jnp.sum(hit & known, axis=(0, 1)) / jnp.sum(known, axis=(0, 1))
    survival = jnp.cumprod(first.astype(jnp.int32), axis=-1).astype(bool)
    return Agreement(share(first), share(survival), int(jnp.sum(known[..., 0])))


def embedded_agreement(draft: Draft, draft_params: Any, target_name: str = "embedded") -> Agreement:
    """Agreement of a draft with a network that ships, on the held-out modules of the committed snapshot."""
    target = load_model(target_name, dtype=jnp.float32)
    prompts = windows(load_text("stdlib", target.tokenizer).held_out, PROMPTS, PROMPT_TOKENS, SEED)
    return measure_agreement(target.params, target.config, draft, draft_params, prompts)


def agreement_lines(agreement: Agreement) -> str:
    """Lines of a model card, which go on from a sentence that says on which text."""
    row = lambda values: ", ".join(f"{float(value):.3f}" for value in values)
    return (
        f"the likeliest tokens agree at depths 1 to {DEPTH}\n"
        f"  in {row(agreement.given_target)} of the cases, the network's own tokens before them given, and in\n"
        f"  {row(agreement.survival)} together with all before them\n"
        f"  (greedy; {PROMPTS} prompts of {PROMPT_TOKENS} bytes, {NEW_TOKENS} bytes after each, {agreement.roots} roots)."
    )


# The training text: Python's own standard library, less a fixed list of modules that nothing is ever trained on.

_NETWORKS = read_table(__package__, "networks.toml")

#: Modules that no network here sees, nor their tests: the held-out text.
HELD_OUT: tuple[str, ...] = tuple(_NETWORKS["held_out"])

#: Generated tables (character maps) and foreign packages: no text to learn from.
_SKIPPED_FOLDERS = {"site-packages", "dist-packages", "encodings", "__pycache__", "ensurepip"}
_TEST_FOLDERS = {"test", "tests", "idle_test"}

#: Stands between two files, so that the network can tell where one begins.
SEPARATOR = b"\x00"

#: Share of the training windows that come from library code; the rest comes from its tests, where they are installed.
LIBRARY_SHARE = 0.7


def standard_library() -> Path:
    """Folder of the running interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def is_held_out(path: Path) -> bool:
    """Whether any part of the path names a held-out module or its tests, in whatever package it lies."""
    names = {part.removesuffix(".py").removeprefix("test_") for part in path.parts}
    return not names.isdisjoint(HELD_OUT)


def _join(paths: list[Path], root: Path) -> np.ndarray:
    return np.frombuffer(SEPARATOR + SEPARATOR.join((root / p).read_bytes() for p in paths), np.uint8)


def source_files(root: Path) -> tuple[list[Path], list[Path]]:
    """Library modules and tests below a folder, relative to it, in order; held-out ones are left out.

    Raises:
        FileNotFoundError: there are no modules.
    """
    files = sorted(p.relative_to(root) for p in root.rglob("*.py"))
    files = [p for p in files if not is_held_out(p) and _SKIPPED_FOLDERS.isdisjoint(p.parts)]
    library = [p for p in files if _TEST_FOLDERS.isdisjoint(p.parts)]
    if not library:
        raise FileNotFoundError(f"no Python source below {root}; point --stdlib at a folder of .py files")
    return library, [p for p in files if not _TEST_FOLDERS.isdisjoint(p.parts)]


def training_bytes(root: Path | None = None) -> dict[str, np.ndarray]:
    """All training text by origin, each file preceded by the separator.

    Returns:
        {"library": uint8 array, "tests": uint8 array}; "tests" is missing where the interpreter ships none.
    """
    root = root or standard_library()
    library, tests = source_files(root)
    corpus = {"library": _join(library, root)}
    if tests:
        corpus["tests"] = _join(tests, root)
    return corpus


def held_out_bytes(root: Path | None = None) -> np.ndarray:
    """The held-out modules, each preceded by the separator."""
    root = root or standard_library()
    return _join([Path(f"{name}.py") for name in HELD_OUT], root)


def sample_windows(corpus: dict[str, np.ndarray], seed: int, step: int, batch: int, length: int) -> np.ndarray:
    """Windows of one step, a function of (seed, step) alone, so that a resumed run sees what an unbroken one would.

    Returns:
        int32 "batch length".
    """
    seeds = jax.random.key_data(jax.random.fold_in(jax.random.key(seed), step))
    rng = np.random.default_rng(np.asarray(seeds))
    parts = ["library" if "tests" not in corpus or rng.random() < LIBRARY_SHARE else "tests" for _ in range(batch)]
    starts = [int(rng.integers(corpus[part].size - length)) for part in parts]
    rows = [corpus[part][start : start + length] for part, start in zip(parts, starts, strict=True)]
    return np.stack(rows).astype(np.int32)


# A training loop that stops and starts: progress, checkpoints, and a step's text that depends on the step alone.

#: Share of the newest step in the running mean that is shown.
_NEWEST = 0.02


def run_steps(
    directory: Path,
    params: Any,
    opt_state: Any,
    step_function: Callable[..., Any],
    batch_at: Callable[[int], Any],
    *,
    steps: int,
    checkpoint_every: int,
    scale: float,
    unit: str,
) -> dict[str, Any]:
    """Train from the newest checkpoint on, or from the beginning.

    Args:
        directory: of the checkpoints.
        step_function: (params, opt_state, batch) -> (params, opt_state, loss).
        batch_at: what a step learns from; a function of the step alone.
        steps: 0 restores and trains nothing.
        scale, unit: how the loss is shown.
    Returns:
        {"params", "opt_state", "step"} after the last step.
    """
    state = {"params": params, "opt_state": opt_state, "step": jnp.asarray(0)}
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(directory.absolute(), options=options) as manager:
        if manager.latest_step() is not None:
            abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
            state = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(abstract))
        first, started = int(state["step"]), time.monotonic()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, disable=first >= steps) as progress:
            task = progress.add_task("training", total=steps, completed=first)
            running = None
            for step in range(first, steps):
                params, opt_state, loss = step_function(state["params"], state["opt_state"], batch_at(step))
                state = {"params": params, "opt_state": opt_state, "step": jnp.asarray(step + 1)}
                shown = scale * float(loss)
                running = shown if running is None else (1 - _NEWEST) * running + _NEWEST * shown
                progress.update(task, completed=step + 1, description=f"training, {running:.3f} {unit}")
                if (step + 1) % checkpoint_every == 0 or step + 1 == steps:
                    manager.save(step + 1, args=ocp.args.StandardSave(state))
                    progress.console.print(
                        f"step {step + 1}: train {running:.3f} {unit}, {time.monotonic() - started:.0f} s"
                    )
        manager.wait_until_finished()
    return state


# Balance of a router's experts: how the choices are spread, and the correction that keeps every expert in use.


class LoadSummary(NamedTuple):
    """Spread of the choices of each layer's router.

    Attributes:
        least, most: share of the tokens that go through the least and the most chosen expert.
        entropy: of the choices, in bits; the logarithm of the number of experts where all are chosen equally often.
    """

    least: Float[np.ndarray, " layer"]
    most: Float[np.ndarray, " layer"]
    entropy: Float[np.ndarray, " layer"]


def expert_load(choices: Int[Array, "batch token layer chosen"], num_experts: int) -> Float[Array, "layer expert"]:
    """Share of the tokens that go through each expert; a layer's shares sum to the experts per token."""
    batch, tokens, layers, _ = choices.shape
    rows = jnp.arange(layers)[None, None, :, None]
    return jnp.zeros((layers, num_experts)).at[rows, choices].add(1.0) / (batch * tokens)


def load_push(load: Float[Array, "layer expert"], band: tuple[float, float]) -> Float[Array, "layer expert"]:
    """Direction in which each expert's score is to be corrected: 1 (up), 0 or -1, piecewise constant in the load.

    Args:
        band: loads over their mean that are left as they are.
    Source: DeepSeek-V3, arXiv:2412.19437, Section 2.1.2.
    Departs: the source has no band; here experts may differ in load, as the popularity of experts in large networks does.
    """
    low, high = band
    relative = load / jnp.mean(load, axis=-1, keepdims=True)
    return jnp.where(relative < low, 1.0, jnp.where(relative > high, -1.0, 0.0))


def load_summary(load: Float[np.ndarray, "layer expert"]) -> LoadSummary:
    """Spread of a load over the experts of each layer."""
    share = load / load.sum(axis=-1, keepdims=True)
    entropy = -np.sum(np.where(share > 0, share * np.log2(np.where(share > 0, share, 1)), 0), axis=-1)
    return LoadSummary(load.min(axis=-1), load.max(axis=-1), entropy)


#: Name of the parameter that corrects the scores by which experts are chosen; the loss does not depend on it smoothly.
_CORRECTION = "correction_bias"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights, apart from the text."""

    steps: int = 2200
    tokens_per_step: int = 8192
    window: int = 256  # bytes; short windows first: attention is half the cost of a step on CPUs
    long_window: int = 512
    long_from: float = 0.85  # share of the steps after which windows are long
    peak_learning_rate: float = 0.02  # of Muon; Adam (embeddings, norms, head) runs at a fifth of it
    warmup_steps: int = 100
    decay_from: float = 0.65  # share of the steps after which the rate falls linearly to zero
    weight_decay: float = 0.02
    balance_rate: float = 0.0  # per step, of the corrections of experts' scores
    balance_steeper: tuple[int, float] = (0, 1.0)  # from this step on, the rate is so many times as high
    load_band: tuple[float, float] = (0.5, 2.0)  # loads over their mean that need no correction
    seed: int = 0

    def window_at(self, step: int) -> int:
        """Bytes per window at a step."""
        return self.long_window if step >= self.long_from * self.steps else self.window


def _shape(experts: dict[str, Any] | None = None, **sizes: Any) -> DecoderConfig:
    mixture = {} if experts is None else {"feed_forward": (Experts(),), "experts": ExpertSizes(**experts)}
    return DecoderConfig(**sizes, **mixture)


#: What --shape may be.
SHAPES = {name: _shape(**sizes) for name, sizes in _NETWORKS["shapes"].items()}
RECIPES = {
    name: Recipe(**numbers | {key: tuple(value) for key, value in numbers.items() if isinstance(value, list)})
    for name, numbers in _NETWORKS["recipes"].items()
}


def schedule(recipe: Recipe) -> optax.Schedule:
    """Warm-up, plateau, linear decay to zero: the plateau's checkpoints can be trained on for longer."""
    decay_start = int(recipe.decay_from * recipe.steps)
    return optax.join_schedules(
        [
            optax.linear_schedule(0.0, recipe.peak_learning_rate, recipe.warmup_steps),
            optax.constant_schedule(recipe.peak_learning_rate),
            optax.linear_schedule(recipe.peak_learning_rate, 0.0, recipe.steps - decay_start),
        ],
        [recipe.warmup_steps, decay_start],
    )


def balance_schedule(recipe: Recipe) -> optax.Schedule:
    """Rate of the corrections of experts' scores: in two steps, then falling to zero as the learning rate does."""
    start, times = recipe.balance_steeper
    rate = optax.piecewise_constant_schedule(recipe.balance_rate, {start: times})
    decay_start = int(recipe.decay_from * recipe.steps)
    return lambda step: rate(step) * jnp.clip((recipe.steps - step) / (recipe.steps - decay_start), 0.0, 1.0)


def optimizer(recipe: Recipe) -> optax.GradientTransformation:
    """Muon for the matrices of layers (and of a draft head), Adam for the rest (Jordan et al. 2024), global clipping at 1; the
    corrections of experts' scores move at their own rate against what stands in their place in the gradient."""
    balancing = optax.sgd(balance_schedule(recipe))
    named = lambda params: jax.tree_util.tree_map_with_path(
        lambda path, _: "balance" if getattr(path[-1], "key", None) == _CORRECTION else "descent", params
    )
    descent = _descent(recipe)
    return optax.partition({"descent": descent, "balance": balancing}, named) if recipe.balance_rate else descent


def _descent(recipe: Recipe) -> optax.GradientTransformation:
    rate = schedule(recipe)

    def dimensions(params: Any) -> Any:
        specs: dict[Any, Any] = dict.fromkeys(MATRIX_KINDS, MuonDimensionNumbers(reduction_axis=-1, output_axis=-2))
        specs["fc"] = MuonDimensionNumbers(reduction_axis=1, output_axis=0)  # of a draft head, which has one
        return jax.tree_util.tree_map_with_path(lambda path, _: specs.get(getattr(path[-1], "key", None)), params)

    return optax.chain(
        optax.clip_by_global_norm(1.0),
        muon(
            rate,
            weight_decay=recipe.weight_decay,
            adam_learning_rate=lambda step: 0.2 * rate(step),
            adam_b2=0.99,
            muon_weight_dimension_numbers=dimensions,
        ),
    )


class Loss(NamedTuple):
    """Mean next-byte cross-entropy in nats, and of a mixture of experts the load of each expert."""

    nats: Float[Array, ""]
    load: Float[Array, "layer expert"] | None


def mean_loss(params: Params, tokens: jax.Array, frugal: bool, config: DecoderConfig = SHAPES["embedded"]) -> Loss:
    """The loss over a batch of windows, operands of products in bfloat16."""
    options = dict(dot_dtype=jnp.bfloat16, frugal=True) if frugal else {}
    result = forward_text(params, config, tokens[:, :-1], **options)
    nats = optax.softmax_cross_entropy_with_integer_labels(result.logits, tokens[:, 1:]).mean()
    if config.experts is None or result.extras is None:
        return Loss(nats, None)
    return Loss(nats, expert_load(result.extras.original, config.experts.num_experts))


def make_step(recipe: Recipe, config: DecoderConfig = SHAPES["embedded"]):
    """The jitted, donated training step (params, optimiser state, tokens) -> (params, optimiser state, loss)."""
    transform = optimizer(recipe)
    frugal = jax.default_backend() == "cpu"

    def step(params, opt_state, tokens):
        def with_load(params):
            losses = mean_loss(params, tokens, frugal, config)
            return losses.nats, losses.load

        (loss, load), gradient = jax.value_and_grad(with_load, has_aux=True)(params)
        if load is not None:
            gradient["layers"][_CORRECTION] = -load_push(load, recipe.load_band)
        updates, opt_state = transform.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return transform.init, jax.jit(step, donate_argnums=(0, 1))


# Scores of a trained network on held-out text: bits per byte, and how its routers spread the tokens.


def bits_per_byte(
    params: Params, text: np.ndarray, *, window: int = 512, stride: int = 256, batch: int = 16, config: DecoderConfig
) -> float:
    """Held-out cross-entropy of `text`, in bits per byte, float32.

    Windows overlap: each byte is scored once, with at least window − stride bytes of context (but for the first ones).
    """
    starts = np.arange(0, text.size - 1, stride)
    padded = np.pad(text.astype(np.int32), (window - stride, window + 1))
    # Row r scores the `stride` bytes that follow its start; what stands before them is context.
    rows = np.stack([padded[s : s + window + 1] for s in starts])
    scored = np.stack([(s + 1 + np.arange(stride)) < text.size for s in starts])

    @jax.jit
    def nats(params, rows, scored):
        logits = forward_text(params, config, rows[:, :-1]).logits[:, -stride:]
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:][:, -stride:])
        return jnp.sum(jnp.where(scored, loss, 0.0))

    missing = -len(rows) % batch
    rows = np.concatenate([rows, np.zeros((missing, window + 1), np.int32)])
    scored = np.concatenate([scored, np.zeros((missing, stride), bool)])
    chunks = range(0, len(rows), batch)
    total = sum(float(nats(params, rows[i : i + batch], scored[i : i + batch])) for i in chunks)
    return total / math.log(2) / (text.size - 1)


def router_load(
    params: Params, text: np.ndarray, *, config: DecoderConfig, window: int = 512, batch: int = 16
) -> Float[np.ndarray, "layer expert"]:
    """Share of the tokens of `text` that go through each expert, float32; of the layers that have a router.

    The text is cut into windows; what remains at its end, less than `batch` of them, is left out.

    Raises:
        ValueError: a dense network, or a text too short for one batch.
    """
    if config.experts is None:
        raise ValueError("the network has no router; give a mixture of experts")
    rounds = text.size // (window * batch)
    if rounds == 0:
        raise ValueError(f"the text has {text.size} bytes; it must have at least {window * batch}")
    rows = text[: rounds * window * batch].astype(np.int32).reshape(rounds, batch, window)
    experts = config.experts.num_experts

    @jax.jit
    def of_rows(params, rows):
        result = forward_text(params, config, rows, logits_from=window)
        assert result.extras is not None
        return expert_load(result.extras.original, experts)

    return np.mean([of_rows(params, part) for part in rows], axis=0)
