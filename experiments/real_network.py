"""Speculation on a pretrained network and natural text: `python -m experiments.real_network QUESTIONS [--json FILE]`.

QUESTIONS are JSON lines with `category` and `turns`, as Spec-Bench has them; the first turn is the prompt, written by the
network's chat template. Of each category every other question calibrates, with the network's own answer to it, which is
the text that drafts meet; the others are held out. Runs are directories under --out: whatever was interrupted goes on, and what
has finished is read again. They come cheapest first; --only names some of them. All of them take hours on two cores.

Source of the questions: Xia et al. 2024, Spec-Bench, arXiv:2401.07851 (Apache-2.0); they are read, not shipped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.command_line import check_page, existing_file, print_table, write_table
from jaxspec.models.chat_template import load_chat_template
from jaxspec.models.embedded import model_place
from jaxspec.models.special_tokens import end_tokens
from jaxspec.models.stored import as_computed
from jaxspec.partial_files import to_json, write_text
from jaxspec.runs import Reporter
from jaxspec.runs.run_index import versions
from jaxspec.speculate import GREEDY
from jaxspec.speculate.chunks import Prompts, generated_tokens, num_chunks, padded
from jaxspec.speculate.proof import continue_texts
from jaxspec.studies import CompareConfig, EvaluateConfig, TreeConfig, TuneConfig, compare, evaluate, search_tree, tune
from jaxspec.studies.measured.run_context import load_target
from jaxspec.text import Encoder, read_prompts

#: Spec-Bench's eight categories of MT-Bench have ten questions each and count as one.
POOLED: dict[str, str] = dict.fromkeys(
    ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"), "mt_bench"
)

#: Tokens that the network writes behind a question that calibrates.
ANSWER_TOKENS = 192


def questions(path: Path, longest: int, per_category: int | None) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Questions that calibrate, and those that are held out, category by category.

    Args:
        longest: characters; a longer question loses its middle, whose ends say what is asked.
        per_category: at most so many of each are held out; None: all that do not calibrate.
    """
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    by_category: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        category, text = POOLED.get(row["category"]) or row["category"], row["turns"][0]
        if len(text) > longest:
            text = f"{text[: longest * 2 // 3]} ... {text[-longest // 3 :]}"
        by_category.setdefault(category, []).append({"category": category, "text": text})
    calibrating = [row for own in by_category.values() for row in own[::2]]
    return calibrating, [row for own in by_category.values() for row in own[1::2][:per_category]]


def write_lines(path: Path, entries: Iterable[dict[str, Any]]) -> Path:
    """JSON lines."""
    write_text(path, "".join(f"{json.dumps(entry, ensure_ascii=False)}\n" for entry in entries))
    return path


def user(text: str) -> list[dict[str, str]]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


def write_texts(model: str, source: Path, out: Path, reporter: Reporter, **limits: Any) -> tuple[Path, Path]:
    """The text that calibrates and the prompts that are held out, as files for `--text` and `--prompts`.

    The network answers the questions that calibrate greedily. A text's second half is held out, which prompts of their own take
    the place of, so that it repeats the first.
    """
    calibrating, held_out = questions(source, **limits)
    prompts = write_lines(
        out / "prompts.jsonl", ({"messages": user(row["text"]), "category": row["category"]} for row in held_out)
    )
    text = out / "calibration.jsonl"
    if text.is_file():
        return text, prompts
    asked = write_lines(out / "asked.jsonl", ({"messages": user(row["text"])} for row in calibrating))
    answers = answered(model, asked, reporter)
    said = [
        {"messages": [*user(row["text"]), {"role": "assistant", "content": answer}]}
        for row, answer in zip(calibrating, answers, strict=True)
    ]
    return write_lines(text, [*said, *said]), prompts


def answered(model: str, asked: Path, reporter: Reporter) -> list[str]:
    """The network's greedy answers to prompts of a file, of `ANSWER_TOKENS` at most."""
    loaded, place = load_target(model).loaded, model_place(model)
    encoder = Encoder(loaded.tokenizer, load_chat_template(place))
    prompts, lengths = padded(read_prompts(str(asked), encoder).tokens)
    with reporter.bar("answering the questions that calibrate, in chunks", num_chunks(len(prompts))) as bar:
        decoded = continue_texts(
            as_computed(loaded.params),
            loaded.config,
            Prompts(
                prompts,
                num_tokens=ANSWER_TOKENS,
                decoding=GREEDY,
                seed=0,
                lengths=lengths,
                stop=end_tokens(place, vocab_size=loaded.config.vocab_size),
            ),
            advance=bar.advance,
        )
    written = generated_tokens(decoded["tokens"], lengths, decoded["generated"], ANSWER_TOKENS)
    return [loaded.tokenizer.decode(row[row >= 0]) for row in written]


#: Passes of an ascent: each takes 24 windows. More do not help on text that no pass saw.
_STEPS = 8


def runs(
    common: dict[str, Any], drafts: tuple[str, ...], seeds: Sequence[int], windows: int, schemes: Sequence[str]
) -> dict[str, Callable[..., Any]]:
    """Name of each run -> what does it, given its directory; cheapest first. Args: windows: that knobs are tuned on."""
    studies: dict[str, Callable[..., Any]] = {}
    for scheme in schemes:
        for way, temperature in (("greedy", 0.0), ("sampled", 1.0)):
            config = EvaluateConfig(scheme=scheme, temperature=temperature, **common)
            studies[f"default-{scheme}-{way}"] = lambda config=config, **given: evaluate(config, **given)
    compared = CompareConfig(drafts=drafts, **common)
    studies["compare"] = lambda **given: compare(compared, **given)
    for draft in ("self", "ngram"):
        config = TreeConfig(draft=draft, **common)
        studies[f"tree-{draft}"] = lambda config=config, **given: search_tree(config, **given)
    for seed in seeds:
        for scheme in schemes:
            # Each device has its own ascent: one is enough. Knobs that saw 48 windows alone fitted their text.
            own = common | {"device": common["device"][:1], "calibration_prompts": windows, "steps": _STEPS}
            own |= {"continuation_tokens": common["output_tokens"]}  # what is decoded is what counts
            config = TuneConfig(scheme=scheme, seed=seed, **own)
            studies[f"tune-{scheme}-seed-{seed}"] = lambda config=config, **given: tune(config, **given)
    return studies


def rows_of(name: str, entry: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each configuration of a result with all prompts, and for each category of them."""
    rows = []
    for draft, one in entry.get("configurations", {}).items():
        whole = one | {"prompts": entry["lossless"]["prompts"], "alpha_token": one["acceptance"]["alpha_token"]}
        for category, own in {"all": whole, **one.get("by_category", {})}.items():
            row = {"run": name, "draft": draft, "category": category}
            row |= {key: one[key] for key in ("draft_length", "bits_per_weight", "bits_per_kv")}
            rows.append(row | {key: own[key] for key in _COUNTED})
    return rows


#: Numbers of a row, of all prompts or of a category.
_COUNTED = (
    "prompts",
    "alpha_token",
    "tokens_per_cycle_predicted",
    "tokens_per_cycle_counted",
    "tokens_per_cycle_standard_error",
    "tokens_per_cycle_gap_in_standard_errors",
    "speedup_vs_bf16_ar",
)


#: Headings of the columns, in the order of `cells`.
HEADINGS = ("run", "draft", "device", "category", "prompts", "bits per weight", "draft length", "alpha_token")
HEADINGS += ("tokens per cycle, predicted", "counted", "gap, standard errors", "speedup over 16-bit AR")


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row as it is shown."""
    return (
        *(row[key] for key in ("run", "draft", "device", "category")),
        f"{row['prompts']}",
        f"{row['bits_per_weight']:.2f}",
        f"{row['draft_length']}",
        f"{row['alpha_token']:.3f}",
        f"{row['tokens_per_cycle_predicted']:.2f}",
        f"{row['tokens_per_cycle_counted']:.2f} ± {row['tokens_per_cycle_standard_error']:.2f}",
        f"{row['tokens_per_cycle_gap_in_standard_errors']:.1f}",
        f"{row['speedup_vs_bf16_ar']:.2f}x",
    )


def show(rows: Sequence[dict[str, Any]]) -> None:
    """A table on standard output."""
    title = "measured: acceptance, counted tokens per cycle; predicted: their prediction and the speedup"
    print_table(title, HEADINGS, map(cells, rows), left=4)


def main() -> None:
    """Write the texts, run, show, write."""
    parser = argparse.ArgumentParser(prog="python -m experiments.real_network", description=__doc__)
    parser.add_argument("questions", type=existing_file)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--architecture", default="llama-3.1-8b", help="whose cost is predicted")
    parser.add_argument("--devices", nargs="+", default=["rtx-4090", "rtx-4090-calibrated"])
    parser.add_argument("--drafts", nargs="+", default=["ngram", "layer-skip", "sparse-kv-50", "sparse-kv-10", "q4"])
    parser.add_argument("--schemes", nargs="+", default=["cassandra1", "cassandra1-midpoint", "cassandra2"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--per-category", type=int, help="at most so many held-out questions of each")
    parser.add_argument("--longest", type=int, default=1200, help="characters of a question (default: %(default)s)")
    parser.add_argument(
        "--windows", type=int, default=216, help="answers to tune on, of those that calibrate (default: %(default)s)"
    )
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--only", nargs="+", default=[], help="names of runs")
    parser.add_argument("--out", type=Path, default=Path("runs/real_network"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path, help="page whose table is written anew")
    args = parser.parse_args()
    check_page(parser, args.page)
    reporter = Reporter()
    args.out.mkdir(parents=True, exist_ok=True)
    limits = {"longest": args.longest, "per_category": args.per_category}
    text, prompts = write_texts(args.model, args.questions, args.out, reporter, **limits)
    common = {
        "model": args.model,
        "architecture": args.architecture,
        "device": tuple(args.devices),
        "text": str(text),
        "prompts": str(prompts),
        "output_tokens": args.output_tokens,
    }
    rows, lossless = [], {}
    windows = args.windows
    for name, run in runs(common, tuple(args.drafts), args.seeds, windows, args.schemes).items():
        if args.only and name not in args.only:
            continue
        results, _ = run(out=str(args.out / name), reporter=reporter)
        for result in results:
            entry = result.plain()
            rows += [{"device": entry["device"]} | row for row in rows_of(name, entry)]
            lossless[name] = entry.get("lossless")
        # What is finished stays, however far the next run comes.
        if args.json:
            document = {
                "schema_version": 1,
                "model": args.model,
                "rows": rows,
                "lossless": lossless,
                "versions": versions(),
            }
            write_text(args.json, to_json(document))
    show(rows)
    if args.page:
        write_table(args.page, parser.prog, HEADINGS, map(cells, rows), left=4)


if __name__ == "__main__":
    main()
