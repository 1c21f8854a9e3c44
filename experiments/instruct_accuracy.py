"""Accuracy of a pretrained network in lossy forms: `python -m experiments.instruct_accuracy QUESTIONS [--json FILE]`.

Forms are those of the mobile-NPU paper's Tables 1, 4 and 5 and the baselines of Cassandra's Table III. Text is the held-out
half of QUESTIONS (see `experiments.real_network`), written by the network's chat template, of which the question alone counts;
the other half fits what is fitted. The task is sums in words, answered greedily. What is done is kept under --out, cheapest
first: all text before any task. With --only, what the file of --json has of other variants stays.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments.command_line import existing_file
from experiments.papers.mobile_npu.accuracy import (
    COMPARISONS,
    FLOAT,
    OURS,
    Calibration,
    Scores,
    Solutions,
    TaskScores,
    Text,
    TextScores,
    Variant,
    bits_per_weight,
    comparison_rows,
    task_scores,
    text_scores,
    variant_rows,
)
from experiments.real_network import questions, user
from jaxspec.models.chat_template import load_chat_template
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.embedded import model_place
from jaxspec.partial_files import read_json, to_json, write_text
from jaxspec.runs import Reporter
from jaxspec.runs.run_index import versions
from jaxspec.runs.stages import Arrays, Stages
from jaxspec.speculate.chunks import num_chunks
from jaxspec.studies import ScaleConfig
from jaxspec.studies.compare.entries import CheckedTask
from jaxspec.studies.compare.stages import calibration_sample, channel_norms
from jaxspec.studies.measured.run_context import load_target
from jaxspec.studies.scale.inputs import check_network, make_problems
from jaxspec.text import Document, Encoder

#: Cassandra's Table III.
BASELINES = ("wanda-50", "smoothquant-w8a8", "qoq-w4a8kv4", "duquant-w4a4kv4", "squeezellm-4")

#: All that is measured; in its order the tasks.
VARIANTS = (*OURS, *map(Variant, BASELINES))

#: Pairs of which differences are given: those of the tables, and each baseline with the network as it is.
PAIRS = (*COMPARISONS, *((Variant(name), FLOAT) for name in ("q4_0", "q4_0-down8", *BASELINES)))


@dataclasses.dataclass(frozen=True)
class Settings:
    """How much is measured.

    Attributes:
        per_category: questions of each that are held out.
        longest: characters of a question, whose middle is left out.
        calibration_tokens: of each question that calibrates; shorter ones do not.
        calibrating: most questions that do.
        problems: sums in words; tokens: most of an answer.
    """

    per_category: int = 8
    longest: int = 200
    calibrating: int = 24
    calibration_tokens: int = 64
    problems: int = 96
    tokens: int = 48
    seed: int = 0


class Measuring:
    """Stages of one network."""

    def __init__(self, model: str, source: Path, settings: Settings, stages: Stages, reporter: Reporter):
        """Load the network, its questions and its problems.

        Raises:
            InputError: the network cannot be read, or has no chat template.
        """
        scale = ScaleConfig(
            model=(model,),
            task="word-problems",
            prompts=settings.problems,
            output_tokens=settings.tokens,
            seed=settings.seed,
        )
        self.task = CheckedTask(scale, make_problems(scale, None, None), check_network(model, scale))
        self.loaded = load_target(model).loaded
        self.settings, self.stages, self.reporter = settings, stages, reporter
        encoder = Encoder(self.loaded.tokenizer, load_chat_template(model_place(model)))
        calibrating, held_out = (
            [encoder.encode(Document(str(source), user(row["text"]), 0), as_prompt=True) for row in half]
            for half in questions(source, settings.longest, settings.per_category)
        )
        self.text = Text.of_prompts(held_out, self.loaded)
        size = settings.calibration_tokens
        long = [row[:size] for row in calibrating if len(row) >= size]
        self._calibrating = np.array(long[:: max(1, len(long) // settings.calibrating)][: settings.calibrating])
        self._network = lru_cache(maxsize=1)(self._made)  # variants that share a scheme follow each other

    @property
    def calibration(self) -> Calibration:
        """Of the questions that calibrate."""
        network = FLOAT.network(self.loaded.params, self.loaded.config)
        norms = self.stages.run("norms", lambda: channel_norms(*network, self._calibrating, lambda: None))
        sample = calibration_sample(*network, self._calibrating)
        return Calibration(norms, sample)

    def _made(self, scheme: str) -> tuple[Params, DecoderConfig]:
        calibration = self.calibration if scheme in BASELINES else None
        return Variant(scheme).network(self.loaded.params, self.loaded.config, calibration)

    def bits_per_weight(self, variant: Variant) -> float:
        """As `bits_per_weight` has it."""

        def compute() -> Arrays:
            return {"bits": np.array(bits_per_weight(variant, self.loaded.params, self.loaded.config))}

        return float(self.stages.run(f"bits/{variant.name}", compute)["bits"])

    def read(self, variant: Variant) -> TextScores:
        """What a variant makes of the text."""

        def compute(advance: Callable[[], None]) -> Arrays:
            return text_scores(*self._network(variant.scheme), self.text, variant, advance)._asdict()

        return TextScores(**self._stage("text", variant, len(self.text.rows), compute))

    def written(self, scheme: str) -> np.ndarray:
        """Answers to the problems with ordinary attention: tokens, −1 behind the last."""

        def compute(advance: Callable[[], None]) -> Arrays:
            return {"tokens": self.task.written(*self._network(scheme), advance)}

        return self._stage("written", Variant(scheme), self.settings.problems, compute)["tokens"]

    def solved(self, variant: Variant) -> TaskScores:
        """Which problems a variant solves. An answer with float16 attention is the one without where every token of that is the
        likeliest after those before; any other answer counts as wrong, so that its share is a lower bound."""
        right = self.task.right(written := self.written(variant.scheme))["right"]
        if variant.fp16_attention:
            kept = lambda advance: {"kept": self._kept(variant, written, advance)}
            right = right & self._stage("kept", variant, len(written), kept)["kept"]
        return TaskScores(right)

    def finished(self, scheme: str) -> float:
        """Share of answers that end within `Settings.tokens`: others are wrong, whatever they would have come to."""
        reader, problems = self.task.reader, self.task.problems
        ends = [reader.spent(problems, i, row[row >= 0]) is not None for i, row in enumerate(self.written(scheme))]
        return float(np.mean(ends))

    def _kept(self, variant: Variant, written: np.ndarray, advance: Callable[[], None]) -> np.ndarray:
        prompts, lengths = self.task.prompts
        tokens = np.pad(prompts, ((0, 0), (0, written.shape[1])))
        learned = np.zeros(tokens[:, 1:].shape, bool)
        for row, of, answer, length in zip(tokens, learned, written, lengths, strict=True):
            answer = answer[answer >= 0]
            row[length : length + len(answer)], of[length - 1 : length + len(answer) - 1] = answer, True
        return task_scores(*self._network(variant.scheme), Solutions(tokens, learned), variant, advance).greedy

    def _stage(
        self, what: str, variant: Variant, count: int, compute: Callable[[Callable[[], None]], Arrays]
    ) -> Arrays:
        def shown() -> Arrays:
            with self.reporter.bar(f"{what}, {variant.name}", num_chunks(count)) as bar:
                return compute(bar.advance)

        return self.stages.run(f"{what}/{variant.name}", shown)


def document(
    measuring: Measuring, texts: dict[Variant, TextScores], tasks: dict[Variant, TaskScores]
) -> dict[str, Any]:
    """What is measured so far."""
    text, bits = measuring.text, measuring.bits_per_weight
    scores = {variant: Scores(bits(variant), read, tasks.get(variant)) for variant, read in texts.items()}
    rows = variant_rows(scores, text)
    for variant, row in zip(texts, rows, strict=True):
        if variant in tasks:
            row["arithmetic_finished"] = measuring.finished(variant.scheme)
    return {
        "schema_version": 1,
        "settings": dataclasses.asdict(measuring.settings),
        "questions": len(text.rows),
        "counted_tokens": int(text.counted.sum()),
        "counted_bytes": int(text.num_bytes.sum()),
        "variants": rows,
        "comparisons": comparison_rows(scores, PAIRS),
        "status": "measured",
        "versions": versions(),
    }


def measure(
    measuring: Measuring, variants: Sequence[Variant], keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """All text, then all tasks.

    Args:
        variants: with `FLOAT` first. keep: what is done with the document after each step.
    """
    texts: dict[Variant, TextScores] = {}
    tasks: dict[Variant, TaskScores] = {}
    for variant in variants:
        texts[variant] = measuring.read(variant)
        keep(document(measuring, texts, tasks))
    for variant in variants:
        tasks[variant] = measuring.solved(variant)
        keep(document(measuring, texts, tasks))
    return document(measuring, texts, tasks)


def with_earlier(new: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """A document with what an earlier one of the same settings has beside it."""
    both = dict(new)
    for part, keys in (("variants", ("variant",)), ("comparisons", ("variant", "beside"))):
        rows: dict[tuple[str, ...], dict[str, Any]] = {}
        for row in (*earlier.get(part, ()), *new[part]):
            name = tuple(row[key] for key in keys)
            rows[name] = rows.get(name, {}) | row
        both[part] = list(rows.values())
    return both


def main() -> None:
    """Measure, or go on, and write."""
    parser = argparse.ArgumentParser(prog="python -m experiments.instruct_accuracy", description=__doc__)
    parser.add_argument("questions", type=existing_file)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--out", type=Path, default=Path("runs/instruct_accuracy"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="+", default=[], choices=[variant.name for variant in VARIANTS])
    args = parser.parse_args()
    settings = Settings()
    chosen = [variant for variant in VARIANTS if not args.only or variant == FLOAT or variant.name in args.only]
    begun = hashlib.sha256(f"{args.model} {settings}".encode() + args.questions.read_bytes()).hexdigest()[:12]
    measuring = Measuring(args.model, args.questions, settings, Stages(args.out / begun), Reporter())
    path = args.json or args.out / begun / "result.json"
    earlier = read_json(path) if args.only and path.is_file() else {}
    asked = {"model": args.model, "settings": dataclasses.asdict(settings)}
    if earlier and {key: earlier.get(key) for key in asked} != asked:
        parser.error(f"{path} was measured with another network or other settings; give --json another file")
    measure(measuring, chosen, lambda found: write_text(path, to_json(asked | with_earlier(found, earlier))))


if __name__ == "__main__":
    main()
