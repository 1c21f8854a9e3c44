"""AAT curves of a network that runs: `python -m experiments.papers.fpga_tree_sd.curves QUESTIONS [--json FILE]`.

QUESTIONS are as for `experiments.real_network`. Drafts rank the network's own greedy answers once; trees by prior score and the
law, Eq. (3), are fitted to one half of the questions and judged on the other. On the boards measured curves take the place of
Table I's law, with the passes that these trees have; all else, the price of a pass included, is the model of the tables. What
is done is kept under --out; the result is `data/measured_curves.json`.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar

from experiments.command_line import existing_file
from experiments.papers.fpga_tree_sd.calibration import PLATFORM_CONTEXTS, board_table, fit
from experiments.papers.fpga_tree_sd.details import CURVES
from experiments.papers.fpga_tree_sd.model import BOARDS, LENGTHS, ORIGINAL_DEPTH, board_times, cells, cycle
from experiments.real_network import questions, user
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes import find_scheme
from jaxspec.compress.weights import hard_draft
from jaxspec.models.chat_template import load_chat_template
from jaxspec.models.embedded import model_place
from jaxspec.models.special_tokens import end_tokens
from jaxspec.models.stored import as_computed
from jaxspec.partial_files import write_text
from jaxspec.runs import Reporter
from jaxspec.runs.run_index import versions
from jaxspec.runs.stages import Arrays, Stages
from jaxspec.speculate import GREEDY
from jaxspec.speculate.chunks import Prompts, flush_right, num_chunks, padded
from jaxspec.speculate.drafts import ReadyDraft, compressed_copy, make_draft
from jaxspec.speculate.measured_ranks import ContinuedTexts, record_ranks
from jaxspec.speculate.proof import continue_texts
from jaxspec.studies.measured.run_context import load_target
from jaxspec.studies.tree.stages import candidate_shape, grow
from jaxspec.text import Document, Encoder
from jaxspec.trees.aat_law import fit_aat_law, law_on_host
from jaxspec.trees.rank_traces import RankTraces, aat_by_size
from jaxspec.tuning.calibration import calibrate

#: Levels of LongSpec's own tree, and of EAGLE-3's.
_LEVELS = (ORIGINAL_DEPTH, 8)

#: Lengths of a curve that are written.
_SHOWN = np.array([2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 69])

#: Tokens of each text that a self-draft ranks weights on.
_WINDOW = 64

#: Forms of a curve, simplest first; the last is the other half's curve itself, which no form is likely to beat.
FORMS = ("constant", "chain", "law", "no form")

_RESAMPLES = 400


@dataclasses.dataclass(frozen=True)
class Settings:
    """How much is measured.

    Attributes:
        per_category: questions of each in either half. longest: characters of one. tokens: of an answer.
    """

    per_category: int = 16
    longest: int = 200
    tokens: int = 48


class Counts(NamedTuple):
    """Tokens and cycles of each question with the trees of `LENGTHS`, and levels of these trees."""

    generated: Int[np.ndarray, "length question"]
    cycles: Int[np.ndarray, "length question"]
    passes: Int[np.ndarray, " length"]

    def curves(self, weight: Float[np.ndarray, "resample question"]) -> Float[np.ndarray, "resample length"]:
        """Tokens per cycle, questions counted so often."""
        return (weight @ self.generated.T) / (weight @ self.cycles.T)


class Measuring:
    """Texts of a network and how drafts rank them, stage by stage."""

    def __init__(self, model: str, source: Path, settings: Settings, stages: Stages, reporter: Reporter):
        """Load the network and the questions of both halves, as many of each.

        Raises:
            InputError: the network cannot be read, or has no chat template.
        """
        self.loaded, place = load_target(model).loaded, model_place(model)
        self.params = as_computed(self.loaded.params)
        self.settings, self.stages, self.reporter = settings, stages, reporter
        fitted, judged = questions(source, settings.longest, settings.per_category)
        kept: dict[str, list[dict[str, str]]] = {}
        for row in fitted:
            kept.setdefault(row["category"], []).append(row)
        fitted = [row for rows in kept.values() for row in rows[: settings.per_category]]
        self.halves = np.repeat([0, 1], [len(fitted), len(judged)])
        encoder = Encoder(self.loaded.tokenizer, load_chat_template(place))
        rows = [
            encoder.encode(Document(str(source), user(row["text"]), 0), as_prompt=True) for row in (*fitted, *judged)
        ]
        self.prompts, self.lengths = padded(rows)
        self.stop = end_tokens(place, vocab_size=self.loaded.config.vocab_size)

    @property
    def texts(self) -> ContinuedTexts:
        """Questions with the network's greedy answers, long enough for the deepest tree at every root that counts."""
        count = self.settings.tokens + max(_LEVELS)

        def compute() -> Arrays:
            asked = Prompts(self.prompts, count, GREEDY, seed=0, lengths=self.lengths, stop=self.stop)
            with self.reporter.bar("answering", num_chunks(len(self.prompts))) as bar:
                decoded = continue_texts(self.params, self.loaded.config, asked, advance=bar.advance)
            return {"tokens": decoded["tokens"], "generated": decoded["generated"]}

        done = self.stages.run("answers", compute)
        tokens = done["tokens"][:, : self.prompts.shape[1] + count]
        return ContinuedTexts(tokens, self.lengths, np.minimum(done["generated"], count))

    def draft(self, name: str) -> ReadyDraft:
        """A draft by name or folder, or the target's copy by a scheme that ranks weights on the texts of the first half."""
        if name != "cassandra1":
            return make_draft(name, self.loaded)
        texts, config, stored = self.texts, self.loaded.config, self.loaded.params
        assert texts.generated is not None
        rows, _ = flush_right(texts.tokens, self.lengths + texts.generated)
        windows = jnp.asarray(rows[self.halves == 0, -_WINDOW:])
        scheme = find_scheme(name, runs=True)
        knobs = uniform_knobs(scheme, config)
        prepared = calibrate(stored, config, windows, scheme=scheme, first=_WINDOW // 2).prepared
        return compressed_copy(config, as_computed(hard_draft(stored, prepared, knobs, config)), knobs)

    def ranks(self, name: str) -> RankTraces:
        """How a draft ranks the texts."""

        def compute() -> Arrays:
            draft, texts = self.draft(name), self.texts
            with self.reporter.bar(f"ranking by {label(name)}", num_chunks(len(self.prompts))) as bar:
                how = {"prompt_tokens": self.prompts.shape[1], "depth": max(_LEVELS), "advance": bar.advance}
                return vars(record_ranks(self.params, self.loaded.config, draft, texts, **how))

        return RankTraces(**self.stages.run(f"ranks/{label(name)}", compute))

    def counts(self, name: str, levels: int) -> tuple[Counts, Counts]:
        """Of both halves, with trees that grow by the first one's prior scores."""
        traces = self.ranks(name)
        halves = [RankTraces(traces.rank[self.halves == h], traces.num_starts[self.halves == h]) for h in (0, 1)]
        sizes = {"nodes": len(LENGTHS), "depth": levels, "vocabulary": self.loaded.config.vocab_size}
        grown = grow("prior", candidate_shape("prior", **sizes), halves[0], **sizes)
        passes = np.maximum.accumulate(np.asarray(grown.tree().depth))

        def counted(half: RankTraces) -> Counts:
            curve = aat_by_size(grown, half, num_tokens=self.settings.tokens)
            assert bool(np.all(curve.complete)), "a root has no ranks"
            return Counts(np.asarray(curve.generated), np.asarray(curve.cycles), passes)

        return counted(halves[0]), counted(halves[1])


def label(draft: str) -> str:
    """What a draft is called: of a folder its last name."""
    return Path(draft).name


def forms(curve: Float[np.ndarray, " length"]) -> tuple[dict[str, Float[np.ndarray, " length"]], dict[str, float]]:
    """What each form makes of a curve that it was fitted to by least squares, and the fitted numbers.

    `chain` is 1 + alpha + ... + alpha^(x - 1), as if each node lengthened a chain whose tokens are accepted independently.
    """
    chain = lambda alpha: np.cumsum(alpha ** np.arange(LENGTHS[-1]))[LENGTHS - 1]
    loss = lambda alpha: float(np.sum((chain(alpha) - curve) ** 2))
    alpha = float(minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded").x)  # pyright: ignore[reportAttributeAccessIssue]
    fitted = fit_aat_law(LENGTHS, curve).law
    numbers = {"A": fitted.intercept, "B": fitted.log_slope, "C": fitted.shift, "alpha": alpha}
    values = (np.full_like(curve, curve.mean()), chain(alpha), law_on_host(fitted, LENGTHS), curve)
    return dict(zip(FORMS, values, strict=True)), numbers


def error(form: Float[np.ndarray, " length"], curve: Float[np.ndarray, " length"]) -> float:
    """Root of the mean squared relative error over all lengths."""
    return float(np.sqrt(np.mean((form / curve - 1.0) ** 2)))


def cycle_times(board: str, passes: Int[np.ndarray, " length"]) -> Float[np.ndarray, "context length"]:
    """Seconds of a cycle by the model fitted to Table I, trees having so many levels."""
    run = cycle(board_times(board, PLATFORM_CONTEXTS), fit().fitted, fit().choices, passes=passes.astype(float))
    return run.verify_s + run.draft_s


def lost(speed: Float[np.ndarray, "*b length"], length: Int[np.ndarray, "*b"]) -> Float[np.ndarray, "*b"]:
    """Share of the best throughput that a length loses."""
    own = np.take_along_axis(speed, np.broadcast_to(length, speed.shape[:-1])[..., None] - LENGTHS[0], axis=-1)[..., 0]
    return 1.0 - own / speed.max(axis=-1)


def summary(fitted: Counts, judged: Counts, seed: int = 0) -> dict[str, Any]:
    """Curves, forms with their errors on the other half, and boards; 95 % intervals, questions of both halves drawn anew."""
    rng = np.random.default_rng(seed)

    def drawn(counts: Counts) -> Float[np.ndarray, "resample length"]:
        questions = counts.cycles.shape[1]
        again = rng.multinomial(questions, np.full(questions, 1 / questions), size=_RESAMPLES)
        return counts.curves(np.vstack([np.ones(questions), again]))

    ours, others = drawn(fitted), drawn(judged)
    made = [forms(curve) for curve in ours]
    errors = [[error(one[form], curve) for (one, _), curve in zip(made, others, strict=True)] for form in FORMS]
    shown = _SHOWN - LENGTHS[0]
    law = np.stack([one["law"] for one, _ in made])
    return {
        "length": _SHOWN.tolist(),
        "tokens_per_cycle": np.round(others[0][shown], 3).tolist(),
        "standard_error": np.round(np.std(others[1:], axis=0)[shown], 3).tolist(),
        "tokens_per_cycle_of_fitted_half": np.round(ours[0][shown], 3).tolist(),
        "levels_of_tree": judged.passes[shown].tolist(),
        "numbers": made[0][1],
        "error": {form: _interval(np.array(values)) for form, values in zip(FORMS, errors, strict=True)},
        "law_less_than_chain": _interval(np.array(errors[1]) - np.array(errors[2])),
        "boards": [_on_board(board, judged.passes, others, law) for board in BOARDS],
    }


def _on_board(
    board: str,
    passes: Int[np.ndarray, " length"],
    curves: Float[np.ndarray, "resample length"],
    law: Float[np.ndarray, "resample length"],
) -> dict[str, Any]:
    """Best lengths at each context of Table IV, and what is lost by other ways to choose one."""
    printed = {
        int(cell["context_length"]): int(cell.value)
        for cell in cells("table4_platforms")
        if cell["board"] == board and cell.metric == "best_verification_length"
    }
    seconds = cycle_times(board, passes)
    speed, by_law = (rows[:, None] / seconds for rows in (curves, law))
    ways = {
        "printed": np.array([printed[context] for context in PLATFORM_CONTEXTS]),
        "table_one_law": board_table(board).best_length.astype(int),
        "own_law": LENGTHS[by_law.argmax(axis=-1)],
    }
    losses = {way: lost(speed, length) for way, length in ways.items()}
    return {
        "board": board,
        "best_length": LENGTHS[speed[0].argmax(axis=-1)].tolist(),
        "within_2_percent": [
            f"{near[0]} to {near[-1]}" for near in (LENGTHS[of >= 0.98 * of.max()] for of in speed[0])
        ],
        **{f"lost_at_{way}": np.round(of[0], 4).tolist() for way, of in losses.items()},
        **{f"most_lost_at_{way}": _interval(of.max(axis=-1)) for way, of in losses.items()},
    }


def _interval(values: Float[np.ndarray, " resample"]) -> dict[str, float]:
    """The first one is of all questions as they are."""
    low, high = np.percentile(values[1:], [2.5, 97.5])
    return {"value": round(float(values[0]), 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def main() -> None:
    """Measure, or go on, and write."""
    parser = argparse.ArgumentParser(prog="python -m experiments.papers.fpga_tree_sd.curves", description=__doc__)
    parser.add_argument("questions", type=existing_file)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--drafts", nargs="+", default=["q4", "cassandra1", "ngram"], help="names, or folders of heads")
    parser.add_argument("--per-category", type=int, default=Settings.per_category)
    parser.add_argument("--out", type=Path, default=Path("runs/fpga_curves"))
    parser.add_argument("--json", type=Path, default=CURVES)
    args = parser.parse_args()
    settings = Settings(per_category=args.per_category)
    begun = hashlib.sha256(f"{args.model} {settings}".encode() + args.questions.read_bytes()).hexdigest()[:12]
    measuring = Measuring(args.model, args.questions, settings, Stages(args.out / begun), Reporter())
    curves = []
    for name in args.drafts:
        for levels in _LEVELS:
            curves.append({"draft": label(name), "levels": levels} | summary(*measuring.counts(name, levels)))
        document = {
            "schema_version": 1,
            "model": args.model,
            "settings": dataclasses.asdict(settings),
            "questions": np.bincount(measuring.halves).tolist(),
            "curves": curves,
            "status": "measured, but for boards, which are predicted",
            "versions": versions(),
        }
        # A line for each curve and for each board.
        write_text(
            args.json, re.sub(r' (?=\{"(boards|best_length)")', "\n", json.dumps(document, sort_keys=True)) + "\n"
        )


if __name__ == "__main__":
    main()
