"""Tables 1, 4 and 5 in our setting: what the paper's accuracies say of each other, and the same of the embedded networks.

Its networks, texts and tasks are others, so no cell is compared with a cell: only which version is better, and by how much of
what quantization costs.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from experiments.intervals import bootstrap
from experiments.papers.mobile_npu.versions import printed
from experiments.train_arithmetic import HELD_OUT, text_rows
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import find_scheme
from jaxspec.compress.weights import rows_of, target_network
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.models.embedded import ARITHMETIC_NAME, load_model
from jaxspec.models.fp16_attention import attend_fp16
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.matrix import stack_of
from jaxspec.models.stored import as_computed
from jaxspec.runs.progress import Reporter
from jaxspec.scaling.tasks.arithmetic import problems, solution
from jaxspec.speculate.acceptance import Interval
from jaxspec.text import load_text
from jaxspec.tuning import target_params

__all__ = [
    "COMPARISONS",
    "FLOAT",
    "MEASURED",
    "OURS",
    "Scores",
    "Settings",
    "Solutions",
    "TaskScores",
    "Text",
    "TextScores",
    "Variant",
    "accuracies",
    "accuracy_statements",
    "bits_per_weight",
    "comparison_rows",
    "held_out_solutions",
    "measure",
    "task_scores",
    "text_scores",
    "variant_rows",
]


#: Bits per weight of the network as it was trained.
_FLOAT_BITS = 16.0


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to run a network.

    Attributes:
        scheme: that stores the matrices of the layers; empty: they are as they were loaded.
        fp16_attention: in tiles, with exponentials from a table, instead of float32.
    """

    scheme: str = ""
    fp16_attention: bool = False

    @property
    def name(self) -> str:
        """For tables and figures."""
        return (self.scheme or "float") + (" + fp16 attention" if self.fp16_attention else "")

    @property
    def attend(self) -> Any:
        """As `forward_text` takes it."""
        return attend_fp16 if self.fp16_attention else None

    def params(self, stored: Params) -> Params:
        """Parameters to compute with.

        Args:
            stored: from `target_params`.
        """
        return as_computed(target_network(find_scheme(self.scheme), stored) if self.scheme else stored)


#: What all others are compared with.
FLOAT = Variant()


#: Pairs of variants, each with what it is compared with.
COMPARISONS = (
    (Variant("tile-q4_0"), Variant("q4_0")),
    (Variant("tile-q4_0-down8"), Variant("q4_0-down8")),
    (Variant("int4-channel"), Variant("q4_0")),
    (Variant("tile-q4_0-down8", fp16_attention=True), Variant("tile-q4_0-down8")),
)


def bits_per_weight(variant: Variant, stored: Params, config: DecoderConfig) -> float:
    """Mean over the matrices of the layers, scales and padding included."""
    if not variant.scheme:
        return _FLOAT_BITS
    scheme, total, bits = find_scheme(variant.scheme), 0, 0.0
    defaults = {name: jnp.asarray(value, jnp.float32) for name, value in knob_defaults(scheme).items()}
    for kind in config.matrix_kinds:
        stack, own = stack_of(stored["layers"][kind]), scheme.of_kind(kind).matrix

        @jax.jit
        def read(stack: Any, own: Any = own) -> jax.Array:
            rows = rows_of(stack.take(jnp.asarray(0)).values().astype(jnp.float32))
            return own.hard(rows, own.prepare(rows, jnp.ones(rows.shape[-1])), defaults).bits.target

        size = math.prod(stack.shape)
        total, bits = total + size, bits + size * float(read(stack))
    return bits / total


#: Rows of one program.
_AT_ONCE = 8


class Text(NamedTuple):
    """Windows of held-out text.

    Attributes:
        rows: tokens, "window place"; all but the first are predicted.
        num_bytes: of the predicted tokens of each window.
    """

    rows: Int[np.ndarray, "window place"]
    num_bytes: Int[np.ndarray, " window"]

    @classmethod
    def of(cls, rows: Int[np.ndarray, "window place"], model: LoadedModel) -> Text:
        """Of windows of a model's tokens."""
        return cls(rows, np.array([len(model.tokenizer.decode(row[1:]).encode()) for row in rows]))


class TextScores(NamedTuple):
    """What a network makes of text.

    Attributes:
        bits: needed for each window.
        likeliest: next token at each place.
    """

    bits: Float[np.ndarray, " window"]
    likeliest: Int[np.ndarray, "window place"]


class Solutions(NamedTuple):
    """Arithmetic problems with their right steps.

    Attributes:
        tokens: "problem place"; learned: places whose next token belongs to the solution.
    """

    tokens: Int[np.ndarray, "problem place"]
    learned: Bool[np.ndarray, "problem next_place"]


class TaskScores(NamedTuple):
    """What a network makes of arithmetic.

    Attributes:
        greedy: whether greedy decoding gives all right steps: their tokens are the likeliest ones, each after the others.
        chance: that one sample at temperature 1 is the right steps.
    """

    greedy: Bool[np.ndarray, " problem"]
    chance: Float[np.ndarray, " problem"]


def held_out_solutions(count: int) -> Solutions:
    """Problems that no network was trained on."""
    drawn = problems(count, seed=HELD_OUT)
    return Solutions(*text_rows(drawn, [solution(problem) for problem in drawn]))


def text_scores(
    params: Params, config: DecoderConfig, text: Text, variant: Variant, advance: Callable[[], None]
) -> TextScores:
    """Of all windows, a few at a time.

    Args:
        params: of the variant. advance: called after each few windows.
    """
    nats, likeliest = [], []
    for loss, best in _predicted(params, config, text.rows, variant, advance):
        nats.append(loss.sum(axis=-1))
        likeliest.append(best)
    return TextScores(np.concatenate(nats) / math.log(2), np.concatenate(likeliest))


def task_scores(
    params: Params, config: DecoderConfig, solutions: Solutions, variant: Variant, advance: Callable[[], None]
) -> TaskScores:
    """Of all problems, a few at a time; arguments as for `text_scores`."""
    chunks = list(_predicted(params, config, solutions.tokens, variant, advance))
    loss, best = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    right = (best == solutions.tokens[:, 1:]) | ~solutions.learned
    return TaskScores(right.all(axis=-1), np.exp(-np.sum(loss * solutions.learned, axis=-1)))


def _predicted(params: Params, config: DecoderConfig, rows: np.ndarray, variant: Variant, advance: Callable[[], None]):
    """(loss in nats, likeliest token), "row place", of parts of the rows."""
    for first in range(0, len(rows), _AT_ONCE):
        part = rows[first : first + _AT_ONCE]
        filled = np.pad(part, ((0, _AT_ONCE - len(part)), (0, 0)))
        loss, best = _program(params, jnp.asarray(filled), config=config, attend=variant.attend)
        advance()
        yield np.asarray(loss, np.float64)[: len(part)], np.asarray(best)[: len(part)]


@partial(jax.jit, static_argnames=("config", "attend"))
def _program(
    params: Params, rows: Int[Array, "row place"], *, config: DecoderConfig, attend: Any
) -> tuple[Float[Array, "row next_place"], Int[Array, "row next_place"]]:
    logits = forward_text(params, config, rows[:, :-1], attend=attend).logits
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:])
    return loss, jnp.argmax(logits, axis=-1)


def calls(count: int) -> int:
    """How often `advance` is called over so many rows."""
    return -(-count // _AT_ONCE)


class Scores(NamedTuple):
    """Of one variant.

    Attributes:
        bits_per_weight: of the network whose text was scored. task: None where no arithmetic was.
    """

    bits_per_weight: float
    text: TextScores
    task: TaskScores | None


def _plain(interval: Interval) -> dict[str, float]:
    return {"value": interval.ratio, "low": interval.low, "high": interval.high}


def variant_rows(scores: Mapping[Variant, Scores], text: Text) -> list[dict[str, Any]]:
    """A row for each variant: bits per byte, agreement with the float network, share of arithmetic solved."""
    exact = scores[FLOAT].text.likeliest
    places = np.full(len(exact), exact.shape[1])
    rows = []
    for variant, scored in scores.items():
        same = np.sum(scored.text.likeliest == exact, axis=-1)
        row = {
            "variant": variant.name,
            "bits_per_weight": scored.bits_per_weight,
            "bits_per_byte": _plain(bootstrap(np.divide, scored.text.bits, text.num_bytes)),
            "agreement": _plain(bootstrap(np.divide, same, places)),
        }
        if scored.task is not None:
            ones = np.ones(len(scored.task.greedy))
            row["arithmetic_greedy"] = _plain(bootstrap(np.divide, scored.task.greedy, ones))
            row["arithmetic_sampled"] = _plain(bootstrap(np.divide, scored.task.chance, ones))
        rows.append(row)
    return rows


def comparison_rows(scores: Mapping[Variant, Scores]) -> list[dict[str, Any]]:
    """A row for each pair: relative difference in bits per byte, differences in shares, over the same windows and problems."""
    rows = []
    for one, other in COMPARISONS:
        if one not in scores or other not in scores:
            continue
        mine, theirs = scores[one], scores[other]
        relative = bootstrap(lambda a, b: a / b - 1.0, mine.text.bits, theirs.text.bits)
        row = {"variant": one.name, "beside": other.name, "bits_per_byte_relative": _plain(relative)}
        if mine.task is not None and theirs.task is not None:
            ones = np.ones(len(mine.task.greedy))
            for name in ("greedy", "chance"):
                difference = getattr(mine.task, name).astype(float) - getattr(theirs.task, name)
                row[f"arithmetic_{'sampled' if name == 'chance' else name}_difference"] = _plain(
                    bootstrap(np.divide, difference, ones)
                )
        rows.append(row)
    return rows


@dataclasses.dataclass(frozen=True)
class Settings:
    """How much is measured.

    Attributes:
        text: "stdlib", or a file whose second half is held out.
        windows, tokens: of that half.
        problems: of arithmetic; 0: none.
    """

    text: str = "stdlib"
    windows: int = 64
    tokens: int = 256
    problems: int = 400
    seed: int = 0


def measure(model: str, settings: Settings, reporter: Reporter, variants: Sequence[Variant]) -> dict[str, Any]:
    """Scores of every variant, intervals.

    Args:
        model: an embedded network, a directory or a container; arithmetic is always that of the embedded network for it.
    Raises:
        InputError: an unknown network, or a text that holds no window.
    """
    loaded = load_model(model)
    split = load_text(settings.text, loaded.tokenizer, needed=(0, settings.tokens + 1))
    rows = split.held_out_windows(settings.windows, settings.tokens + 1, settings.seed)
    text, stored = Text.of(np.asarray(rows), loaded), target_params(loaded.params)
    solutions = held_out_solutions(settings.problems)
    solver = load_model(ARITHMETIC_NAME)
    solver_stored = target_params(solver.params)
    chosen = [FLOAT, *(variant for variant in variants if variant != FLOAT)]
    by_variant: dict[Variant, Scores] = {}
    with reporter.bar("variants", len(chosen) * (calls(settings.windows) + calls(settings.problems))) as bar:
        for variant in chosen:
            scores = text_scores(variant.params(stored), loaded.config, text, variant, bar.advance)
            task = None
            if settings.problems:
                task = task_scores(variant.params(solver_stored), solver.config, solutions, variant, bar.advance)
            by_variant[variant] = Scores(bits_per_weight(variant, stored, loaded.config), scores, task)
    comparisons = comparison_rows(by_variant)
    return {
        "model": model,
        "text": split.source,
        "settings": dataclasses.asdict(settings),
        "variants": variant_rows(by_variant, text),
        "comparisons": comparisons,
        "status": "measured",
    }


#: How much is measured: half a minute on two idle cores.
MEASURED = Settings(windows=24, tokens=256, problems=200)

#: Versions of the three tables: groups, channels, tile groups, and these with float16 attention. FFN down has 8 bits (7.1), but
#: in Table 1, whose two implementations have 4 bits everywhere.
_GROUPS, _CHANNELS = Variant("q4_0"), Variant("int4-channel")
_COMMON, _TILES = Variant("q4_0-down8"), Variant("tile-q4_0-down8")
_HALF = Variant(_TILES.scheme, fp16_attention=True)
OURS = (FLOAT, _GROUPS, _CHANNELS, _COMMON, _TILES, _HALF)

_TABLE1, _TABLE4, _TABLE5 = "table1_quantization_accuracy", "table4_tile_group_accuracy", "table5_attention_accuracy"
_GROUP_METHOD, _CHANNEL_METHOD = "AutoAWQ (W4A16)", "QNN (W4A16)"


@functools.cache
def accuracies() -> Mapping[str, Any]:
    """Scores of the embedded network on text and of the arithmetic network on its task, measured here."""
    return measure("embedded", MEASURED, Reporter(), OURS)


def accuracy_statements(measured: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the tables say, printed and measured.

    Args:
        measured: of `accuracies`.
    """
    rows = {row["variant"]: row for row in measured["variants"]}
    pairs = {(row["variant"], row["beside"]): row for row in measured["comparisons"]}
    bits = lambda variant: rows[variant.name]["bits_per_byte"]["value"]
    channels, tiles, half = (
        pairs[one.name, other.name] for one, other in ((_CHANNELS, _GROUPS), (_TILES, _COMMON), (_HALF, _TILES))
    )
    text, task = channels["bits_per_byte_relative"], channels["arithmetic_sampled_difference"]
    lost = bits(_COMMON) / bits(FLOAT) - 1.0
    printed_lost = _log_ratio("Common group", "F16")
    moved, printed_moved = tiles["bits_per_byte_relative"], _log_ratio("Tile group", "Common group")
    attention = half["bits_per_byte_relative"]
    order = [bits(variant) for variant in (FLOAT, _COMMON, _CHANNELS)]
    return [
        _statement(
            "Table 1",
            "channels in 4 bits need more bits for text than groups",
            f"{_log_ratio(_CHANNEL_METHOD, _GROUP_METHOD, _TABLE1):+.1%} nats of a word",
            f"{_span(text)} bits of a byte",
            text["low"] > 0.0,
        ),
        _statement(
            "Table 1",
            "and solve less",
            "; ".join(
                f"{task_name} {printed(_TABLE1, method=_CHANNEL_METHOD, benchmark=task_name):g} % for "
                f"{printed(_TABLE1, method=_GROUP_METHOD, benchmark=task_name):g} %"
                for task_name in ("MATH500", "GSM8K")
            ),
            f"arithmetic {_span(task)}",
            task["high"] < 0.0,
        ),
        _statement(
            "Table 4",
            "tile groups move text by less than quantization does",
            f"{printed_moved:+.2%} of {printed_lost:+.2%}",
            f"{_span(moved)} of {lost:+.2%}",
            max(abs(moved["low"]), abs(moved["high"])) < lost,
        ),
        _statement(
            "Tables 1 and 4",
            "float is best on text, groups are next, channels last",
            "by perplexity",
            ", ".join(f"{one:.4f}" for one in order),
            order == sorted(order),
        ),
        _statement(
            "Table 5",
            "attention in float16 with a table leaves text as it is (within 0.1 %)",
            f"{_log_ratio('Our LUT16 FA', 'F32 Attention', _TABLE5):+.3%}",
            _span(attention, 3),
            max(abs(attention["low"]), abs(attention["high"])) <= 1e-3,
        ),
    ]


def _log_ratio(one: str, other: str, table: str = _TABLE4) -> float:
    """Relative difference of the logarithms of two printed perplexities: of the bits that text takes."""
    of = lambda method: math.log(printed(table, method=method, benchmark="Wiki PPL"))
    return of(one) / of(other) - 1.0


def _span(interval: Mapping[str, float], digits: int = 2) -> str:
    return f"{interval['value']:+.{digits}%} ({interval['low']:+.{digits}%} to {interval['high']:+.{digits}%})"


def _statement(where: str, says: str, theirs: str, ours: str, holds: bool) -> dict[str, Any]:
    return {"where": where, "says": says, "printed": theirs, "ours": ours, "holds": bool(holds), "status": "measured"}
