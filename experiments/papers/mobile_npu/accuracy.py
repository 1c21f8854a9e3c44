"""Tables 1, 4 and 5 in our setting: what the paper's accuracies say of each other, and the same of the embedded networks.

Its networks, texts and tasks are others, so no cell is compared with a cell: only which version is better, and by how much of
what quantization costs.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.intervals import bootstrap
from experiments.papers.mobile_npu.versions import printed
from experiments.train_arithmetic import HELD_OUT, text_rows
from jaxspec.compress.fitted import CalibrationSample, fitted_config, fitted_footprint, fitted_network
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import find_scheme
from jaxspec.compress.weights import rows_of, target_network
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.embedded import ARITHMETIC_NAME, load_model
from jaxspec.models.fp16_attention import attend_fp16
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.matrix import stack_of
from jaxspec.models.stored import as_computed
from jaxspec.runs.progress import Reporter
from jaxspec.scaling.tasks.arithmetic import problems, solution
from jaxspec.settings.compressions import COMPRESSIONS
from jaxspec.speculate.acceptance import Interval
from jaxspec.speculate.chunks import num_chunks, padded
from jaxspec.studies.compare.stages import read_prompts_with
from jaxspec.text import load_text
from jaxspec.tuning import target_params

__all__ = [
    "COMPARISONS",
    "FLOAT",
    "MEASURED",
    "OURS",
    "Calibration",
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


#: Most parameters of a network that is held in float32: a gigabyte.
_WIDENED = 1 << 28

#: Bits per weight of the network as it was trained.
_FLOAT_BITS = 16.0


class Calibration(NamedTuple):
    """What fitted compressions know of calibration text: arguments of `fitted_network`."""

    norms: Mapping[str, Any]
    sample: CalibrationSample


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to run a network.

    Attributes:
        scheme: that stores the matrices of the layers, or a fitted compression; empty: they are as they were loaded.
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

    def network(
        self, stored: Params, config: DecoderConfig, calibration: Calibration | None = None
    ) -> tuple[Params, DecoderConfig]:
        """Parameters to compute with, and the shape with the forms in which inputs, keys and values are rounded.

        Args:
            stored: from `target_params`. calibration: of text, which a fitted compression needs.
        """
        if self.scheme in COMPRESSIONS:
            assert calibration is not None
            made, config = fitted_network(self.scheme, stored, *calibration), fitted_config(self.scheme, config)
        else:
            made = target_network(find_scheme(self.scheme), stored) if self.scheme else stored
        # Otherwise a scheme would make its matrices anew in each step.
        return as_computed(made, small=_WIDENED), config


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
    """Mean over the matrices of the layers, scales and padding included; of a fitted compression, for large networks."""
    if not variant.scheme:
        return _FLOAT_BITS
    if variant.scheme in COMPRESSIONS:
        return float(fitted_footprint(variant.scheme).target_weight_bits[config.matrix_kinds[0]])
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


class Text(NamedTuple):
    """Windows of held-out text.

    Attributes:
        rows: tokens, "window place".
        counted: places whose next token is to be predicted.
        num_bytes: of these tokens of each window.
    """

    rows: Int[np.ndarray, "window place"]
    counted: Bool[np.ndarray, "window next_place"]
    num_bytes: Int[np.ndarray, " window"]

    @classmethod
    def of(cls, rows: Int[np.ndarray, "window place"], model: LoadedModel) -> Text:
        """Of windows of a model's tokens, all of which but the first count."""
        num_bytes = np.array([len(model.tokenizer.decode(row[1:]).encode()) for row in rows])
        return cls(rows, np.ones(rows[:, 1:].shape, bool), num_bytes)

    @classmethod
    def of_prompts(cls, prompts: Sequence[Int[np.ndarray, " token"]], model: LoadedModel) -> Text:
        """Of prompts that one template writes: what all of them begin and end with is the template's, and does not count."""
        rows, lengths = padded(prompts)
        begin, end = (_shared([row[::step] for row in prompts]) for step in (1, -1))
        place, last = np.arange(1, rows.shape[1]), lengths - end
        num_bytes = [model.tokenizer.num_bytes(row[:size], behind=begin) for row, size in zip(rows, last, strict=True)]
        return cls(rows, (place >= begin) & (place < last[:, None]), np.array(num_bytes))


def _shared(rows: Sequence[Int[np.ndarray, " token"]]) -> int:
    """How many first tokens all rows share."""
    first = np.stack([row[: min(map(len, rows))] for row in rows])
    return int(np.append(np.all(first == first[0], axis=0), False).argmin())


class TextScores(NamedTuple):
    """What a network makes of text.

    Attributes:
        bits: needed for the counted tokens of each window.
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
        chance: that one sample at temperature 1 is the right steps; None where there are other right ones.
    """

    greedy: Bool[np.ndarray, " problem"]
    chance: Float[np.ndarray, " problem"] | None = None


def held_out_solutions(count: int) -> Solutions:
    """Problems that no network was trained on."""
    drawn = problems(count, seed=HELD_OUT)
    return Solutions(*text_rows(drawn, [solution(problem) for problem in drawn]))


def text_scores(
    params: Params, config: DecoderConfig, text: Text, variant: Variant, advance: Callable[[], None]
) -> TextScores:
    """Of all windows, some at a time.

    Args:
        params, config: of the variant. advance: called after each few windows.
    """
    read = read_prompts_with(params, config, text.rows, advance, variant.attend)
    nats = np.sum(read["nats"].astype(np.float64), axis=-1, where=text.counted)
    return TextScores(nats / math.log(2), read["likeliest"])


def task_scores(
    params: Params, config: DecoderConfig, solutions: Solutions, variant: Variant, advance: Callable[[], None]
) -> TaskScores:
    """Of all problems, some at a time; arguments as for `text_scores`."""
    read = read_prompts_with(params, config, solutions.tokens, advance, variant.attend)
    right = (read["likeliest"] == solutions.tokens[:, 1:]) | ~solutions.learned
    nats = np.sum(read["nats"].astype(np.float64), axis=-1, where=solutions.learned)
    return TaskScores(right.all(axis=-1), np.exp(-nats))


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
    exact, places = scores[FLOAT].text.likeliest, text.counted.sum(axis=-1)
    rows = []
    for variant, scored in scores.items():
        same = np.sum((scored.text.likeliest == exact) & text.counted, axis=-1)
        row = {
            "variant": variant.name,
            "bits_per_weight": scored.bits_per_weight,
            "bits_per_byte": _plain(bootstrap(np.divide, scored.text.bits, text.num_bytes)),
            "agreement": _plain(bootstrap(np.divide, same, places)),
        }
        if scored.task is not None:
            ones = np.ones(len(scored.task.greedy))
            row["arithmetic_greedy"] = _plain(bootstrap(np.divide, scored.task.greedy, ones))
            if scored.task.chance is not None:
                row["arithmetic_sampled"] = _plain(bootstrap(np.divide, scored.task.chance, ones))
        rows.append(row)
    return rows


def comparison_rows(
    scores: Mapping[Variant, Scores], pairs: Sequence[tuple[Variant, Variant]] = COMPARISONS
) -> list[dict[str, Any]]:
    """A row for each pair: relative difference in bits per byte, differences in shares, over the same windows and problems."""
    rows = []
    for one, other in pairs:
        if one not in scores or other not in scores:
            continue
        mine, theirs = scores[one], scores[other]
        relative = bootstrap(lambda a, b: a / b - 1.0, mine.text.bits, theirs.text.bits)
        row = {"variant": one.name, "beside": other.name, "bits_per_byte_relative": _plain(relative)}
        if mine.task is not None and theirs.task is not None:
            ones = np.ones(len(mine.task.greedy))
            for name in ("greedy", "chance"):
                if getattr(mine.task, name) is None:
                    continue
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
    chunks = num_chunks(settings.windows) + num_chunks(settings.problems)
    with reporter.bar("variants", len(chosen) * chunks) as bar:
        for variant in chosen:
            scores = text_scores(*variant.network(stored, loaded.config), text, variant, bar.advance)
            task = None
            if settings.problems:
                solving = variant.network(solver_stored, solver.config)
                task = task_scores(*solving, solutions, variant, bar.advance)
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
